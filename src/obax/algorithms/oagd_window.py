"""What a window of OAGD may ask of the follower, beyond training on the current round."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int

from .._support.trees import PyTree, select
from ..problem import Problem
from ..window import Window
from .descent import Count, Descent
from .follower import Follower, descending, learn


def train(
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
    if rounds is None or window.follower in ("current", "each"):
        return learn(
            problem, outer_var, start, descent, steps, t, round, rematerialise=rematerialise
        )
    differentiate = jax.grad(problem.inner_loss, argnums=1, has_aux=True)

    def average(_: Array, z: PyTree, buffers: PyTree) -> tuple[PyTree, PyTree]:
        slopes, after = window.map(lambda one: differentiate(outer_var, z, one, buffers), rounds)
        return window.mean(slopes, t), jax.tree.map(lambda leaf: leaf[-1], after)

    # Oldest first. Where the length may be traced, empty slots are not visited at all.
    span = window.size if fixed_length else jnp.minimum(t, window.size)

    def one_after_the_other(k: Array, z: PyTree, buffers: PyTree) -> tuple[PyTree, PyTree]:
        position = window.position(t, span - 1 - k % span)
        one = jax.tree.map(lambda leaf: leaf[position], rounds)
        return differentiate(outer_var, z, one, buffers)

    if window.follower == "average":
        step, length = descending(average, descent, t), steps
    else:
        step, length = descending(one_after_the_other, descent, t), steps * span

    def visit(k: Array, now: Follower) -> Follower:
        return select(span - 1 - k % span < t, step(k, now), now)

    body = visit if window.follower == "window" and fixed_length else step
    return jax.lax.fori_loop(0, length, jax.checkpoint(body) if rematerialise else body, start)


def inner_gradients(window: Window, steps: int | Array, t: Int[Array, ""]) -> int | Array:
    """Inner gradients that one follower takes in round t."""
    windowed = window.follower in ("window", "average")
    return steps * (jnp.minimum(t, window.size) if windowed else 1)


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
