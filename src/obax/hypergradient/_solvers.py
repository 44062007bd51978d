"""Estimators that solve H v = grad_y f with a solver of lineax."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import lineax as lx

from .. import _validate
from .._tree import PyTree
from ._base import Implicit, LinearMap, rounding, solve_with


class Dense(Implicit):
    """Exact: build H and factorise it. For small y (d2^2 numbers, d2 products).

    LU, so that an inner problem that is not convex gets an honest answer too.
    """

    def solve(self, hvp: LinearMap, gradient: PyTree, carry: PyTree) -> tuple[PyTree, PyTree, Any]:
        size = sum(leaf.size for leaf in jax.tree.leaves(gradient))
        return solve_with(lx.LU(), hvp, gradient).value, carry, size


class CG(Implicit):
    """Conjugate gradients, for H positive definite.

    **Arguments:**

    - `max_steps`: the budget of a round; `None`: ten times the size of y.
    - `rtol`, `atol`: stop when the residual is below `atol + rtol * |grad_y f|`; by default 10
      times the rounding of y's dtype. With a small budget the budget decides.
    - `warm_start`: start from the last round's v, carried in the state (with own curvature: one v
      for each round of the window).
    """

    max_steps: int | None = eqx.field(static=True)
    rtol: float | None = eqx.field(static=True)
    atol: float | None = eqx.field(static=True)
    warm_start: bool = eqx.field(static=True)

    def __init__(
        self,
        max_steps: int | None = None,
        rtol: float | None = None,
        atol: float | None = None,
        warm_start: bool = False,
    ):
        self.max_steps, self.rtol, self.atol = _checked_budget(max_steps, rtol, atol, "CG")
        self.warm_start = bool(warm_start)

    def init(self, inner_var: PyTree) -> PyTree:
        return jax.tree.map(jnp.zeros_like, inner_var) if self.warm_start else None

    def solve(self, hvp: LinearMap, gradient: PyTree, carry: PyTree) -> tuple[PyTree, PyTree, Any]:
        rtol, atol = _tolerances(self.rtol, self.atol, gradient)
        # stabilise_every would evaluate two products a step under vmap; the residual that we
        # report is computed afresh anyway.
        solver = lx.CG(rtol=rtol, atol=atol, max_steps=self.max_steps, stabilise_every=None)
        solution = solve_with(solver, hvp, gradient, tags=lx.positive_semidefinite_tag, start=carry)
        hvps = solution.stats["num_steps"] + (1 if self.warm_start else 0)
        return solution.value, solution.value if self.warm_start else carry, hvps


class GMRES(Implicit):
    """Generalised minimal residuals, for H that is not positive definite.

    `restart` is the size of the Krylov space; `max_steps`, `rtol` and `atol` as for `CG`.
    """

    max_steps: int | None = eqx.field(static=True)
    rtol: float | None = eqx.field(static=True)
    atol: float | None = eqx.field(static=True)
    restart: int = eqx.field(static=True)

    def __init__(
        self,
        max_steps: int | None = None,
        rtol: float | None = None,
        atol: float | None = None,
        restart: int = 20,
    ):
        self.max_steps, self.rtol, self.atol = _checked_budget(max_steps, rtol, atol, "GMRES")
        self.restart = _validate.count(restart, "GMRES.restart")

    def solve(self, hvp: LinearMap, gradient: PyTree, carry: PyTree) -> tuple[PyTree, PyTree, Any]:
        rtol, atol = _tolerances(self.rtol, self.atol, gradient)
        solver = lx.GMRES(rtol=rtol, atol=atol, max_steps=self.max_steps, restart=self.restart)
        solution = solve_with(solver, hvp, gradient)
        return solution.value, carry, solution.stats["num_steps"]


def _checked_budget(
    max_steps: int | None, rtol: float | None, atol: float | None, name: str
) -> tuple[int | None, float | None, float | None]:
    for value, field in ((rtol, "rtol"), (atol, "atol")):
        if value is not None and not (isinstance(value, int | float) and 0 <= value < 1):
            raise ValueError(f"{name}.{field} must be a number in [0, 1), but got {value!r}.")
    steps = None if max_steps is None else _validate.count(max_steps, f"{name}.max_steps")
    return steps, rtol, atol


def _tolerances(rtol: float | None, atol: float | None, gradient: PyTree) -> tuple[float, float]:
    default = 10 * rounding(gradient)
    return default if rtol is None else rtol, default if atol is None else atol
