"""The streams of a group of runs, and what is measured on them: stage comparators, BD-Reg, losses.

Everything is measured in float64: where exp(x) no longer matters the loss is flat in x, and a
search in float32 stalls there.
"""

import dataclasses
import functools
from collections.abc import Iterable, Sequence

import jax
import jax.numpy as jnp
import numpy as np

from ... import regret
from ..._support.trees import PyTree
from ...problem import Problem
from ...problems import Instance, dynamic_regression, windowed
from ...problems.regression import stage_of
from ...window import Window
from .config import SCENARIOS, Config, Group

SOLVER = regret.Solver(tolerance=1e-8)
"""A loss is off by the square of this, and five penalties at once come no nearer than 1e-10."""


@functools.lru_cache(maxsize=4)
def instances(config: Config, group: Group) -> tuple[Instance, ...]:
    """One stream for each seed."""
    sizes = (config.horizon, group.stages, group.outer_dim, config.inner_dim)
    law = SCENARIOS[group.scenario] | {"lower": config.lower, "upper": config.upper}
    law |= {"mark_changes": True}
    return tuple(dynamic_regression(*sizes, **law, seed=seed) for seed in range(config.seeds))


def stack(trees: Iterable[PyTree]) -> PyTree:
    """One tree of many: rounds of all seeds, [seeds, T, ...], for one. Here and below arrays are
    cut on the host: every shape that JAX cuts is compiled for."""
    return jax.tree.map(lambda *leaves: jnp.asarray(np.stack(leaves)), *trees)


def taken(tree: PyTree, index: np.ndarray | slice | int | tuple[int, ...]) -> PyTree:
    """Part of every leaf."""
    return jax.tree.map(lambda leaf: jnp.asarray(np.asarray(leaf)[index]), tree)


def start(config: Config, group: Group) -> jnp.ndarray:
    """x_1."""
    return jnp.full(group.outer_dim, config.start, float)


def suffered(stream: Instance, inner_vars: np.ndarray) -> np.ndarray:
    """f_t(y_t) for models [n, T, d]: the loss on the validation sample when it arrives, [n, T]."""
    a, b = (np.asarray(leaf, np.float64) for leaf in stream.rounds["validation"])
    with np.errstate(over="ignore", invalid="ignore"):
        return 0.5 * (np.einsum("td,ntd->nt", a, inner_vars) - b) ** 2


@dataclasses.dataclass(frozen=True)
class Comparators:
    """The best fixed pair of each stage: x_s* and y_s*(x_s*) of the stage's summed problem.

    `problem` has a stage as its round; `rounds` and `found` have one for each seed and stage.
    """

    problem: Problem
    rounds: PyTree
    found: regret.Comparator
    of: np.ndarray
    """The stage of each round of the stream."""
    losses: np.ndarray
    """What they lose in each round, [seeds, T]."""

    def per_round(self) -> tuple[np.ndarray, np.ndarray]:
        """x_s* and y_s* of the stage that each round belongs to, [seeds, T, d]."""
        shape = (len(self.losses), self.of.max() + 1, -1)
        x, y = (np.asarray(var) for var in (self.found.outer_var, self.found.inner_var))
        return x.reshape(shape)[:, self.of], y.reshape(shape)[:, self.of]

    def path(self) -> np.ndarray:
        """P_2 + Y_2 of the comparators up to each round, [seeds, T]."""
        with jax.enable_x64(True):
            return np.asarray(
                [regret.path_of(pairs) for pairs in zip(*self.per_round(), strict=True)]
            )

    def excess(self, times: np.ndarray, outer_vars: np.ndarray) -> np.ndarray:
        """What the decisions x_t, [seeds, n, d1] at rounds `times`, cost per round over the best x
        of their stage, if the follower knew the whole stage: how much a distance in x matters."""
        seeds, stages = len(self.losses), self.of.max() + 1
        index = (stages * np.arange(seeds)[:, None] + self.of[times - 1]).ravel()
        with jax.enable_x64(True):
            rounds, found = taken((self.rounds, self.found), index)
        return _dynamic(self.problem, outer_vars, rounds, found)


