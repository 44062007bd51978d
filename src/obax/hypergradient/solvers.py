"""Estimators that solve H v = grad_y f: by factors or by a Krylov method."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import lineax as lx

from .._support import trees, validation
from .._support.trees import PyTree
from ..reduced import conjugate_gradients
from .base import Implicit, LinearMap, rounding, solve_with


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
    - `rtol`, `atol`: stop when the residual is below `atol + rtol * |grad_y f|`; by default 100
      times the rounding of y's dtype, about what can be reached, and 0.
    - `warm_start`: start from the last round's v, carried in the state (with own curvature: one v
      for each round of the window).
    - `damping`: solve (H + damping I) v = grad_y f. The Hessian of a network in training is not
      positive definite, and without damping v may point the wrong way; the residual that is
      reported is that of H v = grad_y f all the same.
    """

    max_steps: int | None = eqx.field(static=True)
    rtol: float | None = eqx.field(static=True)
    atol: float | None = eqx.field(static=True)
    warm_start: bool = eqx.field(static=True)
    damping: float = eqx.field(static=True)

    def __init__(
        self,
        max_steps: int | None = None,
        rtol: float | None = None,
        atol: float | None = None,
        warm_start: bool = False,
        damping: float = 0.0,
    ):
        self.max_steps, self.rtol, self.atol = _checked_budget(max_steps, rtol, atol, "CG")
        self.warm_start = bool(warm_start)
        if not (isinstance(damping, int | float) and 0 <= damping < float("inf")):
            raise ValueError(f"CG.damping must be a number >= 0, but got {damping!r}.")
        self.damping = float(damping)

    def init(self, inner_var: PyTree) -> PyTree:
        return jax.tree.map(jnp.zeros_like, inner_var) if self.warm_start else None

    def solve(self, hvp: LinearMap, gradient: PyTree, carry: PyTree) -> tuple[PyTree, PyTree, Any]:
        rtol = 100 * rounding(gradient) if self.rtol is None else self.rtol
        atol = 0.0 if self.atol is None else self.atol
        size = sum(leaf.size for leaf in jax.tree.leaves(gradient))
        budget = 10 * size if self.max_steps is None else self.max_steps
        enough = (atol + rtol * trees.norm(gradient)) ** 2
        product = hvp if self.damping == 0 else self._damped(hvp)
        v = jax.tree.map(jnp.zeros_like, gradient) if carry is None else carry
        left = gradient if carry is None else trees.difference(gradient, product(carry))
        v, steps = conjugate_gradients(product, v, left, enough, budget)
        return v, v if self.warm_start else carry, steps + (1 if self.warm_start else 0)

    def _damped(self, hvp: LinearMap) -> LinearMap:
        return lambda v: trees.scaled_add(hvp(v), self.damping, v)


class GMRES(Implicit):
    """Generalised minimal residuals, for H that is not positive definite.

    `max_steps` is the number of Krylov spaces that are built, `restart` the size of one. It stops
    when residual and last step are below `atol + rtol` times the size of what they change, entry by
    entry; by default both are 10 times the rounding of y's dtype. The number of products that is
    reported is at most what was needed: a space may end early.
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
        self.restart = validation.count(restart, "GMRES.restart")

    def solve(self, hvp: LinearMap, gradient: PyTree, carry: PyTree) -> tuple[PyTree, PyTree, Any]:
        default = 10 * rounding(gradient)
        rtol = default if self.rtol is None else self.rtol
        # lineax divides by atol + rtol |entry|, so unlike CG it needs an absolute part.
        atol = default if self.atol is None else self.atol
        # The first step of lineax only evaluates the residual.
        budget = None if self.max_steps is None else self.max_steps + 1
        solver = lx.GMRES(rtol=rtol, atol=atol, max_steps=budget, restart=self.restart)
        solution = solve_with(solver, hvp, gradient)
        size = sum(leaf.size for leaf in jax.tree.leaves(gradient))
        spaces = solution.stats["num_steps"] - 1
        return solution.value, carry, 1 + spaces * (1 + min(self.restart, size))


def _checked_budget(
    max_steps: int | None, rtol: float | None, atol: float | None, name: str
) -> tuple[int | None, float | None, float | None]:
    for value, field in ((rtol, "rtol"), (atol, "atol")):
        if value is not None and not (isinstance(value, int | float) and 0 <= value < 1):
            raise ValueError(f"{name}.{field} must be a number in [0, 1), but got {value!r}.")
    steps = None if max_steps is None else validation.count(max_steps, f"{name}.max_steps")
    return steps, rtol, atol
