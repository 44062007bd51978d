"""The streams of a group of runs, their stage comparators, and losses as suffered."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np

from ..._support.trees import PyTree
from ...problems import Instance, dynamic_regression
from ...problems.regression import stage_of
from .config import SCENARIOS, Config, Group


@functools.lru_cache(maxsize=4)
def instances(config: Config, group: Group) -> tuple[Instance, ...]:
    """One stream for each seed."""
    return tuple(
        dynamic_regression(
            config.horizon,
            group.stages,
            group.outer_dim,
            config.inner_dim,
            lower=config.lower,
            upper=config.upper,
            noise=SCENARIOS[group.scenario].noise,
            correlation=SCENARIOS[group.scenario].correlation,
            seed=seed,
        )
        for seed in range(config.seeds)
    )


def stacked(streams: tuple[Instance, ...]) -> PyTree:
    """The rounds of all seeds, [seeds, T, ...]."""
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *(s.rounds for s in streams))


def start(config: Config, group: Group) -> jnp.ndarray:
    """x_1."""
    return jnp.full(group.outer_dim, config.start, float)


@dataclasses.dataclass(frozen=True)
class Comparators:
    """The best fixed pair of each stage: x_s* and y_s*(x_s*) of the stage's summed problem."""

    outer: np.ndarray
    inner: np.ndarray
    losses: np.ndarray

    def per_round(self, stages: int) -> tuple[np.ndarray, np.ndarray]:
        """x_s* and y_s* of the stage that each round belongs to, [seeds, T, d]."""
        of = stage_of(self.losses.shape[1], stages)
        return self.outer[:, of], self.inner[:, of]

    def path(self, stages: int) -> np.ndarray:
        """P_2 + Y_2 of the comparators up to each round, [seeds, T]."""
        squared = sum(np.sum(np.diff(z, axis=1) ** 2, axis=-1) for z in self.per_round(stages))
        return np.cumsum(np.pad(squared, ((0, 0), (1, 0))), axis=1)


class StageProblem:
    """The summed problem of one stage: mean validation loss of the model fitted to all of its
    training samples, as a function of x. In float64."""

    def __init__(self, stream: Instance, members: np.ndarray):
        a, b = (np.asarray(leaf, np.float64)[members] for leaf in stream.rounds["training"])
        self.gram, self.pull = a.T @ a / len(a), a.T @ b / len(a)
        v, w = (np.asarray(leaf, np.float64)[members] for leaf in stream.rounds["validation"])
        self.valid_gram, self.valid_pull = v.T @ v / len(v), v.T @ w / len(v)
        self.constant = 0.5 * np.mean(w**2)

    def answers(self, x: np.ndarray) -> np.ndarray:
        """y_s*(x) for points [n, d1]."""
        penalty = np.broadcast_to(2 * np.exp(x), (len(x), len(self.pull)))
        bent = self.gram + penalty[:, :, None] * np.eye(len(self.pull))
        return np.linalg.solve(bent, self.pull[None, :, None])[..., 0]

    def losses(self, x: np.ndarray) -> np.ndarray:
        """Mean validation loss for points [n, d1]."""
        y = self.answers(x)
        bent = 0.5 * np.einsum("ni,ij,nj->n", y, self.valid_gram, y)
        return bent - y @ self.valid_pull + self.constant

    def best(self, start: np.ndarray, lower: float, upper: float) -> np.ndarray:
        """x_s*. A fine grid along each coordinate in turn, refined: the loss is smooth with few
        valleys, and a grid is not caught, as a descent is, where exp(x) no longer matters."""
        best = start.copy()
        for _ in range(1 if len(best) == 1 else 20):
            for coordinate in range(len(best)):
                low, high = lower, upper
                for _ in range(4):
                    tried = np.linspace(low, high, 101)
                    points = np.repeat(best[None], len(tried), axis=0)
                    points[:, coordinate] = tried
                    best = points[np.argmin(self.losses(points))]
                    width = (high - low) / 25
                    low = max(lower, best[coordinate] - width)
                    high = min(upper, best[coordinate] + width)
        return best


