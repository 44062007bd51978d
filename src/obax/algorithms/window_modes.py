"""The modes of a window: what the follower of OAGD trains on, and what the leader differentiates.

Each mode is one function, `mode(turn)`, which returns what the follower has learned and the
estimate of the hypergradient.

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
from jaxtyping import Array

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
R = TypeVar("R")


class Learned(NamedTuple):
    """The follower after a round."""

    follower: Follower
    gradients: int | Array
    """How many inner gradients its steps took."""
    terms: Terms | None
    """The terms without those whose inner gradients were not finite."""


class Turn(NamedTuple):
    """OAGD in one round: its state, the round, and the rounds of the window with this one."""

    algorithm: "OAGD"
    state: "State"
    round: PyTree
    terms: Terms | None
    """`None` where the follower and the leader look at this round alone."""
    unrolled: Unrolled | None = None
    """Where the follower's steps are to be differentiated in reverse mode."""

    @property
    def window_terms(self) -> Terms:
        """The terms, in modes of a window."""
        assert self.terms is not None
        return self.terms

    @property
    def steps(self) -> int | Array:
        """K_t."""
        return Steps(self.algorithm.inner_steps).at(self.state.t)

    @property
    def trains_on_window(self) -> bool:
        """Whether the follower trains on all rounds of the window."""
        on_window = self.algorithm.window.follower in ("window", "average")
        return self.terms is not None and on_window

    @property
    def gradients(self) -> int | Array:
        """How many inner gradients one follower takes in this round."""
        return self.steps * self.window_terms.number if self.trains_on_window else self.steps

    def slope(self, z: PyTree, round: PyTree, buffers: PyTree) -> tuple[PyTree, PyTree]:
        """Return grad_y g of a round at x_t and z, and the buffers after it."""
        return self.algorithm.problem.inner_slope(self.state.outer_var, z, round, buffers)

    def own(self, round: PyTree, carry: PyTree) -> "Turn":
        """Return the turn for a round of the window alone, with what is carried for it."""
        return self._replace(
            state=dataclasses.replace(self.state, carry=carry), round=round, terms=None
        )

    def checkpointed(self, step: Callable[..., R]) -> Callable[..., R]:
        """Return a step that is computed again on the way back, if `unrolled` asks for that."""
        again = self.unrolled is not None and self.unrolled.rematerialise
        return jax.checkpoint(step) if again else step


def play(turn: Turn) -> tuple[Learned, Estimate]:
    """Return what the follower learns and the hypergradient, in the mode of the window."""
    window, has_follower = turn.algorithm.window, turn.algorithm.problem.inner is not None
    if window.size == 1:
        return one_round(turn)
    if window.follower == "each":
        return own_followers(turn)
    own = window.curvature == "own" and has_follower
    return own_curvature(turn) if own else shared_curvature(turn)


def one_round(turn: Turn) -> tuple[Learned, Estimate]:
    """Look at the current round alone."""
    learned, estimator = learn(turn)
    follower = learned.follower
    return learned, turn.algorithm.estimate(estimator, turn.state, follower, turn.round)


def own_followers(turn: Turn) -> tuple[Learned, Estimate]:
    """Give each round of the window a follower and a linear system of its own."""

    def own_term(round: PyTree, carry: PyTree) -> tuple[Estimate, Follower]:
        learned, estimate = one_round(turn.own(round, carry))
        return estimate, learned.follower

    estimate, follower, left = average(turn, turn.terms, own_term)
    return Learned(follower, turn.window_terms.number * turn.steps, left), estimate


def own_curvature(turn: Turn) -> tuple[Learned, Estimate]:
    """Solve one linear system for each round of the window (Definition 1)."""
    learned, estimator = learn(turn)

    def own_term(round: PyTree, carry: PyTree) -> tuple[Estimate, None]:
        own = dataclasses.replace(turn.state, carry=carry)
        return turn.algorithm.estimate(estimator, own, learned.follower, round), None

    estimate, _, left = average(turn, learned.terms, own_term)
    return learned._replace(terms=left), estimate._replace(gradients=turn.window_terms.number)


def shared_curvature(turn: Turn) -> tuple[Learned, Estimate]:
    """Solve one linear system: that of the current round, or of the window's average."""
    learned, estimator = learn(turn)
    assert learned.terms is not None
    (y, _, buffers), state, window = learned.follower, turn.state, turn.algorithm.window
    pair = Pair(turn.algorithm.problem, state.outer_var, y, buffers)
    gradient, left = average_of_gradients(pair, window, learned.terms)
    inner = pair.inner_of(turn.round)
    if window.curvature == "window" and y is not None:
        inner = average_inner(pair, window, left)
    estimate = pair.solve(estimator, inner, gradient, state.carry)
    estimate = estimate._replace(gradients=turn.window_terms.number)
    return learned._replace(terms=left), estimate


def average(
    turn: Turn, terms: Terms | None, own_term: Callable[[PyTree, PyTree], tuple[Estimate, R]]
) -> tuple[Estimate, R, Terms]:
    """Return the average of the terms, each of which carries something of its own from round to
    round; see `average_of_terms`."""
    assert terms is not None
    carry, window = turn.state.carry, turn.algorithm.window
    estimate, rest, left = average_of_terms(window, own_term, terms, starts_of(carry, terms))
    return estimate._replace(carry=carried(estimate.carry, left, carry)), rest, left


