"""Estimators that iterate on the inner problem's gradient map y - eta grad_y g(x, y)."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array

from .._support import trees, validation
from .._support.trees import PyTree
from .base import Implicit, LinearMap, Solution, rounding


class Neumann(Implicit):
    """The truncated Neumann series v = eta sum_{k < terms} (I - eta H)^k grad_y f.

    It converges for `step_size` eta < 2 / |H|, and is always a descent-like approximation below
    that; `terms` sets the cost, terms - 1 Hessian-vector products.
    """

    terms: int = eqx.field(static=True)
    step_size: Array

    def __init__(self, terms: int, step_size: float | Array):
        self.terms = validation.count(terms, "Neumann.terms")
        self.step_size = validation.positive_number(step_size, "Neumann.step_size")

    def solve(self, hvp: LinearMap, gradient: PyTree, carry: PyTree) -> Solution:
        def add_term(_: Array, sum_and_term: tuple[PyTree, PyTree]) -> tuple[PyTree, PyTree]:
            total, term = sum_and_term
            term = trees.scaled_add(term, -self.step_size, hvp(term))
            return jax.tree.map(jnp.add, total, term), term

        total, _ = jax.lax.fori_loop(0, self.terms - 1, add_term, (gradient, gradient))
        return Solution(_scaled(total, self.step_size), carry, self.terms - 1)


class FixedPoint(Implicit):
    """Differentiate the fixed point y = Phi(x, y) of the gradient map Phi = y - eta grad_y g.

    The adjoint u = (d_y Phi)^T u + grad_y f is iterated until it moves by less than the tolerance,
    and the hypergradient is grad_x f + (d_x Phi)^T u. With eta u = v this is H v = grad_y f again,
    so the residual means the same; unlike `Neumann` the number of steps follows the tolerance.
    """

    step_size: Array
    max_steps: int = eqx.field(static=True)
    rtol: float | None = eqx.field(static=True)

    def __init__(self, step_size: float | Array, max_steps: int = 1000, rtol: float | None = None):
        self.step_size = validation.positive_number(step_size, "FixedPoint.step_size")
        self.max_steps = validation.count(max_steps, "FixedPoint.max_steps")
        if rtol is not None and not (isinstance(rtol, int | float) and 0 < rtol < 1):
            raise ValueError(f"FixedPoint.rtol must be a number in (0, 1), but got {rtol!r}.")
        self.rtol = rtol

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
        return Solution(_scaled(u, self.step_size), carry, steps)


def _scaled(tree: PyTree, scale: Array) -> PyTree:
    return jax.tree.map(lambda leaf: scale.astype(leaf.dtype) * leaf, tree)
