"""Dynamic regression with a window at the cost of w = 1.

For squared losses the average over a window is again a quadratic in y,

    (1/W) sum_i u_i (a_{t-i}^T y - b_{t-i})^2 / 2 = y^T A_t y / 2 - c_t^T y + k_t,

whose moments A_t, c_t, k_t follow from those of the round before.
"""

from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from .._support.checks import check, checked
from .._support.trees import PyTree
from ..domain import Domain
from ..problem import Problem
from ..window import AtReset, Window
from .instance import Instance


@checked
def windowed(instance: Instance, window: Window) -> Instance:
    """Return a dynamic regression stream whose rounds hold the moments of the window.

    The decisions are the same, at the cost of w = 1.

    OAGD with w = 1 on these rounds plays what OAGD with the window plays on the original ones (with
    curvature that is not "own"), in time that does not depend on w: this is what makes w = T
    affordable.

    `instance` is from `dynamic_regression`, with `mark_changes` for a window that is cut by
    "reset". With `window.follower="current"` the follower trains on the current round and the
    window reaches the leader only (the same as `curvature="current"`); with `"average"` it trains
    on the window's average (the same as `curvature="window"`). Where a detector cuts depends on
    what is played: for that there is `RunningMoments`.

    A round holds `training` and `validation` moments (A, c, k, share), where `share` is the weight
    of the rounds seen, by which the penalty is diluted early on.
    """
    check(window.follower, "window.follower", Literal["current", "average"])
    training = window if window.follower == "average" else Window(1)
    starts = _starts(instance.rounds, window)
    rounds = {
        "training": _averages(instance.rounds["training"], training, starts),
        "validation": _averages(instance.rounds["validation"], window, starts),
    }
    problem = moments_problem(instance.problem.domain)
    return Instance(problem, rounds, instance.outer_var, instance.inner_var)


def moments_problem(domain: Domain) -> Problem:
    """Return the problem of rounds that hold moments."""
    return Problem(_outer_of_moments, _inner_of_moments, domain, _argmin_of_moments)


class RunningMoments(NamedTuple):
    """Sums of the moments of all rounds before each round.

    The moments of consecutive rounds are a difference of two sums, so that a window whose length is
    not known beforehand costs what w = 1 does. The sums are in double precision, as `high + low`
    where arrays have single precision, so that differences are as precise as sums over the rounds.
    """

    high: PyTree
    low: PyTree

    @classmethod
    def of(cls, instance: Instance) -> "RunningMoments":
        """Return the sums of a stream of `dynamic_regression`, with leaves [T + 1, ...]."""
        terms = {name: _moments(instance.rounds[name]) for name in ("training", "validation")}
        sums = jax.tree.map(lambda leaf: np.cumsum(np.insert(leaf, 0, 0, axis=0), axis=0), terms)
        high = jax.tree.map(lambda leaf: jnp.asarray(leaf, float), sums)
        left = jax.tree.map(lambda leaf, near: leaf - np.asarray(near, leaf.dtype), sums, high)
        return cls(high, jax.tree.map(lambda leaf: jnp.asarray(leaf, float), left))

    def between(self, start: tuple[Array, ...], stop: tuple[Array, ...]) -> PyTree:
        """Return the mean of the moments of rounds start, ..., stop - 1, counted from 0.

        Both may begin with indices of other axes, such as that of seeds.
        """
        length = (stop[-1] - start[-1]).astype(float)
        return jax.tree.map(
            lambda high, low: ((high[stop] - high[start]) + (low[stop] - low[start])) / length,
            self.high,
            self.low,
        )


def _starts(rounds: PyTree, window: Window) -> np.ndarray | None:
    """Return where the regime of each round began, for a window that is cut by "reset"."""
    if window.cut is None or window.size == 1:
        return None
    if not isinstance(window.cut, AtReset):
        raise ValueError(
            f"window.cut must be None or 'reset' for windowed moments, but is {window.cut!r}: "
            f"where a detector cuts is known when the stream is played."
        )
    if "reset" not in rounds:
        raise ValueError(
            "instance must come from dynamic_regression(mark_changes=True) for a window that is "
            "cut by 'reset', but its rounds have no leaf 'reset'."
        )
    reset = np.asarray(rounds["reset"])
    return np.maximum.accumulate(np.where(reset, np.arange(len(reset)), 0))


def _moments(data: tuple[Array, Array]) -> tuple[np.ndarray, ...]:
    """Return A, c, k and 1 of each round."""
    a, b = (np.asarray(leaf, np.float64) for leaf in data)
    if a.ndim == 2:
        a, b = a[:, None], b[:, None]
    samples = a.shape[1]
    return (
        np.einsum("tni,tnj->tij", a, a) / samples,
        np.einsum("tni,tn->ti", a, b) / samples,
        np.einsum("tn,tn->t", b, b) / (2 * samples),
        np.ones(len(a)),
    )


def _averages(
    data: tuple[Array, Array], window: Window, starts: np.ndarray | None
) -> tuple[Array, ...]:
    own = None if window.size == 1 else starts
    return tuple(jnp.asarray(_average(part, window, own), float) for part in _moments(data))


def _average(terms: np.ndarray, window: Window, starts: np.ndarray | None) -> np.ndarray:
    """Return (1/W) sum_i u_i terms_{t-i} for every t, by a recurrence for weights that are powers.

    The sum begins where the regime of the round starts, if `starts` is given.
    """
    horizon, size = len(terms), window.size
    u = np.asarray(window.weights, np.float64)
    decay = float(u[1]) if size > 1 else 1.0
    if not np.allclose(u, decay ** np.arange(size), rtol=1e-5, atol=1e-30):
        raise ValueError("window.weights must be powers of a decay for windowed moments.")
    start = np.zeros(horizon, int) if starts is None else starts
    age = np.arange(horizon) - start
    # s_t = terms_t + decay s_{t-1} is the sum over all of the regime; what left the window goes.
    sums = np.array(terms)
    for t in np.flatnonzero(age):
        sums[t] += decay * sums[t - 1]
    left = np.flatnonzero(age >= size)
    sums[left] = sums[left] - decay**size * sums[left - size]
    seen = np.cumsum(decay ** np.arange(min(size, horizon)))
    weight = seen[np.minimum(age, len(seen) - 1)]
    full = np.sum(decay ** np.arange(size))
    total = weight if window.normalise == "seen" else np.full(horizon, full)
    return sums / total.reshape((-1,) + (1,) * (terms.ndim - 1))


def _quadratic(y: Array, moments: tuple[Array, ...]) -> Array:
    a, c, k, _ = moments
    return 0.5 * y @ a @ y - c @ y + k


def _outer_of_moments(x: Array, y: Array, round: PyTree) -> Array:
    return _quadratic(y, round["validation"])


def _inner_of_moments(x: Array, y: Array, round: PyTree) -> Array:
    share = round["training"][3]
    return _quadratic(y, round["training"]) + share * jnp.sum(jnp.exp(x) * y**2)


def _argmin_of_moments(x: Array, round: PyTree) -> Array:
    a, c, _, share = round["training"]
    penalty = share * jnp.broadcast_to(2 * jnp.exp(x), c.shape)
    return jnp.linalg.solve(a + jnp.diag(penalty), c)
