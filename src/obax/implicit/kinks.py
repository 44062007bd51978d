"""Minima at kinks, where phi is continuous and its gradient jumps.

With a set Y the follower's face changes with x, and phi has kinks there. Newton stops beside a
minimum at one. `descend_to_kink` continues by gradient sampling (Burke, Lewis and Overton, 2005):
the shortest convex combination of gradients at points around x is a direction of descent on both
sides of a kink, and where it is short x is stationary at the size of the sample, which shrinks.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int

from ..domain import Simplex
from .minimise import Matrix, Project, Scalar, Vector
from .newton import quadratic_program

SAMPLES, LENGTHS, MOST_TURNS = 32, 12, 100
# The sample shrinks from this share of the region searched to the other one.
LARGEST, SMALLEST = 1e-2, 1e-10


class Kink(NamedTuple):
    """Last point of the search; an upper bound on how far phi is above its minimum over the region
    there, which is right if phi is convex."""

    point: Vector
    value: Scalar
    above: Scalar


def descend_to_kink(
    slope_at: Callable[[Vector], tuple[Scalar, Vector]],
    project: Project,
    start: Vector,
    extent: Scalar,
    wanted: Bool[Array, ""],
) -> Kink:
    """Continue from `start` if wanted. `slope_at` returns phi and its gradient; `extent` is the
    diameter of the region searched."""
    dim, dtype = start.size, start.dtype
    # Drawn anew in every turn: no fixed set of points meets all faces of a kink.
    normal = np.random.default_rng(0).standard_normal((MOST_TURNS, min(2 * dim, SAMPLES), dim))
    draws = jnp.asarray(normal / np.linalg.norm(normal, axis=2, keepdims=True), dtype)
    lengths = jnp.asarray(2.0 ** -np.arange(LENGTHS), dtype)

    class State(NamedTuple):
        kink: Kink
        radius: Scalar
        turns: Int[Array, ""]

    def turn(s: State) -> State:
        x, _, above = s.kink
        points = jax.vmap(project)(jnp.concatenate([x[None], x + s.radius * draws[s.turns]]))
        values, slopes = jax.lax.map(slope_at, points)
        value, shares = values[0], shortest(slopes)
        slope = shares @ slopes
        size = jnp.linalg.norm(slope)
        # Tangents lie below a convex phi, and so does every mean of them.
        mean = shares @ (values - jnp.sum(slopes * (points - x), axis=1))
        above = jnp.minimum(above, jnp.maximum(value - mean, 0) + size * extent)
        steps = 16 * s.radius * lengths / jnp.where(size > 0, size, 1)
        tried = jax.vmap(project)(x - steps[:, None] * slope)
        reached = jax.lax.map(lambda z: slope_at(z)[0], tried)
        reached = jnp.where(jnp.isnan(reached), jnp.inf, reached)
        best = jnp.argmin(reached)
        fell = value - reached[best] > 1e-4 * steps[best] * size**2
        # As far below as x has come, the minimum is nearer.
        above = jnp.where(fell, above - (value - reached[best]), above)
        x, value = jnp.where(fell, tried[best], x), jnp.where(fell, reached[best], value)
        return State(Kink(x, value, above), jnp.where(fell, s.radius, s.radius / 4), s.turns + 1)

    def unfinished(s: State) -> Bool[Array, ""]:
        return wanted & (s.radius > SMALLEST * extent) & (s.turns < MOST_TURNS)

    value = jax.eval_shape(slope_at, start)[0].dtype
    nowhere = jnp.full((), jnp.inf, value)
    first = State(Kink(start, nowhere, nowhere), LARGEST * extent, jnp.asarray(0))
    return jax.lax.while_loop(unfinished, turn, first).kink


def shortest(vectors: Matrix) -> Vector:
    """Return the shares of the shortest convex combination of vectors, the rows of a matrix."""
    inner = vectors @ vectors.T
    inner = inner / jnp.maximum(jnp.max(jnp.abs(inner)), jnp.finfo(inner.dtype).tiny)
    even = jnp.full(len(vectors), 1 / len(vectors), vectors.dtype)
    damping = jnp.asarray(8 * jnp.finfo(inner.dtype).eps, inner.dtype)
    return quadratic_program(Simplex().project, even, inner @ even, inner, damping)