@functools.lru_cache(maxsize=4)
def stage_problems(config: Config, group: Group) -> tuple[tuple[StageProblem, ...], ...]:
    """For each seed, the problems of its stages."""
    of = stage_of(config.horizon, group.stages)
    return tuple(
        tuple(StageProblem(stream, of == stage) for stage in range(group.stages))
        for stream in instances(config, group)
    )


@functools.lru_cache(maxsize=4)
def comparators(config: Config, group: Group) -> Comparators:
    """Stage comparators of all seeds."""
    first = np.full(group.outer_dim, config.start)
    outer, inner, losses = [], [], []
    of = stage_of(config.horizon, group.stages)
    pairs = zip(instances(config, group), stage_problems(config, group), strict=True)
    for stream, stages in pairs:
        xs = np.asarray([stage.best(first, config.lower, config.upper) for stage in stages])
        ys = np.asarray([stage.answers(x[None])[0] for stage, x in zip(stages, xs, strict=True)])
        outer.append(xs)
        inner.append(ys)
        losses.append(suffered(stream, ys[of][None])[0])
    return Comparators(np.asarray(outer), np.asarray(inner), np.asarray(losses))


def excess(
    config: Config, group: Group, seed: int, times: np.ndarray, points: np.ndarray
) -> np.ndarray:
    """What the decisions x_t [n, d1] at rounds `times` cost a round over the best x of their
    stage, if the follower knew the whole stage: how much a distance in x matters."""
    stages = stage_problems(config, group)[seed]
    best = comparators(config, group).outer[seed]
    of = stage_of(config.horizon, group.stages)[times - 1]
    result = np.empty(len(times))
    for stage, problem in enumerate(stages):
        here = of == stage
        if here.any():
            result[here] = problem.losses(points[here]) - problem.losses(best[stage][None])
    return result


def suffered(stream: Instance, inner_vars: np.ndarray) -> np.ndarray:
    """f_t(y_t) for models [n, T, d]: the loss on the validation sample when it arrives, [n, T]."""
    a, b = (np.asarray(leaf, np.float64) for leaf in stream.rounds["validation"])
    with np.errstate(over="ignore", invalid="ignore"):
        return 0.5 * (np.einsum("td,ntd->nt", a, inner_vars) - b) ** 2


def bilevel_regret(config: Config, group: Group, outer_vars: np.ndarray) -> np.ndarray | None:
    """BD-Reg of the definition, with one comparator for each round: [seeds, T].

    For one penalty only: a round's own problem is then a function of one number, minimised over a
    grid together with the decision played, so that no term is negative.
    """
    if group.outer_dim != 1:
        return None
    regrets = []
    for seed, stream in enumerate(instances(config, group)):
        played = _own_loss(stream, outer_vars[seed, :, 0].astype(np.float64))
        regrets.append(np.cumsum(played - np.minimum(_own_best(config, group)[seed], played)))
    return np.asarray(regrets)


@functools.lru_cache(maxsize=4)
def _own_best(config: Config, group: Group) -> np.ndarray:
    tried = np.linspace(config.lower, config.upper, 401)
    return np.asarray(
        [
            np.min([_own_loss(stream, np.full(config.horizon, x)) for x in tried], axis=0)
            for stream in instances(config, group)
        ]
    )


def _own_loss(stream: Instance, x: np.ndarray) -> np.ndarray:
    """f_t(y*_t(x_t)): the answer to one training sample is a b / (|a|^2 + 2 exp(x))."""
    a, b = (np.asarray(leaf, np.float64) for leaf in stream.rounds["training"])
    v, w = (np.asarray(leaf, np.float64) for leaf in stream.rounds["validation"])
    shrunk = b / (np.sum(a**2, axis=1) + 2 * np.exp(x))
    return 0.5 * (np.sum(a * v, axis=1) * shrunk - w) ** 2
