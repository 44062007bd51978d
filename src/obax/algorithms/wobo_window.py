"""The rounds of a window, each with a follower of its own that goes on from round to round."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array

from .._support import spread, trees
from .._support.trees import PyTree
from ..hypergradient import Estimate
from ..past import Terms, along, with_current, written
from ..window import Window
from .descent import Follower

Term = Callable[[PyTree, tuple[PyTree, PyTree]], tuple[Estimate, Follower]]


def of_terms(past: PyTree, current: PyTree) -> PyTree:
    """What is kept of past rounds by slot, and behind it that of the current one; `past` is `None`
    where w = 1."""
    if past is None:
        return jax.tree.map(lambda leaf: jnp.asarray(leaf)[None], current)
    return with_current(past, current, spread.is_spread())


def past_of(stacked: PyTree, terms: Terms, like: PyTree) -> PyTree:
    """What the next round finds by slot: the current round, behind, takes the place of the oldest.
    `like` is what this round has found."""
    if like is None:
        return None
    kept = jax.tree.map(lambda leaf, old: leaf[: len(old)], stacked, like)
    newest = spread.pick(stacked, len(terms.there) - 1)
    return written(kept, terms.place, newest, jnp.asarray(True), spread.is_spread())


def mean_of_own(
    window: Window, term: Term, terms: Terms, followers: PyTree
) -> tuple[Estimate, PyTree, PyTree, Terms]:
    """The mean of the terms of all rounds; their followers, each with what the estimator carries
    for it, after them; the buffers of the current one; and the terms that are finite."""
    found, after = window.map(term, terms.rounds, followers)
    asked, moves = spread.per_term(terms.there), (after.inner_var, found.carry)
    left = terms.without(~trees.finite_entries((found.value, moves)))
    there = spread.per_term(left.there)

    def total(counts: Array) -> Array:
        return jnp.sum(jnp.where(asked, counts, 0), dtype=jnp.int32)

    estimate = Estimate(
        left.mean(found.value),
        jnp.max(jnp.where(there, found.residual, 0)),
        None,
        total(found.hvps),
        total(found.cross_products),
    )
    # What was computed from a slot that holds no round may be anything.
    moved = lambda new, old: jnp.where(along(there, old), new, old)  # noqa: E731
    followers = jax.tree.map(moved, moves, followers)
    return estimate, followers, spread.pick(after.buffers, window.size - 1), left
