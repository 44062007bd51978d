"""The time-averaged hypergradient of Definition 1, from estimates of its terms.

    grad~F_{t,u} = (1/W) sum_{i<w} u_i (grad_x f_{t-i} + M grad_y f_{t-i}),

with M = M_{t-i} for own curvature (`average_of_terms`). For current curvature, M = M_t, and for
that of the window, M of `average_inner`, the outer gradients can be averaged first
(`average_of_gradients`) and one system is left to solve.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int

from .._tree import PyTree
from ..problem import Problem
from ..window import Window
from ._base import Estimate, Inner

OuterGradient = tuple[PyTree, PyTree]


def outer_gradient(
    problem: Problem, outer_var: PyTree, inner_var: PyTree, round: PyTree, buffers: PyTree
) -> OuterGradient:
    """(grad_x f, grad_y f); the second is `None` without a follower."""
    if inner_var is None:
        return jax.grad(problem.outer_loss)(outer_var, None, round, buffers), None
    return jax.grad(problem.outer_loss, argnums=(0, 1))(outer_var, inner_var, round, buffers)


def average_of_gradients(
    problem: Problem,
    window: Window,
    outer_var: PyTree,
    inner_var: PyTree,
    rounds: PyTree,
    buffers: PyTree,
    t: Int[Array, ""],
) -> OuterGradient:
    """(1/W) sum_i u_i (grad_x f_{t-i}, grad_y f_{t-i}), in one pass and without w copies of y."""
    average = _average(problem.outer_loss, window, rounds, buffers, t)
    if inner_var is None:
        return jax.grad(average)(outer_var, None), None
    return jax.grad(average, argnums=(0, 1))(outer_var, inner_var)


def average_inner(
    problem: Problem, window: Window, rounds: PyTree, buffers: PyTree, t: Int[Array, ""]
) -> Inner:
    """(x, y) -> (1/W) sum_i u_i g_{t-i}(x, y)."""

    def loss(outer_var: PyTree, inner_var: PyTree, round: PyTree, buffers: PyTree) -> Array:
        return problem.inner_loss(outer_var, inner_var, round, buffers)[0]

    return _average(loss, window, rounds, buffers, t)


def _average(
    loss: Callable[..., Array], window: Window, rounds: PyTree, buffers: PyTree, t: Int[Array, ""]
) -> Inner:
    share, seen = window.shares(t)

    def fill(stacked: Array) -> Array:
        return jnp.where(seen.reshape((-1,) + (1,) * (stacked.ndim - 1)), stacked, stacked[-1])

    # Empty slots stand in as copies of the current round: a NaN behind a zero weight would still
    # reach the derivatives.
    filled = jax.tree.map(fill, rounds)

    def average(outer_var: PyTree, inner_var: PyTree) -> Array:
        losses = window.map(lambda one: loss(outer_var, inner_var, one, buffers), filled)
        return jnp.sum(share.astype(losses.dtype) * losses)

    return average


def average_of_terms(
    window: Window,
    term: Callable[[PyTree, PyTree], tuple[Estimate, PyTree]],
    rounds: PyTree,
    carry: PyTree,
    t: Int[Array, ""],
) -> tuple[Estimate, PyTree]:
    """The average of `term(round, carry)` over the window, and what the current round's term
    returned beside its estimate.

    `carry` is stacked like the past rounds of a ring buffer, one for each. The current round
    starts from what the round before it carried, and its own goes where the round will go. Terms
    that are not there yet count for nothing.
    """
    _, seen = window.shares(t)
    slots = window.size - 1
    newest = jax.tree.map(lambda past: jnp.concatenate([past, past[(t - 2) % slots][None]]), carry)
    estimates, rest = window.map(term, rounds, newest)

    def carried(new: Array, old: Array) -> Array:
        present = seen[:-1].reshape((-1,) + (1,) * (old.ndim - 1))
        return jnp.where(present, new[:-1], old).at[(t - 1) % slots].set(new[-1])

    average = Estimate(
        value=window.mean(estimates.value, t),
        residual=jnp.max(jnp.where(seen, estimates.residual, 0)),
        carry=jax.tree.map(carried, estimates.carry, carry),
        hvps=jnp.sum(jnp.where(seen, estimates.hvps, 0)),
        cross_products=jnp.sum(jnp.where(seen, estimates.cross_products, 0)),
    )
    return average, jax.tree.map(lambda leaf: leaf[-1], rest)
