"""What a window of OAGD may ask of the follower, beyond training on the current round."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int

from .._support import mending, spread, trees
from .._support.trees import PyTree
from ..hypergradient import Unrolled
from ..past import Terms
from ..problem import Problem
from ..window import Window
from .descent import Count, Descent, Follower, descending

Step = Callable[[Array, Follower, Terms, bool], tuple[Follower, Terms]]
"""One step, from the follower and what is left of the window to the same after it; whether rounds
are watched."""


def over_window(
    problem: Problem,
    window: Window,
    x: PyTree,
    descent: Descent,
    t: Int[Array, ""],
    steps: int | Array,
    start: Follower,
    terms: Terms,
    reverse: Unrolled | None = None,
) -> tuple[Follower, Terms]:
    """A follower after K_t = `steps` steps on the average of the window's rounds, or so many passes
    over them, and the terms without those whose gradients are not finite. `reverse` mode goes
    through the steps, if given.

    Steps are taken as if all rounds were fine. If the follower does not come out finite they are
    taken again, each round is watched, and one whose gradient is not finite leaves at once.
    """
    if reverse is not None:
        # A NaN behind a selection would reach the derivatives: those that are bad at the start are
        # known before, and the current round stands in their place.
        y, buffers = start.inner_var, start.buffers
        slope = lambda one: problem.inner_slope(x, y, one, buffers)[0]  # noqa: E731
        terms = terms.without(~trees.finite_entries(window.map(slope, terms.filled())))
        terms = terms._replace(rounds=terms.filled())
    kind = _on_average if window.follower == "average" else _one_after_the_other

    def played(terms: Terms, watched: bool) -> tuple[Follower, Array, Array]:
        step, passes = kind(problem, window, x, descent, t, terms, reverse is not None)

        def body(k: Array, now: tuple[Follower, Array]) -> tuple[Follower, Array]:
            follower, left = step(k, now[0], terms._replace(there=now[1]), watched)
            return follower, left.there

        again = reverse is not None and reverse.rematerialise
        body = jax.checkpoint(body) if again else body
        follower, there = jax.lax.fori_loop(0, steps * passes, body, (start, terms.there))
        left = terms.only(there) if watched else terms
        return follower, left.there, left.number

    found = played(terms, watched=False)
    if reverse is None:
        found = mending.unless_finite(found, lambda: played(terms.afresh(), watched=True))
    follower, there, number = found
    return follower, terms._replace(there=there, number=number)


def _on_average(
    problem: Problem,
    window: Window,
    x: PyTree,
    descent: Descent,
    t: Int[Array, ""],
    terms: Terms,
    fixed_length: bool,
) -> tuple[Step, int | Array]:
    """A step on the mean of the gradients, and that it is one of the K_t."""
    rate = descent.rate(t)

    def step(_: Array, follower: Follower, left: Terms, watched: bool) -> tuple[Follower, Terms]:
        z, optimiser, buffers = follower
        slope = lambda one: problem.inner_slope(x, z, one, buffers)  # noqa: E731
        slopes, after = window.map(slope, terms.rounds)
        if watched:
            left = left.without(~trees.finite_entries(slopes))
        z, optimiser = descent.apply(z, left.mean(slopes), optimiser, rate)
        return Follower(z, optimiser, spread.pick(after, window.size - 1)), left

    return step, 1


def _one_after_the_other(
    problem: Problem,
    window: Window,
    x: PyTree,
    descent: Descent,
    t: Int[Array, ""],
    terms: Terms,
    fixed_length: bool,
) -> tuple[Step, int | Array]:
    """A step on one round, and how many such steps make a pass."""
    # Oldest first. Where the length may be traced, those that are not there are not visited at all.
    visited = terms.oldest_first
    span: int | Array = window.size
    if not fixed_length:
        visited = visited[jnp.nonzero(terms.there[visited], size=window.size, fill_value=0)[0]]
        span = terms.number

    def slope(k: Array, z: PyTree, buffers: PyTree) -> tuple[PyTree, PyTree]:
        return problem.inner_slope(x, z, spread.pick(terms.rounds, visited[k % span]), buffers)

    one_step = descending(slope, descent, t)

    def step(k: Array, follower: Follower, left: Terms, watched: bool) -> tuple[Follower, Terms]:
        after, place = one_step(k, follower), visited[k % span]
        if watched:
            bad = jnp.zeros(window.size, bool).at[place].set(~trees.all_finite(after))
            left = left.without(bad)
        if watched or fixed_length:
            after = trees.select(left.there[place], after, follower)
        return after, left

    return step, span


def check_unrolled(window: Window, inner_steps: Count) -> None:
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
