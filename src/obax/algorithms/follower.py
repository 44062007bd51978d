"""How the follower learns from a round: lines 3-7 of Algorithm 1, and its other modes."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int

from .._support.trees import PyTree, select
from ..problem import Problem
from ..window import Window
from .descent import Descent


class Follower(NamedTuple):
    """What moves while the follower learns."""

    inner_var: PyTree
    optimiser: PyTree
    buffers: PyTree


def start_of(
    problem: Problem, outer_var: PyTree, now: Follower, descent: Descent | None
) -> Follower:
    """Line 3 of Algorithm 1: from y_t, or from where the problem says."""
    if problem.inner_start is None or descent is None:
        return now
    inner_var = problem.inner_start(outer_var)
    return now._replace(inner_var=inner_var, optimiser=descent.init(inner_var))


def learn(
    problem: Problem,
    outer_var: PyTree,
    start: Follower,
    descent: Descent,
    steps: int | Array,
    t: Int[Array, ""],
    round: PyTree,
    window: Window,
    rounds: PyTree = None,
    *,
    fixed_length: bool = False,
    rematerialise: bool = False,
) -> Follower:
    """z^{k+1} = z^k - beta_t grad_z g(x_t, z^k), on what `window.follower` says.

    Without `rounds`, those of the window stacked, the follower trains on `round` alone.
    `fixed_length` makes the loop one that reverse mode can go through.
    """
    rate = descent.rate(t)
    differentiate = jax.grad(problem.inner_loss, argnums=1, has_aux=True)

    def current(k: Any, z: PyTree, buffers: PyTree) -> tuple[PyTree, PyTree]:
        return differentiate(outer_var, z, round, buffers)

    gradient: Callable[..., tuple[PyTree, PyTree]] = current
    length, counts = steps, None
    if rounds is not None and window.follower == "window":
        # Oldest first. Where the length may be traced, empty slots are not visited at all.
        span = window.size if fixed_length else jnp.minimum(t, window.size)
        length = steps * span

        def gradient(k: Any, z: PyTree, buffers: PyTree) -> tuple[PyTree, PyTree]:
            position = window.position(t, span - 1 - k % span)
            one = jax.tree.map(lambda leaf: leaf[position], rounds)
            return differentiate(outer_var, z, one, buffers)

        if fixed_length:
            counts = lambda k: span - 1 - k % span < t  # noqa: E731
    elif rounds is not None and window.follower == "average":

        def gradient(k: Any, z: PyTree, buffers: PyTree) -> tuple[PyTree, PyTree]:
            slopes, after = window.map(
                lambda one: differentiate(outer_var, z, one, buffers), rounds
            )
            return window.mean(slopes, t), jax.tree.map(lambda leaf: leaf[-1], after)

    def one_step(k: Any, now: Follower) -> Follower:
        slope, buffers = gradient(k, now.inner_var, now.buffers)
        inner_var, optimiser = descent.apply(now.inner_var, slope, now.optimiser, rate)
        new = Follower(inner_var, optimiser, buffers)
        return new if counts is None else select(counts(k), new, now)

    # A loop of fixed length becomes a scan, which reverse mode can go through.
    body = jax.checkpoint(one_step) if rematerialise else one_step
    return jax.lax.fori_loop(0, length, body, start)
