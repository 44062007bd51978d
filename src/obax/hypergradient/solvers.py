"""Estimators that solve H v = grad_y f: by factors, by a Krylov method, or by iterating on the
inner problem's gradient map y - eta grad_y g(x, y)."""

from collections.abc import Callable
from typing import Annotated, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array

from .._support import trees
from .._support.checks import Checked, Count, Kind, Positive
from .._support.trees import PyTree
from ..implicit import conjugate_gradients
from .base import (
    RIDGE,
    SYSTEM,
    Implicit,
    LinearMap,
    Remedy,
    Solution,
    check_factors,
    rounding,
    solve_with,
)

SMALL = "Dense() where the follower is small"


def _static_number(expected: str, accepts: Callable[[float], bool]) -> Kind:
    """Return the kind of Python numbers that are compiled in."""
    number = lambda v: isinstance(v, int | float) and not isinstance(v, bool)  # noqa: E731
    return Kind(expected, lambda value: number(value) and accepts(value))


Tolerance = Annotated[float, _static_number("a number in [0, 1)", lambda v: 0 <= v < 1)]
PositiveTolerance = Annotated[float, _static_number("a number in (0, 1)", lambda v: 0 < v < 1)]
Damping = Annotated[float, _static_number("a number >= 0", lambda v: 0 <= v < float("inf"))]


class Dense(Implicit):
    """An exact estimator that builds H and factorises it, for small y (d2^2 numbers, d2 products).

    LU, so that an inner problem that is not convex gets an honest answer too.
    """

    remedy: ClassVar[Remedy] = Remedy(SYSTEM, f"{RIDGE}: its Hessian is singular, or nearly so")

    def solve(self, hvp: LinearMap, gradient: PyTree, carry: PyTree) -> Solution:
        check_factors(self, gradient)
        size = sum(leaf.size for leaf in jax.tree.leaves(gradient))
        import lineax as lx

        return Solution(solve_with(lx.LU(), hvp, gradient).value, carry, size)


