"""The modes of a window: what the follower of OAGD trains on, and what the leader differentiates.

Each mode is one function, `mode(algorithm, state, round, terms)`, which returns what the follower
has learned and the estimate of the hypergradient. `terms` are the rounds of the window.

| `Window.follower`, `Window.curvature` | mode |
|---|---|
| w = 1 | `one_round` |
| `"each"` | `own_followers` |
| any other, `"own"` | `own_curvature` |
| any other, `"current"` or `"window"` | `shared_curvature` |
"""

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool

from .._support import sharding, trees
from .._support.trees import PyTree
from ..hypergradient import Estimate, Hypergradient, Unrolled
from ..hypergradient.average import (
    average_inner,
    average_of_gradients,
    average_of_terms,
    carried,
    starts_of,
)
from ..hypergradient.base import Direct, Pair
from ..hypergradient.unrolled import ThroughSteps
from ..round_buffer import Terms
from ..window import Window
from .descent import Follower, Number, Steps, descending

if TYPE_CHECKING:
    from .base import State
    from .oagd import OAGD

Step = Callable[[Array, Follower, Terms, bool], tuple[Follower, Terms]]
"""One step of a follower: (k, follower, terms, watched) -> the follower after it and the terms that
are left. Rounds that are not finite are looked for only where `watched`."""


class Learned(NamedTuple):
    """The follower after a round."""

    follower: Follower
    gradients: int | Array
    """How many inner gradients its steps took."""
    terms: Terms | None
    """The terms without those whose inner gradients were not finite."""


Mode = Callable[["OAGD", "State", PyTree, Terms | None], tuple[Learned, Estimate]]


def mode_of(algorithm: "OAGD") -> Mode:
    """Return the mode of an algorithm's window."""
    window, has_follower = algorithm.window, algorithm.problem.inner is not None
    if window.size == 1:
        return one_round
    if window.follower == "each":
        return own_followers
    return own_curvature if window.curvature == "own" and has_follower else shared_curvature


def one_round(
    algorithm: "OAGD", state: "State", round: PyTree, terms: Terms | None
) -> tuple[Learned, Estimate]:
    """Look at the current round alone."""
    learned, estimator = learn(algorithm, state, round, terms)
    return learned, algorithm.estimate(estimator, state, learned.follower, round)


def own_followers(
    algorithm: "OAGD", state: "State", round: PyTree, terms: Terms | None
) -> tuple[Learned, Estimate]:
    """Give each round of the window a follower and a linear system of its own."""
    assert terms is not None
    steps = Steps(algorithm.inner_steps).at(state.t)

    def own_term(round: PyTree, carry: PyTree) -> tuple[Estimate, Follower]:
        own = dataclasses.replace(state, carry=carry)
        learned, estimate = one_round(algorithm, own, round, None)
        return estimate, learned.follower

    estimate, follower, left = average(algorithm, state, terms, own_term)
    return Learned(follower, terms.number * steps, left), estimate


def own_curvature(
    algorithm: "OAGD", state: "State", round: PyTree, terms: Terms | None
) -> tuple[Learned, Estimate]:
    """Solve one linear system for each round of the window (Definition 1)."""
    learned, estimator = learn(algorithm, state, round, terms)
    assert terms is not None and learned.terms is not None

    def own_term(round: PyTree, carry: PyTree) -> tuple[Estimate, None]:
        own = dataclasses.replace(state, carry=carry)
        return algorithm.estimate(estimator, own, learned.follower, round), None

    estimate, _, left = average(algorithm, state, learned.terms, own_term)
    return learned._replace(terms=left), estimate._replace(gradients=terms.number)


def shared_curvature(
    algorithm: "OAGD", state: "State", round: PyTree, terms: Terms | None
) -> tuple[Learned, Estimate]:
    """Solve one linear system: that of the current round, or of the window's average."""
    learned, estimator = learn(algorithm, state, round, terms)
    assert terms is not None and learned.terms is not None
    y, buffers = learned.follower.inner_var, learned.follower.buffers
    pair, window = Pair(algorithm.problem, state.outer_var, y, buffers), algorithm.window
    gradient, left = average_of_gradients(pair, window, learned.terms)
    inner = pair.inner_of(round)
    if window.curvature == "window" and y is not None:
        inner = average_inner(pair, window, left)
    estimate = pair.solve(estimator, inner, gradient, state.carry)
    return learned._replace(terms=left), estimate._replace(gradients=terms.number)


