"""Dynamic regression with the window inside the round: the same decisions, at the cost of w = 1.

For squared losses the average over a window is again a quadratic in y,

    (1/W) sum_i u_i (a_{t-i}^T y - b_{t-i})^2 / 2 = y^T A_t y / 2 - c_t^T y + k_t,

whose moments A_t, c_t, k_t follow from those of the round before. OAGD with w = 1 on these rounds
plays what OAGD with the window plays on the original ones (with curvature that is not "own"), in
time that does not depend on w: this is what makes w = T affordable.
"""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from .._support import validation
from .._support.trees import PyTree
from ..problem import Problem
from ..window import Window
from .instance import Instance

FOLLOWERS = ("current", "average")


def windowed(instance: Instance, window: Window) -> Instance:
    """A dynamic regression stream whose rounds hold the moments of the window.

    `instance` is from `dynamic_regression`. With `window.follower="current"` the follower trains on
    the current round and the window reaches the leader only (the same as `curvature="current"`);
    with `"average"` it trains on the window's average (the same as `curvature="window"`).

    A round holds `training` and `validation` moments (A, c, k, share), where `share` is the weight
    of the rounds seen, by which the penalty is diluted early on.
    """
    validation.one_of(window.follower, FOLLOWERS, "window.follower")
    alone = Window(1)
    training = window if window.follower == "average" else alone
    rounds = {
        "training": _moments(instance.rounds["training"], training),
        "validation": _moments(instance.rounds["validation"], window),
    }
    problem = Problem(_outer, _inner, instance.problem.domain, _inner_argmin)
    return Instance(problem, rounds, instance.outer_var, instance.inner_var)


def _moments(data: tuple[Array, Array], window: Window) -> tuple[Array, ...]:
    a, b = (np.asarray(leaf, np.float64) for leaf in data)
    if a.ndim == 2:
        a, b = a[:, None], b[:, None]
    samples = a.shape[1]
    parts = [
        np.einsum("tni,tnj->tij", a, a) / samples,
        np.einsum("tni,tn->ti", a, b) / samples,
        np.einsum("tn,tn->t", b, b) / (2 * samples),
        np.ones(len(a)),
    ]
    return tuple(jnp.asarray(_average(part, window), float) for part in parts)


def _average(terms: np.ndarray, window: Window) -> np.ndarray:
    """(1/W) sum_i u_i terms_{t-i} for every t, by the recurrence that powers allow."""
    horizon, size = len(terms), window.size
    u = np.asarray(window.weights, np.float64)
    decay = float(u[1]) if size > 1 else 1.0
    if not np.allclose(u, decay ** np.arange(size), rtol=1e-5, atol=1e-30):
        raise ValueError("window.weights must be powers of a decay for windowed moments.")
    # s_t = terms_t + decay s_{t-1} is the sum over all of the past; what left the window goes.
    sums = np.array(terms)
    for t in range(1, horizon):
        sums[t] += decay * sums[t - 1]
    sums[size:] = sums[size:] - decay**size * sums[:-size].copy()
    seen = np.cumsum(decay ** np.arange(min(size, horizon)))
    weight = seen[np.minimum(np.arange(horizon), len(seen) - 1)]
    full = np.sum(decay ** np.arange(size))
    total = weight if window.normalise == "seen" else np.full(horizon, full)
    return sums / total.reshape((-1,) + (1,) * (terms.ndim - 1))


def _quadratic(y: Array, moments: tuple[Array, ...]) -> Array:
    a, c, k, _ = moments
    return 0.5 * y @ a @ y - c @ y + k


def _outer(x: Array, y: Array, round: PyTree) -> Array:
    return _quadratic(y, round["validation"])


def _inner(x: Array, y: Array, round: PyTree) -> Array:
    share = round["training"][3]
    return _quadratic(y, round["training"]) + share * jnp.sum(jnp.exp(x) * y**2)


def _inner_argmin(x: Array, round: PyTree) -> Array:
    a, c, _, share = round["training"]
    penalty = share * jnp.broadcast_to(2 * jnp.exp(x), c.shape)
    return jnp.linalg.solve(a + jnp.diag(penalty), c)
