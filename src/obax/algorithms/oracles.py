"""What several methods ask of a round, and what they keep of it: hypergradients as they were
computed, at the points where they were computed."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int

from .._support import validation
from .._support.trees import PyTree
from ..hypergradient import Estimate, Hypergradient, Unrolled
from ..hypergradient.average import outer_gradient
from ..problem import Problem
from ..window import Window
from .follower import Follower


def with_follower(problem: Problem, name: str) -> Problem:
    """The problem, if it has a follower."""
    validation.instance(problem, Problem, "problem", "an obax.Problem")
    if problem.inner is None:
        raise ValueError(
            f"problem must have a follower for {name}, but problem.inner is None; use obax.OGD, or "
            f"obax.OAGD for a window."
        )
    return problem


def pointwise(estimator: Hypergradient, name: str) -> Hypergradient:
    """The estimator, if it needs nothing but the point that it is asked at."""
    validation.instance(estimator, Hypergradient, "hypergradient", "an estimator such as CG()")
    if isinstance(estimator, Unrolled):
        raise ValueError(
            f"hypergradient must be one that solves H v = grad_y f for {name}, such as CG(), but "
            f"got Unrolled()."
        )
    return estimator


def stored_window(window: Window | None, name: str) -> Window:
    """The window, if nothing but its weights is asked for: stored terms are not computed again."""
    window = Window() if window is None else window
    validation.instance(window, Window, "window", "an obax.Window such as Window(100)")
    if (window.follower, window.curvature) != ("current", "own"):
        raise ValueError(
            f"window.follower and window.curvature must be left at 'current' and 'own' for {name}, "
            f"which stores hypergradients as they were, but are {window.follower!r} and "
            f"{window.curvature!r}; use obax.OAGD to choose."
        )
    return window


def estimate_at(
    problem: Problem,
    estimator: Hypergradient,
    outer_var: PyTree,
    follower: Follower,
    round: PyTree,
    carry: PyTree,
) -> Estimate:
    """grad_x f_t - J v with H v = grad_y f_t, at (x, y)."""
    y, buffers = follower.inner_var, follower.buffers
    return estimator(
        lambda x, y: problem.inner_loss(x, y, round, buffers)[0],
        outer_var,
        y,
        outer_gradient(problem, outer_var, y, round, buffers),
        carry,
    )


def no_past(window: Window, outer_var: PyTree) -> PyTree:
    """Room for the w - 1 hypergradients before the current one; `None` if there are none."""
    if window.size == 1:
        return None
    return jax.tree.map(
        lambda leaf: jnp.zeros((window.size - 1, *leaf.shape), leaf.dtype), outer_var
    )


def averaged(
    window: Window, past: PyTree, newest: PyTree, t: Int[Array, ""]
) -> tuple[PyTree, PyTree]:
    """(1/W) sum_i u_i h_{t-i}, and the stored terms after round t. The slots are those of a
    `RingBuffer`: round t goes into slot (t - 1) mod (w - 1)."""
    if past is None:
        return newest, None
    together = jax.tree.map(lambda old, new: jnp.concatenate([old, new[None]]), past, newest)
    kept = jax.tree.map(lambda old, new: old.at[(t - 1) % len(old)].set(new), past, newest)
    return window.mean(together, t), kept
