r"""The lower-bound game: whoever plays it, expected regret is at least the expected $S_{2,T}$.

In `obax.problems.lower_bound_game` the regret of x_1..x_T is $12 \sum_t (x_t - a_t)^2$ and
$\mathbb{E} S_{2,T} = 6 (T - 1)$. No strategy sees a_t before it plays x_t, so that
$\mathbb{E} (x_t - a_t)^2 \geq 1$ and the regret is at least 12 T.
"""

import dataclasses
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from .. import regret
from .._support.trees import PyTree
from ..algorithms import OAGD
from ..hypergradient import Dense
from ..online import run
from ..problem import Problem
from ..problems import lower_bound_game
from ..theory import InverseTime
from .families.ingredients import Numbers
from .measure.evidence import SOLVER

SEEDS = 1000
# The curvature of phi_t, which the steps of the strongly convex static setting are made from.
MU_F = 24.0
STEP_SIZES = (0.001, 0.002, 0.005, 0.01, 0.02, 0.04)

Strategy = Callable[[Problem, PyTree], Numbers]


@dataclasses.dataclass(frozen=True)
class GameRow:
    """Means over seeds, each with a 95% confidence interval."""

    strategy: str
    regret: float
    regret_interval: tuple[float, float]
    S_2: float
    S_2_interval: tuple[float, float]
    difference_interval: tuple[float, float]
    """Of regret - S_2, seed by seed: narrower than the two apart, because they vary together."""

    @property
    def violated(self) -> bool:
        """Whether the whole interval of regret - S_2 is below zero, or not a number."""
        return not self.difference_interval[1] >= 0.0


def game(
    horizon: int, seed: int = 0, seeds: int = SEEDS, strategies: dict[str, Strategy] | None = None
) -> list[GameRow]:
    """Play the game `seeds` times with every strategy; the draws are the same for all of them."""
    rows = []
    with jax.enable_x64(True), jax.numpy_dtype_promotion("standard"):
        games = [lower_bound_game(horizon, seed * seeds + number) for number in range(seeds)]
        problem = games[0].problem
        rounds = {
            name: jnp.asarray(np.stack([np.asarray(one.rounds[name]) for one in games]))
            for name in ("a", "b")
        }
        S_2 = np.asarray(_squared_paths(problem, rounds))
        for name, strategy in (STRATEGIES if strategies is None else strategies).items():
            decisions = jnp.asarray(strategy(problem, rounds))
            suffered = np.asarray(_regrets(problem, decisions, rounds))
            own, paths, gap = map(_interval, (suffered, S_2, suffered - S_2))
            rows.append(GameRow(name, float(suffered.mean()), own, float(S_2.mean()), paths, gap))
    return rows


def oagd(problem: Problem, rounds: PyTree) -> Numbers:
    """Play the library's OAGD, alpha_t = 2 / (mu_f t), on every seed. beta = 1 answers exactly."""

    def one(rounds: PyTree) -> Array:
        algorithm = OAGD(problem, InverseTime(2.0 / MU_F), 1.0, hypergradient=Dense())
        zero = jnp.zeros((), rounds["a"].dtype)
        state = algorithm.init(zero, zero, jax.tree.map(lambda leaf: leaf[0], rounds))
        return run(algorithm, state, rounds, on_rejected="skip")[1].outer_var

    return np.asarray(eqx.filter_jit(jax.vmap(one))(rounds))


def running_mean(problem: Problem, rounds: PyTree) -> Numbers:
    """Play the mean of x*_1..x*_{t-1} as x_t."""
    a = np.asarray(rounds["a"])
    return _shifted(np.cumsum(a, axis=1) / np.arange(1, a.shape[1] + 1))


def best_constant_step(problem: Problem, rounds: PyTree) -> Numbers:
    """Play gradient descent on phi_t with the constant step of a grid that is best in hindsight."""
    a = np.asarray(rounds["a"])
    tried = []
    for step in STEP_SIZES:
        x = np.zeros_like(a)
        for t in range(1, a.shape[1]):
            x[:, t] = x[:, t - 1] - step * MU_F * (x[:, t - 1] - a[:, t - 1])
        tried.append(x)
    return min(tried, key=lambda x: float(np.mean((x - a) ** 2)))


STRATEGIES: dict[str, Strategy] = {
    "OAGD": oagd,
    # The best that anybody can do: the expected regret is 12 T.
    "x_t = 0": lambda problem, rounds: np.zeros(rounds["a"].shape),
    # x_t = x*_{t-1}: the expected regret is 24 T - 12.
    "last optimum": lambda problem, rounds: _shifted(np.asarray(rounds["a"])),
    "running mean": running_mean,
    "best constant step": best_constant_step,
}


@eqx.filter_jit
def _regrets(problem: Problem, decisions: Array, rounds: PyTree) -> Array:
    return jax.lax.map(
        lambda of: regret.dynamic(problem, *of, solver=SOLVER).total, (decisions, rounds)
    )


@eqx.filter_jit
def _squared_paths(problem: Problem, rounds: PyTree) -> Array:
    return jax.lax.map(
        lambda own: regret.path_lengths(problem, own, 2, with_H=False, solver=SOLVER).S[-1], rounds
    )


def _shifted(points: Numbers) -> Numbers:
    return np.concatenate([np.zeros((len(points), 1)), points[:, :-1]], axis=1)


def _interval(values: Numbers) -> tuple[float, float]:
    mean, half = float(np.mean(values)), 1.96 * float(np.std(values, ddof=1)) / len(values) ** 0.5
    return mean - half, mean + half