R = TypeVar("R")


def average(
    algorithm: "OAGD",
    state: "State",
    terms: Terms,
    own_term: Callable[[PyTree, PyTree], tuple[Estimate, R]],
) -> tuple[Estimate, R, Terms]:
    """Return the average of the terms, each of which carries something of its own from round to
    round; see `average_of_terms`."""
    starts = starts_of(state.carry, terms)
    estimate, rest, left = average_of_terms(algorithm.window, own_term, terms, starts)
    return estimate._replace(carry=carried(estimate.carry, left, state.carry)), rest, left


def learn(
    algorithm: "OAGD", state: "State", round: PyTree, terms: Terms | None
) -> tuple[Learned, Hypergradient]:
    """Return the follower after lines 4-7 of Algorithm 1, and the estimator that differentiates
    it."""
    start = algorithm.start(state)
    if isinstance(algorithm.hypergradient, Unrolled) and algorithm.problem.inner is not None:
        return learn_and_pull(algorithm, state, start, round, terms, algorithm.hypergradient)
    learned = train(algorithm, state, start, round, terms)
    return learned, Direct() if algorithm.problem.inner is None else algorithm.hypergradient


def learn_and_pull(
    algorithm: "OAGD",
    state: "State",
    start: Follower,
    round: PyTree,
    terms: Terms | None,
    unrolled: Unrolled,
) -> tuple[Learned, ThroughSteps]:
    """Return the follower and the derivative through its steps."""
    problem = algorithm.problem

    def result(x: PyTree, y: PyTree) -> tuple[PyTree, tuple[Follower, Array | None]]:
        if problem.inner_start is not None:
            # The start is a function of x too: same value, with its derivative.
            begin = problem.inner_start(x)
            y = jax.tree.map(lambda a, b: a + (b - jax.lax.stop_gradient(b)), y, begin)
        here = dataclasses.replace(state, outer_var=x)
        learned = train(algorithm, here, start._replace(inner_var=y), round, terms, unrolled)
        left = None if learned.terms is None else learned.terms.present
        return learned.follower.inner_var, (learned.follower, left)

    x, y = state.outer_var, start.inner_var
    _, pull, (follower, present) = jax.vjp(result, x, y, has_aux=True)
    left = None if terms is None or present is None else terms._replace(present=present)
    gradients = inner_gradients(algorithm, state, terms)
    return Learned(follower, gradients, left), ThroughSteps(pull, gradients)


def train(
    algorithm: "OAGD",
    state: "State",
    start: Follower,
    round: PyTree,
    terms: Terms | None,
    unrolled: Unrolled | None = None,
) -> Learned:
    """Return the follower after its steps on what `Window.follower` says; where `unrolled`, the
    steps can be differentiated in reverse mode."""
    if algorithm.problem.inner is None:
        return Learned(start, 0, terms)
    gradients = inner_gradients(algorithm, state, terms)
    if terms is not None and algorithm.window.follower in ("window", "average"):
        follower, left = train_on_window(algorithm, state, start, terms, unrolled)
        return Learned(follower, gradients, left)
    steps = Steps(algorithm.inner_steps).at(state.t)
    again = unrolled is not None and unrolled.rematerialise
    follower = algorithm.learn(state.outer_var, start, round, state.t, steps, again)
    return Learned(follower, gradients, terms)


def inner_gradients(algorithm: "OAGD", state: "State", terms: Terms | None) -> int | Array:
    """Return how many inner gradients one follower takes in this round."""
    steps, on_window = Steps(algorithm.inner_steps).at(state.t), ("window", "average")
    if terms is None or algorithm.window.follower not in on_window:
        return steps
    return steps * terms.number


def train_on_window(
    algorithm: "OAGD", state: "State", start: Follower, terms: Terms, unrolled: Unrolled | None
) -> tuple[Follower, Terms]:
    """Return a follower after K_t steps on the average of the window's rounds, or K_t passes over
    them, and the terms whose gradients were finite.

    Steps are taken as if all rounds were finite. If the follower does not come out finite they are
    taken again, each round is watched, and one whose gradient is not finite leaves at once.
    """
    if unrolled is not None:
        terms = finite_at_start(algorithm, state, start, terms)
    on_average = algorithm.window.follower == "average"
    kind = steps_on_average if on_average else steps_one_by_one
    count = Steps(algorithm.inner_steps).at(state.t)

    def play(terms: Terms, watched: bool) -> tuple[Follower, Bool[Array, " w"]]:
        step, passes = kind(algorithm, state, terms, unrolled is not None)

        def body(
            k: Array, now: tuple[Follower, Bool[Array, " w"]]
        ) -> tuple[Follower, Bool[Array, " w"]]:
            follower, left = step(k, now[0], terms._replace(present=now[1]), watched)
            return follower, left.present

        again = unrolled is not None and unrolled.rematerialise
        body = jax.checkpoint(body) if again else body
        return jax.lax.fori_loop(0, count * passes, body, (start, terms.present))

    played = play(terms, watched=False)
    if unrolled is None:
        played = trees.finite_or(played, lambda: play(terms.restacked(), watched=True))
    follower, present = played
    return follower, terms._replace(present=present)


