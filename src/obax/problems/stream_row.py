"""Rows of a stream as a bilevel problem, which the models of `obax.estimators` solve.

Features a (standardised, with a 1 for the intercept), weights y, one line for each output; x holds
the logarithms of penalty, inertia, memory, class weights and (as they are) logit shifts. When row t
arrives the follower loses

    g_t(x, y) = weight * loss(y . a_t + shift, target_t) + penalty/2 |y|^2,

and is tied to where it was, y_t, by

    D_t(x, y, y_t) = forgetting/2 |y - y_t|^2_{A_t} + inertia/2 |y - y_t|^2,

forgetting = memory / (1 + memory). A_t, the curvature of the rows before, is kept in buffers and
depends on x as the weights do. The leader's loss is that of the prediction made before the row is
learned: with weights y_t, drawn to zero by the penalty in the metric of D_t, and with a logit of
variance v divided by sqrt(1 + pi v / 8).

`obax.RTHO(problem, step_size, proximal=problem.tie)` learns from such rows. The estimators run a
native engine, written separately; tests compare the two.
"""

import math
from collections.abc import Callable
from typing import Annotated, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._support.checks import Count, Positive, checked, one_of
from ..problem import Problem

Loss = Annotated[str, one_of("logistic", "squared", "huber")]


class StreamRow(NamedTuple):
    """A round."""

    features: Float[Array, " d"]
    """Standardised, with a 1 for the intercept at the end."""
    target: Float[Array, ""]
    """A number, or the index of a class."""
    importance: Float[Array, ""]
    """The weight of the row in the leader's loss; 1 unless classes are balanced."""
    weight: Float[Array, ""] | None = None
    """The weight of its loss in the follower's; 1 if it is left out."""


class RowsBefore(NamedTuple):
    """The buffers: what is kept of the rows before, zero at the start."""

    curvature: Float[Array, "d d"]
    """One for all outputs."""


class Hyper(NamedTuple):
    """The hyperparameters that x holds."""

    penalty: Float[Array, " p"]
    inertia: Float[Array, ""]
    forgetting: Float[Array, ""]
    class_weights: Float[Array, " C"]
    logit_shifts: Float[Array, " C"]

    def ridge(self, d: int) -> Float[Array, " d"]:
        """Return the penalty of each weight; the intercept has none."""
        return jnp.broadcast_to(self.penalty, d - 1)

    def metric(self, past: RowsBefore) -> Float[Array, "d d"]:
        """Return the metric of D_t."""
        tied = self.inertia * jnp.eye(len(past.curvature), dtype=past.curvature.dtype)
        return self.forgetting * past.curvature + tied


class RowProblem(Problem):
    """A problem of rows, with the term that ties the weights to their last values."""

    tie: Callable[..., Float[Array, ""]] = eqx.field(static=True, kw_only=True)
    """D_t: `(x, y, start, row, past) -> scalar`, for `obax.RTHO(..., proximal=)`."""


@checked
def stream_row(
    loss: Loss = "logistic",
    *,
    classes: Count = 2,
    penalties: Count = 1,
    delta: Positive = 1.345,
    columns: Callable[[Array, Array], Array] | None = None,
) -> RowProblem:
    """Return the problem of a row; a round is a `StreamRow`, the buffers are `RowsBefore`.

    **Arguments:**

    - `loss`: `"logistic"`, with one output for two `classes` and one for each of more; `"squared"`;
      `"huber"`, linear beyond `delta`.
    - `penalties`: 1, or one for each feature.
    - `columns`: `(extra, features) -> a`, for features whose expansion depends on hyperparameters:
      `extra` are the last entries of x.

    >>> problem = stream_row("squared")
    >>> row = StreamRow(jnp.array([2.0, 1.0]), jnp.array(3.0), jnp.array(1.0))
    >>> past, x, y = RowsBefore(jnp.zeros((2, 2))), jnp.zeros(3), jnp.ones((1, 2))
    >>> value, after = problem.inner(x, y, row, past)
    >>> print(value, problem.tie(x, y, 0 * y, row, past))  # penalty on one weight, inertia on two
    0.5 1.0
    """
    slots = classes if loss == "logistic" else 0

    ends = np.cumsum([penalties, 1, 1, slots, slots]).tolist()

    def hyper(x: Array) -> Hyper:
        penalty, inertia, memory, weights, shifts, _ = jnp.split(x, ends)
        forgetting = jax.nn.sigmoid(memory[0])
        return Hyper(jnp.exp(penalty), jnp.exp(inertia[0]), forgetting, jnp.exp(weights), shifts)

    def expanded(x: Array, row: StreamRow) -> Array:
        return row.features if columns is None else columns(x[ends[-1] :], row.features)

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

    def trained_cost(z: Array, now: Hyper, target: Array) -> Array:
        # The class weight and the logit adjustment are only for training.
        if not slots:
            return cost(z, target)
        shift = now.logit_shifts
        if slots <= 2:
            shift = shift[1:] - shift[:1]
        return now.class_weights[target.astype(jnp.int32)] * cost(z + shift, target)

    def inner(x: Array, y: Array, row: StreamRow, past: RowsBefore) -> tuple[Array, RowsBefore]:
        now, a, target = hyper(x), expanded(x, row), row.target
        z, weight = y @ a, 1.0 if row.weight is None else row.weight
        ridge = 0.5 * jnp.sum(now.ridge(len(a)) * y[:, :-1] ** 2)
        value = weight * trained_cost(z, now, target) + ridge
        # One number for all outputs.
        bend = weight * jnp.mean(jnp.diagonal(jax.hessian(trained_cost)(z, now, target)))
        curvature = now.forgetting * past.curvature + bend * jnp.outer(a, a)
        return value, RowsBefore(curvature)

    def tie(x: Array, y: Array, start: Array, row: StreamRow, past: RowsBefore) -> Array:
        gap = y - start
        return 0.5 * jnp.einsum("ki,ij,kj->", gap, hyper(x).metric(past), gap)

    def outer(x: Array, y: Array, row: StreamRow, past: RowsBefore) -> Array:
        now, a = hyper(x), expanded(x, row)
        ridge = jnp.pad(now.ridge(len(a)), (0, 1))
        quadratic = now.metric(past) + jnp.diag(ridge)
        drawn = jnp.linalg.solve(quadratic, (ridge * y).T).T
        z = (y - drawn) @ a
        if slots:
            z = z / jnp.sqrt(1 + math.pi / 8 * a @ jnp.linalg.solve(quadratic, a))
        return row.importance * cost(z, row.target)

    return RowProblem(outer, inner, has_buffers=True, tie=tie)
