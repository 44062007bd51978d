"""The bilevel problem of a row: what the model minimises, and how its answer moves with the
hyperparameters.

Features a (standardised, with a 1 for the intercept), weights y, one vector for each output. When
row t arrives the follower solves

    g_t(x, y) = loss(y . a_t, target_t)
                + forgetting/2 |y - y_t|^2_{A_t} + inertia/2 |y - y_t|^2 + penalty/2 |y|^2

- A_t = sum_i forgetting^(t-1-i) h_i a_i a_i' is the curvature of the *weighted window* of past rows
  around the weights that fit it. It has d^2 numbers however long the memory is.
- `inertia` ties the model to where it was, `penalty` (L2, not on the intercept) draws it to zero.
- For squared loss with inertia = penalty = 0 this is recursive least squares, exactly.

The leader's loss of the row is that of the prediction *before* the row is learned: test, then
train. It depends on x through all earlier followers, so each row carries the sensitivity
S_t = dy_t/dx along: the implicit function theorem, applied to g_t, gives S_{t+1} from S_t. That
is the hypergradient of OAGD with the past in it; `problem` states a row as an `obax.Problem`, and
the tests hold the two against each other.

Quadratic part first, then the row: with L = forgetting A + inertia I + penalty D (D: identity
without the intercept) the row enters through z0 = c . a and v = a' L^-1 a alone, so
`losses.*.start` solves for K numbers instead of K d.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import jax.scipy as jsp
from jaxtyping import Array, Float

from ..problem import Problem
from .losses import ClassLoss, Loss, moderated

stop = jax.lax.stop_gradient
ABSENT = -1e4
INVERTED = 20
"""Up to this width an explicit inverse is the quickest way to solve for several columns."""


class Hyper(NamedTuple):
    """The hyperparameters of a row, as the mathematics has them."""

    penalty: Float[Array, " d"]
    inertia: Float[Array, ""]
    forgetting: Float[Array, ""]
    class_weights: Float[Array, " C"]
    logit_shifts: Float[Array, " C"]


class Past(NamedTuple):
    """What the follower keeps of the rows before: weights, curvature, and their sensitivities."""

    weights: Float[Array, "K d"]
    curvature: Float[Array, "K d d"]
    curvature_slope: Float[Array, "K d d"]
    """d curvature / d forgetting."""
    sensitivity: Float[Array, "n K d"]
    """d weights / d (learned entries of x)."""


class Sample(NamedTuple):
    """A standardised row, and which outputs exist yet."""

    features: Float[Array, " d"]
    target: Float[Array, ""]
    importance: Float[Array, ""]
    """The weight of the row in the leader's loss; 1 unless classes are balanced."""
    present: Float[Array, " K"]


class Learned(NamedTuple):
    """A row after test and train."""

    past: Past
    outputs: Float[Array, " K"]
    loss: Float[Array, ""]
    hypergradient: Float[Array, " n"]


def sample_step(
    loss: Loss,
    solver: str,
    steps: int,
    hyper: Callable[[Array], Hyper],
    x: Float[Array, " n"],
    past: Past,
    row: Sample,
    horizon: float | Float[Array, ""],
) -> Learned:
    """Test on a row, then train on it; with the derivatives of both in x.

    `x` holds the learned entries only; `hyper` fills in the others. `horizon`, just below 1, is how
    much of the sensitivity outlives a row: hyperparameters move, so old sensitivities are stale.
    """
    a = row.features

    def play(x: Array) -> tuple[tuple[Array, Array], tuple]:
        now = hyper(x)
        moved = x - stop(x)
        weights = past.weights + jnp.tensordot(moved, past.sensitivity, axes=1)
        ridge = now.penalty.at[-1].set(0)
        drift = now.forgetting - stop(now.forgetting)

        def apply(u: Array) -> Array:
            """L u, two vectors for each output; A moves with the forgetting factor."""
            curved, tilted = past.curvature @ u, past.curvature_slope @ u
            damping = (now.inertia + ridge)[:, None]
            return now.forgetting * (curved + drift * tilted) + damping * u

        fixed = stop(now)
        fixed_solve = _solver(solver, steps, past.curvature, fixed, stop(ridge))
        # L c = (L - ridge) y_t. The derivative of a solution is L^-1 (db - dL u).
        sides = jnp.stack([ridge * weights, jnp.broadcast_to(a, weights.shape)], axis=2)
        solved = jax.lax.custom_linear_solve(
            apply, sides, lambda _, b: fixed_solve(b), symmetric=True
        )
        centre, spread = weights - solved[..., 0], solved[..., 1]
        v = jnp.where(row.present > 0, spread @ a, 0)
        z0 = jnp.where(row.present > 0, centre @ a, ABSENT if loss.classify else 0)
        outputs = moderated(loss, z0, v)
        suffered = row.importance * loss.loss(outputs, row.target)

        # Train: z* and with it y* = c + L^-1 a slope(z*).
        weight, shift = _of_target(loss, now, row.target)
        root = loss.start(*stop((z0, v)), row.target, *stop((weight, shift)))
        z = loss.refine(root, z0, v, row.target, weight, shift)
        new = centre + spread * (weight * loss.slope(z + shift, row.target))[:, None]
        bend = jnp.where(row.present > 0, weight * loss.curvature(z + shift, row.target), 0)
        curvature = fixed.forgetting * past.curvature + bend[:, None, None] * (a[:, None] * a)
        slope = past.curvature + fixed.forgetting * past.curvature_slope
        return (suffered, new), stop((suffered, new, curvature, slope, outputs))

    (hypergradient, sensitivity), found = jax.jacfwd(play, has_aux=True)(x)
    suffered, new, curvature, slope, outputs = found
    # jacfwd puts the direction last.
    sensitivity = horizon * jnp.moveaxis(sensitivity, -1, 0)
    return Learned(Past(new, curvature, slope, sensitivity), outputs, suffered, hypergradient)


