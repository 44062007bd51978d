"""The streams of a group of runs, their stage comparators, and losses as suffered."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np

from ..._tree import PyTree
from ...problems import Instance, dynamic_regression
from ...problems.regression import stage_of
from .config import SCENARIOS, Config


@dataclasses.dataclass(frozen=True)
class Group:
    """What all methods of a comparison share."""

    scenario: str
    stages: int
    outer_dim: int

    def label(self) -> str:
        """As it stands in the table's setting column."""
        return f"scenario={self.scenario}; stages={self.stages}; d1={self.outer_dim}"

    def name(self) -> str:
        """As it stands in the name of a part."""
        return f"{self.scenario}-S{self.stages}-d{self.outer_dim}"


def groups(config: Config) -> list[Group]:
    """All groups of a run."""
    return [
        Group(scenario, stages, outer_dim)
        for outer_dim in config.outer_dims
        for scenario in config.scenarios
        for stages in config.stages
    ]


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


@functools.lru_cache(maxsize=4)
def comparators(config: Config, group: Group) -> Comparators:
    """Stage comparators of all seeds, in float64."""
    outer, inner, losses = [], [], []
    for stream in instances(config, group):
        found = [
            _best_pair(config, group, stream, stage_of(config.horizon, group.stages) == stage)
            for stage in range(group.stages)
        ]
        outer.append([x for x, _ in found])
        inner.append([y for _, y in found])
        of = stage_of(config.horizon, group.stages)
        losses.append(suffered(stream, np.asarray([y for _, y in found])[of][None])[0])
    return Comparators(np.asarray(outer), np.asarray(inner), np.asarray(losses))


def _best_pair(
    config: Config, group: Group, stream: Instance, members: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """argmin_x sum_t f_t(y(x)) with y(x) = argmin_y sum_t g_t(x, y), over the rounds of a stage.

    A fine grid along each coordinate in turn, refined: the sum is smooth with few valleys, and a
    grid cannot be caught on the plateau where exp(x) no longer matters, as a descent can.
    """
    a, b = (np.asarray(leaf, np.float64)[members] for leaf in stream.rounds["training"])
    gram, pull = a.T @ a / len(a), a.T @ b / len(a)
    v, w = (np.asarray(leaf, np.float64)[members] for leaf in stream.rounds["validation"])
    valid_gram, valid_pull = v.T @ v / len(v), v.T @ w / len(v)

    def answers(x: np.ndarray) -> np.ndarray:
        penalty = np.broadcast_to(2 * np.exp(x), (len(x), len(pull)))
        return np.linalg.solve(gram + penalty[:, :, None] * np.eye(len(pull)), pull[None, :, None])[
            ..., 0
        ]

    def losses(x: np.ndarray) -> np.ndarray:
        y = answers(x)
        return 0.5 * np.einsum("ni,ij,nj->n", y, valid_gram, y) - y @ valid_pull

    best = np.full(group.outer_dim, config.start)
    for _ in range(1 if group.outer_dim == 1 else 20):
        for coordinate in range(group.outer_dim):
            low, high = config.lower, config.upper
            for _ in range(4):
                tried = np.linspace(low, high, 101)
                points = np.repeat(best[None], len(tried), axis=0)
                points[:, coordinate] = tried
                best = points[np.argmin(losses(points))]
                width = (high - low) / 25
                low = max(config.lower, best[coordinate] - width)
                high = min(config.upper, best[coordinate] + width)
    return best, answers(best[None])[0]


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