def finite_at_start(algorithm: "OAGD", state: "State", start: Follower, terms: Terms) -> Terms:
    """Return the terms whose inner gradients are finite at the start, with the current round in
    place of the others: a NaN behind a selection would reach the derivatives through the steps."""
    x, (y, _, buffers) = state.outer_var, start
    slope = lambda one: algorithm.problem.inner_slope(x, y, one, buffers)[0]  # noqa: E731
    left = terms.without(~trees.finite_entries(algorithm.window.map(slope, terms.filled())))
    return left._replace(rounds=left.filled())


def steps_on_average(
    algorithm: "OAGD", state: "State", terms: Terms, fixed_length: bool
) -> tuple[Step, int | Array]:
    """Return a step on the mean of the gradients, and that K_t of them are taken."""
    problem, window, x, descent = (
        algorithm.problem,
        algorithm.window,
        state.outer_var,
        algorithm.inner,
    )
    rate = descent.rate(state.t)

    def step(_: Array, follower: Follower, left: Terms, watched: bool) -> tuple[Follower, Terms]:
        z, optimiser, buffers = follower
        slope = lambda one: problem.inner_slope(x, z, one, buffers)  # noqa: E731
        slopes, after = window.map(slope, terms.rounds)
        if watched:
            left = left.without(~trees.finite_entries(slopes))
        z, optimiser = descent.apply(z, left.mean(slopes), optimiser, rate)
        return Follower(z, optimiser, sharding.entry(after, window.size - 1)), left

    return step, 1


def steps_one_by_one(
    algorithm: "OAGD", state: "State", terms: Terms, fixed_length: bool
) -> tuple[Step, int | Array]:
    """Return a step on one round, and how many such steps make a pass over the window."""
    size, x = algorithm.window.size, state.outer_var
    # Oldest first. Where the length may be traced, rounds that do not count are not visited at all.
    visited = terms.oldest_first
    length: int | Array = size
    if not fixed_length:
        visited = visited[jnp.nonzero(terms.present[visited], size=size, fill_value=0)[0]]
        length = terms.number

    def slope(k: Array, z: PyTree, buffers: PyTree) -> tuple[PyTree, PyTree]:
        round = sharding.entry(terms.rounds, visited[k % length])
        return algorithm.problem.inner_slope(x, z, round, buffers)

    one_step = descending(slope, algorithm.inner, state.t)

    def step(k: Array, follower: Follower, left: Terms, watched: bool) -> tuple[Follower, Terms]:
        after, index = one_step(k, follower), visited[k % length]
        if watched:
            bad = jnp.zeros(size, bool).at[index].set(~trees.all_finite(after))
            left = left.without(bad)
        if watched or fixed_length:
            after = trees.select(left.present[index], after, follower)
        return after, left

    return step, length


def check_unrolled(window: Window, inner_steps: Number) -> None:
    """Raise a `ValueError` where the follower's steps cannot be differentiated, or would not give
    what the window asks for."""
    if not isinstance(inner_steps, int):
        raise ValueError(
            "inner_steps must be a fixed int with hypergradient=Unrolled(), whose loop must "
            f"have a fixed length, but got {inner_steps!r}; use CG() for a K_t that varies with t."
        )
    if window.size > 1 and window.curvature == "own" and window.follower != "each":
        raise ValueError(
            "window.curvature must be 'current' with hypergradient=Unrolled() and size > 1, "
            "but is 'own': only the steps that the follower took can be differentiated."
        )
    if window.curvature == "window" and window.follower != "average":
        raise ValueError(
            "window.curvature must be 'current' with hypergradient=Unrolled(), but is "
            "'window': the follower's steps are differentiated, whatever they were taken on."
        )
