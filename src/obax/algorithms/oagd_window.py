"""What a window of OAGD may ask of the follower, beyond training on the current round."""

from collections.abc import Callable

import jax.numpy as jnp
from jaxtyping import Array, Int

from .._support import spread
from .._support.trees import PyTree, select
from ..problem import Problem
from ..window import Window
from .descent import Count, Descent, Follower, descending


def over_window(
    problem: Problem,
    window: Window,
    x: PyTree,
    descent: Descent,
    t: Int[Array, ""],
    rounds: PyTree,
    fixed_length: bool,
) -> tuple[Callable[[Array, Follower], Follower], int | Array]:
    """One step of a follower that trains on the rounds of the window, stacked, and how many such
    steps make one of the K_t. `fixed_length` makes their loop one that reverse mode can go through.
    """
    if window.follower == "average":

        def average(_: Array, z: PyTree, buffers: PyTree) -> tuple[PyTree, PyTree]:
            slopes, after = window.map(lambda one: problem.inner_slope(x, z, one, buffers), rounds)
            return window.mean(slopes, t), spread.pick(after, window.size - 1)

        return descending(average, descent, t), 1
    # Oldest first. Where the length may be traced, empty slots are not visited at all.
    span = window.size if fixed_length else jnp.minimum(t, window.size)

    def one_after_the_other(k: Array, z: PyTree, buffers: PyTree) -> tuple[PyTree, PyTree]:
        position = window.position(t, span - 1 - k % span)
        return problem.inner_slope(x, z, spread.pick(rounds, position), buffers)

    step = descending(one_after_the_other, descent, t)

    def visit(k: Array, now: Follower) -> Follower:
        return select(span - 1 - k % span < t, step(k, now), now)

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
