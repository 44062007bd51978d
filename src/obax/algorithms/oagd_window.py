"""What a window of OAGD may ask of the follower, beyond training on the current round."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int

from .._support import spread
from .._support.trees import PyTree, select
from ..past import Terms
from ..problem import Problem
from ..window import Window
from .descent import Count, Descent, Follower, descending


def over_window(
    problem: Problem,
    window: Window,
    x: PyTree,
    descent: Descent,
    t: Int[Array, ""],
    terms: Terms,
    steps: int | Array,
    fixed_length: bool = False,
    rematerialise: bool = False,
) -> Callable[[Follower], Follower]:
    """K_t = `steps` steps of a follower that trains on the rounds of the window, or so many passes
    over them. `fixed_length` makes the loop one that reverse mode can go through, and
    `rematerialise` computes the steps again on the way back."""
    step, passes = _step(problem, window, x, descent, t, terms, fixed_length)
    step = jax.checkpoint(step) if rematerialise else step
    return lambda start: jax.lax.fori_loop(0, steps * passes, step, start)


def _step(
    problem: Problem,
    window: Window,
    x: PyTree,
    descent: Descent,
    t: Int[Array, ""],
    terms: Terms,
    fixed_length: bool,
) -> tuple[Callable[[Array, Follower], Follower], int | Array]:
    """One step, and how many such steps make one of the K_t."""
    if window.follower == "average":

        def average(_: Array, z: PyTree, buffers: PyTree) -> tuple[PyTree, PyTree]:
            slope = lambda one: problem.inner_slope(x, z, one, buffers)  # noqa: E731
            slopes, after = window.map(slope, terms.rounds)
            return terms.mean(slopes), spread.pick(after, window.size - 1)

        return descending(average, descent, t), 1
    # Oldest first. Where the length may be traced, those that are not there are not visited at all.
    visited, span = terms.oldest_first, window.size
    if not fixed_length:
        visited = visited[jnp.nonzero(terms.there[visited], size=window.size, fill_value=0)[0]]
        span = terms.count

    def one_after_the_other(k: Array, z: PyTree, buffers: PyTree) -> tuple[PyTree, PyTree]:
        return problem.inner_slope(x, z, spread.pick(terms.rounds, visited[k % span]), buffers)

    step = descending(one_after_the_other, descent, t)

    def visit(k: Array, now: Follower) -> Follower:
        return select(terms.there[visited[k % span]], step(k, now), now)

    return visit if fixed_length else step, span


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