def stage_comparators(
    streams: Sequence[Instance], stages: int, outer_start: np.ndarray, room: int = 0
) -> Comparators:
    """Of all seeds at once. What a window over all of a stage sees at its end is the stage's
    summed problem: its moments, one round of `windowed`.

    With `room` for more stages, streams that have fewer are searched by the same program."""
    of = stage_of(len(streams[0].rounds["training"][1]), stages)
    with jax.enable_x64(True):
        ends = []
        for stream in streams:
            for stage in range(stages):
                members = _in_double(stream.rounds, of == stage)
                whole = Window(int((of == stage).sum()), normalise="seen", follower="average")
                view = windowed(dataclasses.replace(stream, rounds=members), whole)
                ends.append(taken(view.rounds, -1))
        wanted = len(ends)
        ends += ends[-1:] * (len(streams) * room - wanted)
        rounds = stack(ends)
        first = jnp.asarray(outer_start, float)
        found = regret.outer_solutions(view.problem, rounds, outer_start=first, solver=SOLVER)
        rounds, found = taken((rounds, found), slice(wanted))
    inner = np.asarray(found.inner_var).reshape(len(streams), stages, -1)
    losses = [suffered(one, ys[of][None])[0] for one, ys in zip(streams, inner, strict=True)]
    return Comparators(view.problem, rounds, found, of, np.asarray(losses))


@functools.lru_cache(maxsize=4)
def comparators(config: Config, group: Group) -> Comparators:
    """Stage comparators of all seeds: those of the first question, or the first ones of them."""
    if config != config.for_tuning(group.outer_dim):
        many, kept = comparators(config.for_tuning(group.outer_dim), group), config.seeds
        with jax.enable_x64(True):
            rounds, found = taken((many.rounds, many.found), slice(kept * group.stages))
        return dataclasses.replace(many, rounds=rounds, found=found, losses=many.losses[:kept])
    first = np.full(group.outer_dim, config.start)
    return stage_comparators(instances(config, group), group.stages, first, max(config.stages))


def bilevel_regret(config: Config, group: Group, outer_vars: np.ndarray) -> np.ndarray | None:
    """BD-Reg of the definition, with one comparator for each round: [seeds, T]. For one penalty
    only: with five, one sample is fitted in any number of ways."""
    if group.outer_dim != 1:
        return None
    problem, rounds, found = _own_comparators(config, group)
    return np.cumsum(_dynamic(problem, outer_vars, rounds, found), axis=1)


@functools.lru_cache(maxsize=4)
def _own_comparators(config: Config, group: Group) -> tuple[Problem, PyTree, regret.Comparator]:
    """x*_t of every round of every seed, and the rounds, [seeds x T, ...]."""
    streams = instances(config, group)
    with jax.enable_x64(True):
        whole = stack(_in_double(stream.rounds) for stream in streams)
        rounds = jax.tree.map(lambda leaf: jnp.asarray(np.concatenate(leaf)), whole)
        problem, first = streams[0].problem, start(config, group)
        found = regret.outer_solutions(problem, rounds, outer_start=first, solver=SOLVER)
        return problem, rounds, found


def _dynamic(
    problem: Problem, outer_vars: np.ndarray, rounds: PyTree, found: regret.Comparator
) -> np.ndarray:
    """The terms of a dynamic regret, [seeds, n], of decisions [seeds, n, d1]."""
    with jax.enable_x64(True):
        flat = jnp.asarray(outer_vars.reshape(-1, outer_vars.shape[-1]), float)
        terms = regret.dynamic(problem, flat, rounds, comparators=found, solver=SOLVER).terms
        return np.asarray(terms).reshape(outer_vars.shape[:2])


def _in_double(rounds: PyTree, members: np.ndarray | slice = slice(None)) -> PyTree:
    return jax.tree.map(lambda leaf: jnp.asarray(np.asarray(leaf, np.float64)[members]), rounds)
