"""The time-averaged hypergradient of Definition 1, from estimates of its terms.

    grad~F_{t,u} = (1/W) sum_{i<w} u_i (grad_x f_{t-i} + M grad_y f_{t-i}),

with M = M_{t-i} for own curvature (`average_of_terms`). For current curvature, M = M_t, and for
that of the window, M of `average_inner`, the outer gradients can be averaged first
(`average_of_gradients`) and one system is left to solve.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int

from .._support import mending, spread, trees
from .._support.trees import PyTree
from ..past import Terms, along, with_current
from ..problem import Problem
from ..window import Window
from .base import Estimate, Inner, OuterGradient, outer_gradient


def average_of_gradients(
    problem: Problem,
    window: Window,
    x: PyTree,
    y: PyTree,
    terms: Terms,
    buffers: PyTree,
) -> tuple[OuterGradient, Terms]:
    """(1/W) sum_i u_i (grad_x f_{t-i}, grad_y f_{t-i}), in one pass and without w copies of y; and
    the terms without those whose gradients are not finite, which are looked for one by one, and
    left out, only if the average is not.
    """
    average = _at_once(problem, window, x, y, terms, buffers), terms.there, terms.number
    judged = lambda: _one_by_one(problem, window, x, y, terms.afresh(), buffers)  # noqa: E731
    gradient, there, number = mending.unless_finite(average, judged)
    return gradient, terms._replace(there=there, number=number)


def _one_by_one(
    problem: Problem, window: Window, x: PyTree, y: PyTree, terms: Terms, buffers: PyTree
) -> tuple[OuterGradient, Bool[Array, " w"], Int[Array, ""]]:
    """The average of those terms that are finite, and which are; over several devices, one of each
    at a time."""
    slope = jax.vmap(lambda one: outer_gradient(problem, x, y, one, buffers))
    is_current = jnp.arange(window.size) == window.size - 1

    def add(total: OuterGradient, some: tuple[Array, PyTree, Array]) -> tuple[OuterGradient, Array]:
        weights, rounds, exempt = some
        slopes = slope(rounds)
        fine = trees.finite_entries(slopes) | exempt

        def leaf_sum(leaf: Array, terms: Array) -> Array:
            kept = jnp.where(along(fine, terms), terms, 0)
            return leaf + jnp.tensordot(weights.astype(leaf.dtype), kept, axes=1)

        return jax.tree.map(leaf_sum, total, slopes), fine

    chunks = spread.Chunks.of(window.size, 1)
    weights = jnp.where(terms.there, terms.weights, 0)
    stacked = spread.per_term((weights, terms.filled(), is_current))
    nothing = jax.tree.map(jnp.zeros_like, (x, y))
    total, fine = jax.lax.scan(add, nothing, chunks.split(stacked))
    left = terms.without(~chunks.join(fine))
    mean = jax.tree.map(lambda leaf: leaf / left.weight.astype(leaf.dtype), total)
    return mean, left.there, left.number


def _at_once(
    problem: Problem, window: Window, x: PyTree, y: PyTree, terms: Terms, buffers: PyTree
) -> OuterGradient:
    """With chunks the gradients of the chunks are added up one after the other: the gradient
    of the whole average would keep what each of its terms needs on the way back, all at once.
    """
    share, filled = terms.shares(), terms.filled()

    def part(share: Array, rounds: PyTree) -> OuterGradient:
        def average(x: PyTree, y: PyTree) -> Array:
            losses = jax.vmap(lambda one: problem.outer_loss(x, y, one, buffers))(rounds)
            return jnp.sum(share.astype(losses.dtype) * losses)

        if y is None:
            return jax.grad(average)(x, None), None
        return jax.grad(average, argnums=(0, 1))(x, y)

    alone = lambda *term: part(*jax.tree.map(lambda leaf: leaf[None], term))  # noqa: E731
    chunk = window.at_once(alone, share, filled)
    whole = window.size - window.size % chunk
    if chunk == window.size:
        return part(share, filled)
    total = jax.tree.map(jnp.zeros_like, (x, y))

    def add(total: OuterGradient, one: tuple[Array, PyTree]) -> tuple[OuterGradient, None]:
        return jax.tree.map(jnp.add, total, part(*one)), None

    if spread.is_spread():
        chunks = spread.Chunks.of(window.size, chunk)
        return jax.lax.scan(add, total, chunks.split((share, filled)))[0]

    def chunked(leaf: Array) -> Array:
        return leaf[:whole].reshape(-1, chunk, *leaf.shape[1:])

    total, _ = jax.lax.scan(add, total, jax.tree.map(chunked, (share, filled)))
    if whole < window.size:
        total, _ = add(total, jax.tree.map(lambda leaf: leaf[whole:], (share, filled)))
    return total


def with_finite_inner(
    problem: Problem, window: Window, x: PyTree, y: PyTree, terms: Terms, buffers: PyTree
) -> Terms:
    """The terms whose inner losses are finite: those of a follower that has not looked at them."""
    loss = lambda one: problem.inner_loss(x, y, one, buffers)[0]  # noqa: E731
    return terms.without(~jnp.isfinite(window.map(loss, terms.filled())))


def average_inner(
    problem: Problem,
    window: Window,
    terms: Terms,
    buffers: PyTree,
) -> Inner:
    """(x, y) -> (1/W) sum_i u_i g_{t-i}(x, y)."""
    share, filled = terms.shares(), terms.filled()

    def average(x: PyTree, y: PyTree) -> Array:
        losses = window.map(lambda one: problem.inner_loss(x, y, one, buffers)[0], filled)
        return jnp.sum(share.astype(losses.dtype) * losses)

    return average


def average_of_terms(
    window: Window,
    term: Callable[[PyTree, PyTree], tuple[Estimate, PyTree]],
    terms: Terms,
    carry: PyTree,
) -> tuple[Estimate, PyTree, Terms]:
    """The average of `term(round, carry)` over the window, what the current round's term returned
    beside its estimate, and the terms without those whose estimates are not finite.

    `carry` is stacked like the past rounds of a buffer, one for each. The current round starts from
    what the newest one before it carried, and its own goes where the round will go. Terms that are
    not there, or not finite, count for nothing.
    """
    slots = window.size - 1
    if terms.slots is None:
        starts = with_current(carry, spread.pick(carry, terms.newest), spread.is_spread())
    else:
        starts = spread.per_term(spread.pick(carry, jnp.append(terms.slots, terms.newest)))
    estimates, rest = window.map(term, terms.rounds, starts)
    asked = spread.per_term(terms.there)
    left = terms.without(~trees.finite_entries((estimates.value, estimates.carry)))
    there = spread.per_term(left.there)

    def carried(new: Array, old: Array) -> Array:
        own = spread.pick(new, slots)
        if terms.slots is None:
            held = len(old)
            kept = jnp.where(along(there[:held], old), new[:held], old)
            return kept.at[terms.place].set(own)
        # They go back to where they came from; that of the current round where it goes, if it does.
        found = jnp.where(along(there[:slots], new), new[:slots], spread.pick(old, terms.slots))
        return old.at[terms.slots].set(found).at[terms.place].set(own, mode="drop")

    average = Estimate(
        value=left.mean(estimates.value),
        residual=jnp.max(jnp.where(there, estimates.residual, 0)),
        carry=jax.tree.map(carried, estimates.carry, carry),
        hvps=jnp.sum(jnp.where(asked, estimates.hvps, 0)),
        cross_products=jnp.sum(jnp.where(asked, estimates.cross_products, 0)),
    )
    return average, spread.pick(rest, slots), left
