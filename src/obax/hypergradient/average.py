"""The time-averaged hypergradient of Definition 1, from estimates of its terms.

    grad~F_{t,u} = (1/W) sum_{i<w} u_i (grad_x f_{t-i} + M grad_y f_{t-i}),

with M = M_{t-i} for own curvature (`average_of_terms`). For current curvature, M = M_t, and for
that of the window, M of `average_inner`, the outer gradients can be averaged first
(`average_of_gradients`), and one linear system is left to solve.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool

from .._support import sharding, trees
from .._support.trees import PyTree
from ..round_buffer import Terms, expand, with_current
from ..window import Window
from .base import Estimate, Inner, OuterGradient, Pair


def average_of_gradients(pair: Pair, window: Window, terms: Terms) -> tuple[OuterGradient, Terms]:
    """Return (1/W) sum_i u_i (grad_x f_{t-i}, grad_y f_{t-i}), and the terms that it has.

    It is computed in one pass and without w copies of y. Only if the average is not finite are the
    gradients computed one by one, and the terms left out whose own are not.
    """
    average = _at_once(pair, window, terms), terms.present
    gradient, present = trees.finite_or(
        average, lambda: _one_by_one(pair, window, terms.restacked())
    )
    return gradient, terms._replace(present=present)


def _one_by_one(
    pair: Pair, window: Window, terms: Terms
) -> tuple[OuterGradient, Bool[Array, " w"]]:
    """Return the average of the finite terms, and which they are; over several devices, one term of
    each device at a time."""
    gradients_of = jax.vmap(pair.outer_gradient)
    is_current = jnp.arange(window.size) == window.size - 1

    def add(total: OuterGradient, some: tuple[Array, PyTree, Array]) -> tuple[OuterGradient, Array]:
        weights, rounds, exempt = some
        gradients = gradients_of(rounds)
        finite = trees.finite_entries(gradients) | exempt

        def leaf_sum(leaf: Array, gradients: Array) -> Array:
            kept = jnp.where(expand(finite, gradients), gradients, 0)
            return leaf + jnp.tensordot(weights.astype(leaf.dtype), kept, axes=1)

        return jax.tree.map(leaf_sum, total, gradients), finite

    chunks = sharding.Chunks.of(window.size, 1)
    weights = jnp.where(terms.present, terms.weights, 0)
    stacked = sharding.shard_terms((weights, terms.filled(), is_current))
    zero = jax.tree.map(jnp.zeros_like, (pair.outer_var, pair.inner_var))
    total, finite = jax.lax.scan(add, zero, chunks.split(stacked))
    left = terms.without(~chunks.join(finite))
    mean = jax.tree.map(lambda leaf: leaf / left.weight.astype(leaf.dtype), total)
    return mean, left.present


def _at_once(pair: Pair, window: Window, terms: Terms) -> OuterGradient:
    """Return the gradient of the average loss, or with chunks the sum of the chunks' gradients: the
    gradient of the whole average would keep in memory what each of its terms needs for it."""
    share, filled = terms.shares(), terms.filled()

    def part(share: Array, rounds: PyTree) -> OuterGradient:
        def average(x: PyTree, y: PyTree) -> Array:
            loss = lambda round: pair.problem.outer_loss(x, y, round, pair.buffers)  # noqa: E731
            losses = jax.vmap(loss)(rounds)
            return jnp.sum(share.astype(losses.dtype) * losses)

        if pair.inner_var is None:
            return jax.grad(average)(pair.outer_var, None), None
        return jax.grad(average, argnums=(0, 1))(pair.outer_var, pair.inner_var)

    alone = lambda *term: part(*jax.tree.map(lambda leaf: leaf[None], term))  # noqa: E731
    chunk = window.chunk_for(alone, share, filled)
    if chunk == window.size:
        return part(share, filled)
    total = jax.tree.map(jnp.zeros_like, (pair.outer_var, pair.inner_var))

    def add(total: OuterGradient, one: tuple[Array, PyTree]) -> tuple[OuterGradient, None]:
        return jax.tree.map(jnp.add, total, part(*one)), None

    if sharding.is_sharded():
        chunks = sharding.Chunks.of(window.size, chunk)
        return jax.lax.scan(add, total, chunks.split((share, filled)))[0]

    whole = window.size - window.size % chunk

    def chunked(leaf: Array) -> Array:
        return leaf[:whole].reshape(-1, chunk, *leaf.shape[1:])

    total, _ = jax.lax.scan(add, total, jax.tree.map(chunked, (share, filled)))
    if whole < window.size:
        total, _ = add(total, jax.tree.map(lambda leaf: leaf[whole:], (share, filled)))
    return total


def average_inner(pair: Pair, window: Window, terms: Terms) -> Inner:
    """Return the function (x, y) -> (1/W) sum_i u_i g_{t-i}(x, y)."""
    share, filled = terms.shares(), terms.filled()

    def average(x: PyTree, y: PyTree) -> Array:
        losses = window.map(lambda round: pair.inner_of(round)(x, y), filled)
        return jnp.sum(share.astype(losses.dtype) * losses)

    return average


def average_of_terms(
    window: Window,
    term: Callable[[PyTree, PyTree], tuple[Estimate, PyTree]],
    terms: Terms,
    starts: PyTree,
) -> tuple[Estimate, PyTree, Terms]:
    """Return the average of `term(round, start)` over the window, what the current round's term
    returned beside its estimate, and the terms whose estimates are finite.

    `starts` are stacked like the terms, and so is the `carry` of the average. Where a term is left
    out its carry may be anything.
    """
    estimates, rest = window.map(term, terms.rounds, starts)
    counted = sharding.shard_terms(terms.present)
    left = terms.without(~trees.finite_entries((estimates.value, estimates.carry)))
    present = sharding.shard_terms(left.present)

    def total(counts: Array) -> Array:
        return jnp.sum(jnp.where(counted, counts, 0), dtype=jnp.int32)

    average = Estimate(
        value=left.mean(estimates.value),
        residual=jnp.max(jnp.where(present, estimates.residual, 0)),
        carry=estimates.carry,
        hvps=total(estimates.hvps),
        cross_products=total(estimates.cross_products),
        gradients=terms.number,
    )
    return average, sharding.entry(rest, window.size - 1), left


def starts_of(carry: PyTree, terms: Terms) -> PyTree:
    """Return what the estimator of each term starts from, given what the buffer's slots carry. The
    current round starts from what the newest one before it carried."""
    if terms.slots is None:
        return with_current(carry, sharding.entry(carry, terms.newest))
    return sharding.shard_terms(sharding.entry(carry, jnp.append(terms.slots, terms.newest)))


def carried(new: PyTree, terms: Terms, carry: PyTree) -> PyTree:
    """Return what the buffer's slots carry after the round: each term's own goes where its round
    is, and that of the current round where it will be."""
    present, past = sharding.shard_terms(terms.present), len(terms.present) - 1

    def leaf_carried(new: Array, old: Array) -> Array:
        own = sharding.entry(new, past)
        if terms.slots is None:
            slots = len(old)
            kept = jnp.where(expand(present[:slots], old), new[:slots], old)
            return kept.at[terms.slot].set(own)
        before = sharding.entry(old, terms.slots)
        kept = jnp.where(expand(present[:past], new[:past]), new[:past], before)
        return old.at[terms.slots].set(kept).at[terms.slot].set(own, mode="drop")

    return jax.tree.map(leaf_carried, new, carry)
