"""Online hyperparameter learning for dynamic regression, Section 4.1 of the paper.

    g_t(x, y) = (a_t^T y - b_t)^2 / 2 + y^T C(x) y    on a training sample, C(x) = diag(exp(x_i)),
    f_t(y)    = (a_t^T y - b_t)^2 / 2                 on a validation sample.

The true model changes abruptly at the start of each of S stages. With d1 = 1, C(x) is exp(x_1)
times the identity.
"""

import dataclasses

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from .._support import validation
from .._support.trees import PyTree
from ..domain import Box
from ..problem import Problem
from ..window import Window
from .instance import Instance


def dynamic_regression(
    horizon: int = 5000,
    stages: int = 3,
    outer_dim: int = 1,
    inner_dim: int = 5,
    *,
    samples: int = 1,
    noise: float = 0.1,
    correlation: float = 0.0,
    lower: float = -8.0,
    upper: float = 2.0,
    seed: int = 0,
) -> Instance:
    """The stream of Section 4.1. What the paper leaves open is a choice here, and says so.

    **Arguments:**

    - `horizon`, `stages`: T rounds in S stages of equal length (the last takes the remainder).
    - `outer_dim`: d1, 1 (one penalty) or `inner_dim` (one for each feature); `inner_dim`: d2.
    - `samples`: training samples per round, and as many for validation; 1 in the paper.
    - `noise`: targets are a^T y_s + e with e uniform in [0, noise], as in the paper. Ours: features
      are Gaussian with unit variance and pairwise `correlation`; the model y_s of a stage is
      standard normal.
    - `lower`, `upper`: X = [lower, upper]^d1, x_1 in its middle and y_1 = 0: ours too.

    A round holds `training` and `validation`, each (a, b).
    """
    for value, name in ((horizon, "horizon"), (stages, "stages"), (samples, "samples")):
        validation.count(value, name)
    if outer_dim not in (1, inner_dim):
        raise ValueError(
            f"outer_dim must be 1 (one penalty) or inner_dim = {inner_dim} (one for each feature), "
            f"but got {outer_dim!r}."
        )
    if not 0 <= correlation < 1:
        raise ValueError(f"correlation must be in [0, 1), but got {correlation!r}.")
    if stages > horizon:
        raise ValueError(f"stages must be at most horizon = {horizon}, but got {stages!r}.")
    rng = np.random.default_rng(seed)
    models = rng.standard_normal((stages, inner_dim))
    model = models[stage_of(horizon, stages)]

    def draw() -> tuple[Array, Array]:
        shape = (horizon, samples, inner_dim)
        common = rng.standard_normal((horizon, samples, 1))
        own = rng.standard_normal(shape)
        a = np.sqrt(correlation) * common + np.sqrt(1 - correlation) * own
        b = np.einsum("tnd,td->tn", a, model) + rng.uniform(0, noise, shape[:2])
        if samples == 1:
            a, b = a[:, 0], b[:, 0]
        return jnp.asarray(a, float), jnp.asarray(b, float)

    best = BestPenalty(lower, upper) if outer_dim == samples == 1 else None
    problem = Problem(outer, inner, Box(lower, upper), _inner_argmin, best)
    rounds = {"training": draw(), "validation": draw()}
    middle = jnp.full(outer_dim, (lower + upper) / 2, float)
    return Instance(problem, rounds, middle, jnp.zeros(inner_dim))


def stage_of(horizon: int, stages: int) -> np.ndarray:
    """The stage, from 0, that each round belongs to."""
    return np.minimum(np.arange(horizon) // (horizon // stages), stages - 1)


def _squared_error(y: Array, data: tuple[Array, Array]) -> Array:
    a, b = data
    return 0.5 * jnp.mean((a @ y - b) ** 2)


def outer(x: Array, y: Array, round: PyTree) -> Array:
    """f_t: squared error on the validation samples."""
    return _squared_error(y, round["validation"])


def inner(x: Array, y: Array, round: PyTree) -> Array:
    """g_t: squared error on the training samples, and the penalty."""
    return _squared_error(y, round["training"]) + jnp.sum(jnp.exp(x) * y**2)


def _inner_argmin(x: Array, round: PyTree) -> Array:
    a, b = (jnp.atleast_2d(round["training"][0]), jnp.atleast_1d(round["training"][1]))
    penalty = jnp.broadcast_to(2 * jnp.exp(x), a.shape[1:])
    return jnp.linalg.solve(a.T @ a / len(a) + jnp.diag(penalty), a.T @ b / len(a))


@dataclasses.dataclass(frozen=True)
class BestPenalty:
    """x*_t of one penalty and one sample. Compared by value: equal problems share programs."""

    lower: float
    upper: float

    def __call__(self, round: PyTree) -> Array:
        """The x with which c / (|a|^2 + 2 exp(x)), c = b a . a_validation, which is said of the
        validation sample, is nearest to its target."""
        (a, b), (seen, target) = round["training"], round["validation"]
        c = b * (a @ seen)
        # Nothing says a number of the other sign; the largest penalty is nearest to it.
        reached = c * target > 0
        penalty = jnp.where(reached, c / jnp.where(reached, target, 1) - a @ a, jnp.inf)
        most, least = 2 * np.exp(self.upper), 2 * np.exp(self.lower)
        x = jnp.log(jnp.clip(penalty, least, most) / 2)
        return jnp.clip(x, self.lower, self.upper)[None]


def windowed(instance: Instance, window: Window) -> Instance:
    """A dynamic regression stream whose rounds hold the moments of the window: the same decisions,
    at the cost of w = 1.

    For squared losses the average over a window is again a quadratic in y,

        (1/W) sum_i u_i (a_{t-i}^T y - b_{t-i})^2 / 2 = y^T A_t y / 2 - c_t^T y + k_t,

    whose moments A_t, c_t, k_t follow from those of the round before. OAGD with w = 1 on these
    rounds plays what OAGD with the window plays on the original ones (with curvature that is not
    "own"), in time that does not depend on w: this is what makes w = T affordable.

    `instance` is from `dynamic_regression`. With `window.follower="current"` the follower trains on
    the current round and the window reaches the leader only (the same as `curvature="current"`);
    with `"average"` it trains on the window's average (the same as `curvature="window"`).

    A round holds `training` and `validation` moments (A, c, k, share), where `share` is the weight
    of the rounds seen, by which the penalty is diluted early on.
    """
    validation.one_of(window.follower, ("current", "average"), "window.follower")
    training = window if window.follower == "average" else Window(1)
    rounds = {
        "training": _moments(instance.rounds["training"], training),
        "validation": _moments(instance.rounds["validation"], window),
    }
    problem = Problem(
        _outer_of_moments, _inner_of_moments, instance.problem.domain, _argmin_of_moments
    )
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


def _outer_of_moments(x: Array, y: Array, round: PyTree) -> Array:
    return _quadratic(y, round["validation"])


def _inner_of_moments(x: Array, y: Array, round: PyTree) -> Array:
    share = round["training"][3]
    return _quadratic(y, round["training"]) + share * jnp.sum(jnp.exp(x) * y**2)


def _argmin_of_moments(x: Array, round: PyTree) -> Array:
    a, c, _, share = round["training"]
    penalty = share * jnp.broadcast_to(2 * jnp.exp(x), c.shape)
    return jnp.linalg.solve(a + jnp.diag(penalty), c)
