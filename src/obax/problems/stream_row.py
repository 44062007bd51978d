"""A row of a stream as a bilevel problem: what the models of `obax.estimators` solve.

Features a (standardised, with a 1 for the intercept), weights y, one line for each output; x holds
the logarithms of penalty, inertia, memory, class weights and (as they are) logit shifts. When row t
arrives the follower solves

    g_t(x, y) = weight * loss(y . a_t + shift, target_t)
                + forgetting/2 |y - y_t|^2_{A_t} + inertia/2 |y - y_t|^2 + penalty/2 |y|^2,

where forgetting = memory / (1 + memory), and y_t and A_t, which rows before have left, move with x:
y_t by the sensitivity and A_t by the slope that are carried along.

The estimators run a native kernel that has none of this as it stands here; the tests hold the one
against the other.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._support import validation
from ..problem import Problem

LOSSES = ("logistic", "squared", "huber")


class StreamRow(NamedTuple):
    """A round: a row, and what the rows before it have left."""

    features: Float[Array, " d"]
    """Standardised, with a 1 for the intercept at the end."""
    target: Float[Array, ""]
    """A number, or the index of a class."""
    importance: Float[Array, ""]
    """The weight of the row in the leader's loss; 1 unless classes are balanced."""
    x: Float[Array, " n"]
    """Where the leader stands."""
    weights: Float[Array, "K d"]
    curvature: Float[Array, "d d"]
    """One for all outputs."""
    curvature_slope: Float[Array, "n d d"]
    """d curvature / dx; in the place of memory d curvature / d forgetting."""
    sensitivity: Float[Array, "n K d"]
    """d weights / dx."""


class Hyper(NamedTuple):
    """What x stands for."""

    penalty: Float[Array, " p"]
    inertia: Float[Array, ""]
    forgetting: Float[Array, ""]
    class_weights: Float[Array, " C"]
    logit_shifts: Float[Array, " C"]


def stream_row(
    loss: str = "logistic", *, classes: int = 2, penalties: int = 1, delta: float = 1.345
) -> Problem:
    """The problem of a row; a round is a `StreamRow`.

    **Arguments:**

    - `loss`: `"logistic"`, with one output for two `classes` and one for each of more; `"squared"`;
      `"huber"`, linear beyond `delta`.
    - `penalties`: 1, or one for each feature.

    The outer loss is that of the row at given weights.

    >>> row = StreamRow(
    ...     jnp.array([2.0, 1.0]), jnp.array(3.0), jnp.array(1.0), jnp.zeros(3),
    ...     *(jnp.zeros(shape) for shape in ((1, 2), (2, 2), (3, 2, 2), (3, 1, 2))),
    ... )
    >>> problem = stream_row("squared")
    >>> print(problem.outer(row.x, jnp.ones((1, 2)), row))
    0.0
    >>> print(problem.inner(row.x, jnp.ones((1, 2)), row))  # inertia on two weights, penalty on one
    1.5
    """
    validation.one_of(loss, LOSSES, "loss")
    validation.count(classes, "classes")
    validation.count(penalties, "penalties")
    slots = classes if loss == "logistic" else 0

    def hyper(x: Array) -> Hyper:
        ends = (penalties, penalties + 1, penalties + 2, penalties + 2 + slots)
        penalty, inertia, memory, weights, shifts = jnp.split(x, ends)
        forgetting = jax.nn.sigmoid(memory[0])
        return Hyper(jnp.exp(penalty), jnp.exp(inertia[0]), forgetting, jnp.exp(weights), shifts)

    def cost(z: Array, target: Array) -> Array:
        if loss == "squared":
            return 0.5 * (z[0] - target) ** 2
        if loss == "huber":
            error = jnp.abs(z[0] - target)
            inside = jnp.minimum(error, delta)
            return inside * (error - 0.5 * inside)
        if slots <= 2:
            return jax.nn.softplus(jnp.where(target > 0, -z[0], z[0]))
        return -jax.nn.log_softmax(z)[target.astype(jnp.int32)]

    def trained_cost(now: Hyper, z: Array, target: Array) -> Array:
        """With the class weight and the logit adjustment, which only training has."""
        if not slots:
            return cost(z, target)
        shift = now.logit_shifts
        if slots <= 2:
            shift = shift[1:] - shift[:1]
        return now.class_weights[target.astype(jnp.int32)] * cost(z + shift, target)

    def inner(x: Array, y: Array, row: StreamRow) -> Array:
        now, before = hyper(x), hyper(row.x)
        start = row.weights + jnp.tensordot(x - row.x, row.sensitivity, axes=1)
        moved = (x - row.x).at[penalties + 1].set(now.forgetting - before.forgetting)
        curvature = row.curvature + jnp.tensordot(moved, row.curvature_slope, axes=1)
        gap = y - start
        window = jnp.einsum("ki,ij,kj->", gap, curvature, gap)
        ridge = jnp.sum(now.penalty * y[:, :-1] ** 2)
        return (
            trained_cost(now, y @ row.features, row.target)
            + 0.5 * now.forgetting * window
            + 0.5 * now.inertia * jnp.sum(gap**2)
            + 0.5 * ridge
        )

    def outer(x: Array, y: Array, row: StreamRow) -> Array:
        return row.importance * cost(y @ row.features, row.target)

    return Problem(outer, inner)
