"""How the follower learns from a round: lines 3-7 of Algorithm 1."""

from collections.abc import Callable
from typing import NamedTuple

import jax
from jaxtyping import Array, Int

from .._support.trees import PyTree
from ..problem import Problem
from .descent import Descent

Slope = Callable[[Array, PyTree, PyTree], tuple[PyTree, PyTree]]
"""(k, z^k, buffers) -> the gradient of step k and the buffers after it."""


class Follower(NamedTuple):
    """What moves while the follower learns."""

    inner_var: PyTree
    optimiser: PyTree
    buffers: PyTree


def learn(
    problem: Problem,
    outer_var: PyTree,
    start: Follower,
    descent: Descent,
    steps: int | Array,
    t: Int[Array, ""],
    round: PyTree,
    *,
    rematerialise: bool = False,
) -> Follower:
    """z^{k+1} = z^k - beta_t grad_z g_t(x_t, z^k) for k = 1..K_t.

    Reverse mode can go through it if `steps` is an `int`; with `rematerialise` the steps are
    computed again on the way back.
    """
    differentiate = jax.grad(problem.inner_loss, argnums=1, has_aux=True)
    step = descending(lambda _, z, buffers: differentiate(outer_var, z, round, buffers), descent, t)
    # A loop of fixed length becomes a scan, which reverse mode can go through.
    return jax.lax.fori_loop(0, steps, jax.checkpoint(step) if rematerialise else step, start)


def descending(
    slope: Slope, descent: Descent, t: Int[Array, ""]
) -> Callable[[Array, Follower], Follower]:
    """The body of a loop: one step of the follower along `slope`."""
    rate = descent.rate(t)

    def one_step(k: Array, now: Follower) -> Follower:
        gradient, buffers = slope(k, now.inner_var, now.buffers)
        inner_var, optimiser = descent.apply(now.inner_var, gradient, now.optimiser, rate)
        return Follower(inner_var, optimiser, buffers)

    return one_step
