"""A follower that learns from a round, and its derivative along directions of x: for RTHO.

`along` are the directions in which x and the follower that meets the round move, stacked on a first
axis; what comes out has the same axis.
"""

from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float

from .._support import trees
from .._support.trees import PyTree
from ..implicit import Model, Scalar, Vector, minimise, newton_point
from .descent import Follower

MOST_STEPS = 100
"""Of damped Newton; a handful is enough for most rounds."""
MOST_NUMBERS = 10_000_000
"""That S, or the Hessian of a proximal step, may have."""
Along = tuple[PyTree, Follower]


class Learned(NamedTuple):
    """The follower after a round, its derivative, and the oracle calls that they took."""

    follower: Follower
    moved: Follower
    gradients: int | Array
    hvps: int | Array
    cross_products: int | Array
    residual: float | Array = 0.0


def moving(follower: Follower) -> Follower:
    """Return what of a follower is differentiated: its floating arrays, and no counts of an
    optimiser."""
    floats: Follower = eqx.filter(follower, eqx.is_inexact_array)
    return floats


def size(tree: PyTree) -> int:
    """Return how many numbers a tree has."""
    return sum(leaf.size for leaf in jax.tree.leaves(tree))


def at_rest(x: PyTree, follower: Follower, *, squared: bool) -> Follower:
    """Return S before the first round. Raise a `ValueError` if it, or with `squared` a matrix over
    the follower's own numbers, would be too large."""
    floats = moving(follower)
    name, most, numbers, lines = "outer_var", size(x), size(floats), size(x)
    own = size(floats.inner_var)
    if squared and own * own > most * numbers:
        name, most, numbers = "inner_var", own, own
    if most * numbers > MOST_NUMBERS:
        raise ValueError(
            f"{name} must be small enough for a matrix of at most {MOST_NUMBERS:,} numbers, which "
            f"RTHO keeps, but that would be {most:,} x {numbers:,}; use obax.SOBOW."
        )
    return jax.tree.map(lambda leaf: jnp.zeros((lines, *leaf.shape), leaf.dtype), floats)


def directions(x: PyTree) -> PyTree:
    """Return a direction for each entry of x, stacked on a first axis."""
    flat, unravel = ravel_pytree(x)
    return jax.vmap(unravel)(jnp.eye(flat.size, dtype=flat.dtype))


def pulled_back(
    loss: Callable[[PyTree, Follower], Array], x: PyTree, follower: Follower, moved: Follower
) -> PyTree:
    """Return the derivative of a loss in x: directly, and through what of the follower depends on
    x."""

    def at(x: PyTree, floats: Follower) -> Array:
        return loss(x, eqx.combine(floats, follower))

    slope_x, slope = jax.grad(at, argnums=(0, 1))(x, moving(follower))
    flat, unravel = ravel_pytree(slope_x)
    along = jax.vmap(lambda s: trees.vdot(s, slope))(moved)
    return unravel(flat + along.astype(flat.dtype))


def faded(moved: Follower, factor: Array) -> Follower:
    """Return S times a factor. The derivative of buffers stays: they forget by themselves."""
    less = jax.tree.map(lambda leaf: factor.astype(leaf.dtype) * leaf, moved)
    return less._replace(buffers=moved.buffers)


def descended(
    learn: Callable[[PyTree, Follower], Follower],
    x: PyTree,
    before: Follower,
    along: Along,
    steps: int | Array,
) -> Learned:
    """Return the follower after the gradient steps of `learn`, with forward derivatives through
    them."""

    def both(x: PyTree, floats: Follower) -> tuple[Follower, Follower]:
        after = learn(x, eqx.combine(floats, before))
        return moving(after), after

    def push(*direction: PyTree) -> tuple[Follower, Follower, Follower]:
        return jax.jvp(both, (x, moving(before)), direction, has_aux=True)

    # What does not depend on the direction comes out once.
    _, moved, after = jax.vmap(push, out_axes=(None, 0, None))(*along)
    return Learned(after, moved, steps, steps * size(x), steps * size(x))


def nearest(
    loss: Callable[..., tuple[Float[Array, ""], PyTree]],
    x: PyTree,
    before: Follower,
    along: Along,
) -> Learned:
    """Return the follower at u* = argmin_u loss(x, u, start, buffers), found by damped Newton steps
    with the whole Hessian.

    `loss` also gives the buffers after it. By the implicit function theorem u* moves by
    -H^{-1} d(grad_u loss), where d is along (x, start, buffers).
    """
    start = before.inner_var
    begin, unravel = ravel_pytree(start)
    floats, rest = eqx.partition(before.buffers, eqx.is_inexact_array)

    def at(u: Vector, x: PyTree, start: PyTree, floats: PyTree) -> tuple[Array, PyTree]:
        return loss(x, unravel(u), start, eqx.combine(floats, rest))

    def slope(u: Vector, *now: PyTree) -> Vector:
        return jax.grad(at, has_aux=True)(u, *now)[0]

    def kept(u: Vector, *now: PyTree) -> PyTree:
        return eqx.filter(at(u, *now)[1], eqx.is_inexact_array)

    now = x, start, floats

    def evaluate(u: Vector) -> Model:
        (value, buffers), gradient = jax.value_and_grad(at, has_aux=True)(u, *now)
        hessian = jax.jacfwd(slope)(u, *now)
        return Model(value, gradient, hessian, jnp.linalg.norm(hessian @ u), buffers)

    def propose(u: Vector, model: Model, damping: Scalar) -> Vector:
        assert model.hessian is not None
        return newton_point(u, model.gradient, model.hessian, damping)

    tolerance = 100 * float(jnp.finfo(begin.dtype).eps)
    minimum = minimise(evaluate, propose, begin, tolerance=tolerance, max_steps=MOST_STEPS)
    # NaN where the Hessian is not positive definite: then u* is no minimum, and the guard sees it.
    factor = jax.scipy.linalg.cho_factor(jnp.asarray(minimum.model.hessian))

    def push(*direction: PyTree) -> tuple[Vector, PyTree]:
        pushed = jax.jvp(lambda *now: slope(minimum.point, *now), now, direction)[1]
        answer = -jax.scipy.linalg.cho_solve(factor, pushed)
        return unravel(answer), jax.jvp(kept, (minimum.point, *now), (answer, *direction))[1]

    answers, buffers = jax.vmap(push)(along[0], along[1].inner_var, along[1].buffers)
    after = before._replace(inner_var=unravel(minimum.point), buffers=minimum.model.extra)
    moved = along[1]._replace(inner_var=answers, buffers=buffers)
    evaluations = minimum.steps + 1
    return Learned(after, moved, evaluations, evaluations * begin.size, size(x), minimum.residual)
