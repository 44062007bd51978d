"""Conjugate gradients, over any pytree, for symmetric positive definite systems."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from .._support import trees
from .._support.trees import PyTree

LinearMap = Callable[[PyTree], PyTree]
Vector = Float[Array, " d"]

# A system that rounding keeps from its tolerance is given up after this many products.
MOST_PRODUCTS = 10_000
RESTARTS = 3


def conjugate_gradients(
    product: LinearMap, v: PyTree, left: PyTree, enough: Array, budget: int
) -> tuple[PyTree, Int[Array, ""]]:
    """Return v + the solution of H u = left, until |left|^2 <= enough, and the number of products.

    Written by hand because lineax's CG takes p^T H p < 100 eps d |p|^2 for a breakdown and returns
    NaN: in float32 that is every follower with more than about 10^5 parameters of unit curvature.
    Here only a direction without positive curvature ends the loop, at the best v so far.
    """

    def unfinished(now: tuple) -> Array:
        step, go, _, _, _, size = now
        return go & (step < budget) & (size > enough)

    def one(now: tuple) -> tuple:
        step, _, v, left, direction, size = now
        bent = product(direction)
        curvature = trees.vdot(direction, bent)
        # Not `> 0`: a NaN must reach v, where callers check for it.
        go = ~(curvature <= 0)
        length = jnp.where(go, size / jnp.where(go, curvature, 1), 0)
        v = trees.scaled_add(v, length, direction)
        left = trees.scaled_add(left, -length, bent)
        new_size = trees.squared_norm(left)
        direction = trees.scaled_add(left, new_size / size, direction)
        return step + 1, go, v, left, direction, new_size

    size = trees.squared_norm(left)
    # A right-hand side that is not finite must not look like a solved system.
    v = jax.tree.map(lambda leaf: jnp.where(jnp.isfinite(size), leaf, jnp.nan), v)
    start = (jnp.asarray(0, jnp.int32), jnp.asarray(True), v, left, left, size)
    steps, _, v, *_ = jax.lax.while_loop(unfinished, one, start)
    return v, steps


def solve_definite(product: LinearMap, rhs: Vector) -> Vector:
    """Return H^{-1} rhs for H symmetric and positive definite, about as exactly as rounding allows.

    The residual of the recursion drifts away from the true one where H is ill-conditioned. So the
    true residual is computed and solved for again, a few times.
    """
    tolerance = 10 * float(jnp.finfo(rhs.dtype).eps)
    enough = tolerance**2 * jnp.vdot(rhs, rhs)
    budget = min(10 * rhs.size, MOST_PRODUCTS)

    def refine(_: Array, v: Array) -> Array:
        return conjugate_gradients(product, v, rhs - product(v), enough, budget)[0]

    return jax.lax.fori_loop(0, RESTARTS, refine, jnp.zeros_like(rhs))
