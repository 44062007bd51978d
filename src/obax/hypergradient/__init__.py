"""Estimators of the hypergradient, each with the residual that it reached.

| estimator | solves H v = grad_y f by | for |
|---|---|---|
| `Dense` | LU factors of H | small y, exact |
| `CG` | conjugate gradients | the usual choice |
| `Neumann` | a truncated power series | deep networks, cheap and rough |
| `FixedPoint` | iterating the adjoint of a gradient step | a known good inner step size |
| `GMRES` | generalised minimal residuals | inner problems that are not convex |
| `Nystrom` | a low-rank sketch of H | large y, ill-conditioned, parallel |
| `Unrolled` | not at all: reverse through the K steps | few inner steps, no convexity |
"""

from .base import Estimate as Estimate, Hypergradient as Hypergradient, Remedy as Remedy
from .check import (
    HypergradientCheck as HypergradientCheck,
    check_hypergradient as check_hypergradient,
)
from .nystrom import Nystrom as Nystrom
from .solvers import (
    CG as CG,
    GMRES as GMRES,
    Dense as Dense,
    FixedPoint as FixedPoint,
    Neumann as Neumann,
)
from .unrolled import Unrolled as Unrolled

Estimator = Hypergradient
"""The name that `Hypergradient` had in version 0.1."""