class CG(Checked, Implicit, prefix="CG."):
    """An estimator with conjugate gradients, for H positive definite.

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

    remedy: ClassVar[Remedy] = Remedy(
        SYSTEM,
        f"more CG.max_steps, CG(damping=...) where the inner loss is not convex, {SMALL}, or "
        f"{RIDGE}",
    )
    max_steps: Count | None = None
    rtol: Tolerance | None = eqx.field(default=None, static=True)
    atol: Tolerance | None = eqx.field(default=None, static=True)
    warm_start: bool = False
    damping: Damping = eqx.field(default=0.0, static=True)

    def init(self, inner_var: PyTree) -> PyTree:
        return jax.tree.map(jnp.zeros_like, inner_var) if self.warm_start else None

    def solve(self, hvp: LinearMap, gradient: PyTree, carry: PyTree) -> Solution:
        rtol = 100 * rounding(gradient) if self.rtol is None else self.rtol
        atol = 0.0 if self.atol is None else self.atol
        size = sum(leaf.size for leaf in jax.tree.leaves(gradient))
        budget = 10 * size if self.max_steps is None else self.max_steps
        enough = (atol + rtol * trees.norm(gradient)) ** 2
        product = hvp
        if self.damping != 0:
            product = lambda v: trees.scaled_add(hvp(v), self.damping, v)  # noqa: E731
        v = jax.tree.map(jnp.zeros_like, gradient) if carry is None else carry
        left = gradient if carry is None else trees.difference(gradient, product(carry))
        v, steps = conjugate_gradients(product, v, left, enough, budget)
        return Solution(v, v if self.warm_start else carry, steps + int(self.warm_start))


class GMRES(Checked, Implicit, prefix="GMRES."):
    """An estimator with generalised minimal residuals, for H that is not positive definite.

    `max_steps` is the number of Krylov spaces that are built, `restart` the size of one. It stops
    when residual and last step are below `atol + rtol` times the size of what they change, entry by
    entry; by default both are 10 times the rounding of y's dtype. The number of products that is
    reported is at most what was needed: a space may end early.
    """

    remedy: ClassVar[Remedy] = Remedy(
        SYSTEM, f"more GMRES.max_steps, a larger GMRES.restart, {SMALL}, or {RIDGE}"
    )
    max_steps: Count | None = None
    rtol: Tolerance | None = eqx.field(default=None, static=True)
    atol: Tolerance | None = eqx.field(default=None, static=True)
    restart: Count = 20

    def solve(self, hvp: LinearMap, gradient: PyTree, carry: PyTree) -> Solution:
        import lineax as lx

        check_factors(self, gradient)
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
        return Solution(solution.value, carry, 1 + spaces * (1 + min(self.restart, size)))


class Neumann(Checked, Implicit, prefix="Neumann."):
    """An estimator with the truncated Neumann series v = eta sum_{k < terms} (I - eta H)^k grad_y
    f.

    It converges for `step_size` eta < 2 / |H|, and is always a descent-like approximation below
    that; `terms` sets the cost, terms - 1 Hessian-vector products.
    """

    remedy: ClassVar[Remedy] = Remedy(
        SYSTEM,
        f"a smaller Neumann.step_size where it is above 1 (the series converges below 2 / |H|), "
        f"more Neumann.terms where it is not, CG(), or {SMALL}",
    )
    terms: Count
    step_size: Positive

    def solve(self, hvp: LinearMap, gradient: PyTree, carry: PyTree) -> Solution:
        def add_term(_: Array, sum_and_term: tuple[PyTree, PyTree]) -> tuple[PyTree, PyTree]:
            total, term = sum_and_term
            term = trees.scaled_add(term, -self.step_size, hvp(term))
            return jax.tree.map(jnp.add, total, term), term

        total, _ = jax.lax.fori_loop(0, self.terms - 1, add_term, (gradient, gradient))
        return Solution(trees.scaled(total, self.step_size), carry, self.terms - 1)


class FixedPoint(Checked, Implicit, prefix="FixedPoint."):
    """An estimator that differentiates the fixed point y = Phi(x, y) of the gradient map Phi = y -
    eta grad_y g.

    The adjoint u = (d_y Phi)^T u + grad_y f is iterated until it moves by less than the tolerance,
    and the hypergradient is grad_x f + (d_x Phi)^T u. With eta u = v this is H v = grad_y f again,
    so the residual means the same; unlike `Neumann` the number of steps follows the tolerance.
    """

    remedy: ClassVar[Remedy] = Remedy(
        SYSTEM,
        f"a smaller FixedPoint.step_size where it is above 1 (the steps converge below 2 / |H|), "
        f"more FixedPoint.max_steps where it is not, CG(), or {SMALL}",
    )
    step_size: Positive
    max_steps: Count = 1000
    rtol: PositiveTolerance | None = eqx.field(default=None, static=True)

    def solve(self, hvp: LinearMap, gradient: PyTree, carry: PyTree) -> Solution:
        rtol = rounding(gradient) if self.rtol is None else self.rtol

        def unfinished(now: tuple) -> Array:
            step, u, moved = now
            # A NaN compares as false and ends the loop; the guard sees it in u.
            return (step < self.max_steps) & (moved > (rtol * trees.norm(u)) ** 2)

        def iterate(now: tuple) -> tuple:
            step, u, _ = now
            pulled = trees.scaled_add(u, -self.step_size, hvp(u))
            new = jax.tree.map(jnp.add, pulled, gradient)
            return step + 1, new, trees.squared_norm(trees.difference(new, u))

        far = jnp.full_like(trees.norm(gradient), jnp.inf)
        start = (jnp.asarray(0, jnp.int32), gradient, far)
        steps, u, _ = jax.lax.while_loop(unfinished, iterate, start)
        return Solution(trees.scaled(u, self.step_size), carry, steps)