def learn(turn: Turn) -> tuple[Learned, Hypergradient]:
    """Return the follower after lines 4-7 of Algorithm 1, and the estimator that differentiates
    it."""
    start, estimator = turn.algorithm.start(turn.state), turn.algorithm.hypergradient
    if turn.algorithm.problem.inner is None:
        return train(turn, start), Direct()
    if isinstance(estimator, Unrolled):
        return learn_and_pull(turn._replace(unrolled=estimator), start)
    return train(turn, start), estimator


def learn_and_pull(turn: Turn, start: Follower) -> tuple[Learned, ThroughSteps]:
    """Return the follower and the derivative through its steps."""
    problem = turn.algorithm.problem

    def result(x: PyTree, y: PyTree) -> tuple[PyTree, tuple[Follower, Array | None]]:
        if problem.inner_start is not None:
            # The start is a function of x too: same value, with its derivative.
            begin = problem.inner_start(x)
            y = jax.tree.map(lambda a, b: a + (b - jax.lax.stop_gradient(b)), y, begin)
        here = turn._replace(state=dataclasses.replace(turn.state, outer_var=x))
        learned = train(here, start._replace(inner_var=y))
        left = None if learned.terms is None else learned.terms.present
        return learned.follower.inner_var, (learned.follower, left)

    x, y = turn.state.outer_var, start.inner_var
    _, pull, (follower, present) = jax.vjp(result, x, y, has_aux=True)
    left = None if present is None else turn.window_terms._replace(present=present)
    return Learned(follower, turn.gradients, left), ThroughSteps(pull, turn.gradients)


def train(turn: Turn, start: Follower) -> Learned:
    """Return the follower after its steps on what `Window.follower` says."""
    algorithm, state = turn.algorithm, turn.state
    if algorithm.problem.inner is None:
        return Learned(start, 0, turn.terms)
    if turn.trains_on_window:
        follower, left = train_on_window(turn, start)
        return Learned(follower, turn.gradients, left)
    again = turn.unrolled is not None and turn.unrolled.rematerialise
    steps = turn.steps
    follower = algorithm.learn(state.outer_var, start, turn.round, state.t, steps, again)
    return Learned(follower, steps, turn.terms)


def train_on_window(turn: Turn, start: Follower) -> tuple[Follower, Terms]:
    """Return a follower after K_t steps on the average of the window's rounds, or K_t passes over
    them, and the terms whose gradients were finite.

    Steps are taken as if all rounds were finite. If the follower does not come out finite they are
    taken again, each round is watched, and one whose gradient is not finite leaves at once.
    """
    terms = turn.window_terms if turn.unrolled is None else finite_at_start(turn, start)
    on_average = turn.algorithm.window.follower == "average"
    count = turn.steps

    def play(terms: Terms, watched: bool) -> tuple[Follower, Array]:
        step, passes = (steps_on_average if on_average else steps_one_by_one)(turn, terms)

        def body(k: Array, now: tuple[Follower, Array]) -> tuple[Follower, Array]:
            follower, left = step(k, now[0], terms._replace(present=now[1]), watched)
            return follower, left.present

        start_of_loop = start, terms.present
        return jax.lax.fori_loop(0, count * passes, turn.checkpointed(body), start_of_loop)

    played = play(terms, watched=False)
    if turn.unrolled is None:
        played = trees.finite_or(played, lambda: play(terms.restacked(), watched=True))
    follower, present = played
    return follower, terms._replace(present=present)


def finite_at_start(turn: Turn, start: Follower) -> Terms:
    """Return the terms whose inner gradients are finite at the start, with the current round in
    place of the others: a NaN behind a selection would reach the derivatives through the steps."""
    terms, (y, _, buffers) = turn.window_terms, start
    slope = lambda one: turn.slope(y, one, buffers)[0]  # noqa: E731
    slopes = turn.algorithm.window.map(slope, terms.filled())
    left = terms.without(~trees.finite_entries(slopes))
    return left._replace(rounds=left.filled())


def steps_on_average(turn: Turn, terms: Terms) -> tuple[Step, int | Array]:
    """Return a step on the mean of the gradients, and that K_t of them are taken."""
    window, descent = turn.algorithm.window, turn.algorithm.inner
    rate = descent.rate(turn.state.t)

    def step(_: Array, follower: Follower, left: Terms, watched: bool) -> tuple[Follower, Terms]:
        z, optimiser, buffers = follower
        slopes, after = window.map(lambda one: turn.slope(z, one, buffers), terms.rounds)
        if watched:
            left = left.without(~trees.finite_entries(slopes))
        z, optimiser = descent.apply(z, left.mean(slopes), optimiser, rate)
        return Follower(z, optimiser, sharding.entry(after, window.size - 1)), left

    return step, 1


def steps_one_by_one(turn: Turn, terms: Terms) -> tuple[Step, int | Array]:
    """Return a step on one round, and how many such steps make a pass over the window."""
    size, fixed_length = turn.algorithm.window.size, turn.unrolled is not None
    # Oldest first. Where the length may be traced, rounds that do not count are not visited at all.
    visited, length = terms.oldest_first, size if fixed_length else terms.number
    if not fixed_length:
        visited = visited[jnp.nonzero(terms.present[visited], size=size, fill_value=0)[0]]

    def slope(k: Array, z: PyTree, buffers: PyTree) -> tuple[PyTree, PyTree]:
        return turn.slope(z, sharding.entry(terms.rounds, visited[k % length]), buffers)

    one_step = descending(slope, turn.algorithm.inner, turn.state.t)

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
