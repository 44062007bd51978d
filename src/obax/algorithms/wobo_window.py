"""The rounds of a window, each with a follower of its own that goes on from round to round."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int

from .._support import spread
from .._support.trees import PyTree
from ..hypergradient import Estimate
from ..window import RingBuffer, Window
from .descent import Follower

Term = Callable[[PyTree, tuple[PyTree, PyTree]], tuple[Estimate, Follower]]


def with_current(past: PyTree, current: PyTree) -> PyTree:
    """What is kept of past rounds by slot, and behind it that of the current one; `past` is a
    `RingBuffer`, the tree inside one, or `None` where w = 1."""
    if past is None:
        return jax.tree.map(lambda leaf: jnp.asarray(leaf)[None], current)
    if not isinstance(past, RingBuffer):
        past = RingBuffer(past, spread.is_spread())
    return past.with_current(current)


def past_of(stacked: PyTree, t: Int[Array, ""], like: PyTree) -> PyTree:
    """What the next round finds by slot: the current round, behind, takes the place of the oldest.
    `like` is what this round has found."""
    if like is None:
        return None
    kept = jax.tree.map(lambda leaf, old: leaf[: len(old)], stacked, like)
    newest = spread.pick(stacked, len(jax.tree.leaves(stacked)[0]) - 1)
    return RingBuffer(kept, spread.is_spread()).push(t, newest, jnp.asarray(True)).rounds


def mean_of_own(
    window: Window, term: Term, rounds: PyTree, followers: PyTree, t: Int[Array, ""]
) -> tuple[Estimate, PyTree, PyTree]:
    """The mean of the terms of all rounds; their followers, each with what the estimator carries
    for it, after them; and the buffers of the current one."""
    found, after = window.map(term, rounds, followers)
    _, seen = window.shares(t)

    def total(counts: Array) -> Array:
        return jnp.sum(jnp.where(seen, counts, 0), dtype=jnp.int32)

    def moved(new: Array, old: Array) -> Array:
        # What was computed from a slot that no round has filled may be anything.
        return jnp.where(seen.reshape((-1,) + (1,) * (old.ndim - 1)), new, old)

    estimate = Estimate(
        window.mean(found.value, t),
        jnp.max(jnp.where(seen, found.residual, 0)),
        None,
        total(found.hvps),
        total(found.cross_products),
    )
    followers = jax.tree.map(moved, (after.inner_var, found.carry), followers)
    return estimate, followers, spread.pick(after.buffers, window.size - 1)
