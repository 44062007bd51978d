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

from .._support.checks import BelowOne, Count, NonNegative, Number, Seed, checked
from .._support.trees import PyTree
from ..domain import Box
from ..problem import Problem
from .instance import Instance, in_rounds, squared_error


@checked
def dynamic_regression(
    horizon: Count = 5000,
    stages: Count = 3,
    outer_dim: int = 1,
    inner_dim: Count = 5,
    *,
    samples: Count = 1,
    noise: NonNegative = 0.1,
    correlation: BelowOne = 0.0,
    lower: Number = -8.0,
    upper: Number = 2.0,
    mark_changes: bool = False,
    seed: Seed = 0,
) -> Instance:
    """Return the stream of Section 4.1; what the paper leaves open is marked as our choice.

    **Arguments:**

    - `horizon`, `stages`: T rounds in S stages of equal length (the last takes the remainder).
    - `outer_dim`: d1, 1 (one penalty) or `inner_dim` (one for each feature); `inner_dim`: d2.
    - `samples`: training samples per round, and as many for validation; 1 in the paper.
    - `noise`: targets are a^T y_s + e with e uniform in [0, noise], as in the paper. Our choice:
      features are Gaussian with unit variance and pairwise `correlation`; the model y_s of a stage
      is standard normal.
    - `lower`, `upper`: X = [lower, upper]^d1; x_1 is its middle and y_1 = 0 (our choice).
    - `mark_changes`: whether rounds have a leaf `reset`, true where a stage begins, for
      `Window(cut="reset")`.

    A round holds `training` and `validation`, each (a, b), and `reset` if `mark_changes`.
    """
    if outer_dim not in (1, inner_dim):
        raise ValueError(
            f"outer_dim must be 1 (one penalty) or inner_dim = {inner_dim} (one for each feature), "
            f"but got {outer_dim!r}."
        )
    if stages > horizon:
        raise ValueError(f"stages must be at most horizon = {horizon}, but got {stages!r}.")
    rng = np.random.default_rng(seed)
    models = rng.standard_normal((stages, inner_dim))
    model = models[stage_of(horizon, stages)]

    def draw() -> tuple[np.ndarray, np.ndarray]:
        shape = (horizon, samples, inner_dim)
        common = rng.standard_normal((horizon, samples, 1))
        own = rng.standard_normal(shape)
        a = np.sqrt(correlation) * common + np.sqrt(1 - correlation) * own
        b = np.einsum("tnd,td->tn", a, model) + rng.uniform(0, noise, shape[:2])
        if samples == 1:
            a, b = a[:, 0], b[:, 0]
        return a, b

    best = BestPenalty(lower, upper) if outer_dim == samples == 1 else None
    problem = Problem(outer, inner, Box(lower, upper), _inner_argmin, best)
    rounds = in_rounds(horizon, {"training": draw(), "validation": draw()})
    if mark_changes:
        rounds["reset"] = jnp.asarray(np.diff(stage_of(horizon, stages), prepend=0) > 0)
    middle = jnp.full(outer_dim, (lower + upper) / 2, float)
    return Instance(problem, rounds, middle, jnp.zeros(inner_dim))


def stage_of(horizon: int, stages: int) -> np.ndarray:
    """Return the stage, from 0, that each round belongs to."""
    return np.minimum(np.arange(horizon) // (horizon // stages), stages - 1)


def outer(x: Array, y: Array, round: PyTree) -> Array:
    """Return f_t, the squared error on the validation samples."""
    return squared_error(y, round["validation"])


def inner(x: Array, y: Array, round: PyTree) -> Array:
    """Return g_t, the squared error on the training samples plus the penalty."""
    return squared_error(y, round["training"]) + jnp.sum(jnp.exp(x) * y**2)


def _inner_argmin(x: Array, round: PyTree) -> Array:
    a, b = (jnp.atleast_2d(round["training"][0]), jnp.atleast_1d(round["training"][1]))
    penalty = jnp.broadcast_to(2 * jnp.exp(x), a.shape[1:])
    return jnp.linalg.solve(a.T @ a / len(a) + jnp.diag(penalty), a.T @ b / len(a))


@dataclasses.dataclass(frozen=True)
class BestPenalty:
    """The best leader x*_t for one penalty and one sample.

    Compared by value, so that equal problems share compiled programs.
    """

    lower: float
    upper: float

    def __call__(self, round: PyTree) -> Array:
        """Return the x for which the prediction of the validation sample is nearest to its target.

        The prediction is c / (|a|^2 + 2 exp(x)) with c = b a . a_validation.
        """
        (a, b), (seen, target) = round["training"], round["validation"]
        c = b * (a @ seen)
        # No penalty changes the sign of the prediction; with a target of the other sign the largest
        # penalty is best.
        reached = c * target > 0
        penalty = jnp.where(reached, c / jnp.where(reached, target, 1) - a @ a, jnp.inf)
        most, least = 2 * np.exp(self.upper), 2 * np.exp(self.lower)
        x = jnp.log(jnp.clip(penalty, least, most) / 2)
        return jnp.clip(x, self.lower, self.upper)[None]