def problem(loss: Loss, hyper: Callable[[Array], Hyper]) -> Problem:
    """A row as a bilevel problem in the sense of `obax.Problem`.

    A round is `(past, x_t, row)`; the losses are written out from the definition above, for
    checks, with none of the algebra of `sample_step`. The inner loss is that of learning the row,
    the outer loss that of the same row at given weights.
    """

    def inner(x: Array, y: Array, round: tuple[Past, Array, Sample]) -> Array:
        past, x_t, row = round
        now, before = hyper(x), hyper(x_t)
        start = past.weights + jnp.tensordot(x - x_t, past.sensitivity, axes=1)
        curvature = past.curvature + past.curvature_slope * (now.forgetting - before.forgetting)
        gap = y - start
        weight, shift = _of_target(loss, now, row.target)
        window = jnp.einsum("ki,kij,kj->", gap, curvature, gap)
        ridge = jnp.sum(now.penalty[:-1] * y[:, :-1] ** 2)
        return (
            weight * loss.loss(y @ row.features + shift, row.target)
            + 0.5 * now.forgetting * window
            + 0.5 * now.inertia * jnp.sum(gap**2)
            + 0.5 * ridge
        )

    def outer(x: Array, y: Array, round: tuple[Past, Array, Sample]) -> Array:
        _, _, row = round
        return row.importance * loss.loss(y @ row.features, row.target)

    return Problem(outer, inner)


def _of_target(loss: Loss, now: Hyper, target: Array) -> tuple[Array, Array]:
    """The class weight of this row and the shifts of the outputs; neutral for regression."""
    if not isinstance(loss, ClassLoss):
        return jnp.ones_like(target), jnp.zeros_like(target)
    return now.class_weights[target.astype(jnp.int32)], loss.shift(now.logit_shifts)


def _solver(
    kind: str, steps: int, curvature: Array, now: Hyper, ridge: Array
) -> Callable[[Array], Array]:
    """b -> L^-1 b for some columns b of each output, with L fixed."""
    width = curvature.shape[-1]
    eye = jnp.eye(width, dtype=curvature.dtype)
    matrix = now.forgetting * curvature + (now.inertia + ridge) * eye
    if kind == "cholesky":
        # What rounding has taken from the smallest eigenvalue.
        size = jnp.trace(matrix, axis1=1, axis2=2)[:, None, None]
        rounding = 4 * float(jnp.finfo(matrix.dtype).eps)
        lower = jnp.linalg.cholesky(matrix + rounding * size * eye)
        if width > INVERTED:
            return lambda b: jsp.linalg.cho_solve((lower, True), b)
        half = jsp.linalg.solve_triangular(lower, jnp.broadcast_to(eye, matrix.shape), lower=True)
        inverse = jnp.swapaxes(half, 1, 2) @ half
        return lambda b: inverse @ b

    diagonal = jnp.diagonal(matrix, axis1=1, axis2=2)[..., None]
    if kind == "cg":
        return lambda b: _conjugate_gradients(matrix, diagonal, b, steps)
    # Gradient steps on u' L u / 2 - b' u, scaled by the diagonal; Gershgorin bounds the rest.
    rows = jnp.sum(jnp.abs(matrix), axis=2, keepdims=True) / diagonal
    rate = 1 / (jnp.max(rows, axis=1, keepdims=True) * diagonal)

    def descend(b: Array) -> Array:
        step = lambda _, u: u + rate * (b - matrix @ u)  # noqa: E731
        return jax.lax.fori_loop(0, steps, step, b / diagonal)

    return descend


def _conjugate_gradients(matrix: Array, diagonal: Array, b: Array, steps: int) -> Array:
    """Preconditioned by the diagonal, all columns side by side, a fixed number of steps."""
    tiny = float(jnp.finfo(b.dtype).tiny)

    def step(_: int, now: tuple) -> tuple:
        u, left, direction, size = now
        product = matrix @ direction
        along = jnp.sum(direction * product, axis=1, keepdims=True)
        move = jnp.where(along > tiny, size / jnp.maximum(along, tiny), 0)
        u, left = u + move * direction, left - move * product
        scaled = left / diagonal
        new = jnp.sum(left * scaled, axis=1, keepdims=True)
        keep = jnp.where(size > tiny, new / jnp.maximum(size, tiny), 0)
        return u, left, scaled + keep * direction, new

    start = b / diagonal
    size = jnp.sum(b * start, axis=1, keepdims=True)
    return jax.lax.fori_loop(0, steps, step, (jnp.zeros_like(b), b, start, size))[0]
