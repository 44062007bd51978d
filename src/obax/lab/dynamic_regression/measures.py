"""What is measured on the streams: losses suffered, stage comparators and BD-Reg.

Everything is measured in float64: where exp(x) no longer matters the loss is flat in x, and a
search in float32 stalls there.
"""

import dataclasses
import functools
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ... import regret
from ..._support.trees import PyTree
from ...problem import Problem
from ...problems import Instance, dynamic_regression, windowed
from ...problems.regression import stage_of
from ...window import Window
from .config import SCENARIOS, Config, Stream

SOLVER = regret.Solver(tolerance=1e-8)
"""The error of a loss is the square of this tolerance; with five penalties it stays above 1e-10."""


@functools.lru_cache(maxsize=4)
def instances(config: Config, stream: Stream) -> tuple[Instance, ...]:
    """Return the data of a stream, one instance for each seed."""
    sizes = (config.horizon, stream.stages, stream.outer_dim, config.inner_dim)
    options = SCENARIOS[stream.scenario] | {"lower": config.lower, "upper": config.upper}
    options |= {"mark_changes": True}
    return tuple(dynamic_regression(*sizes, **options, seed=seed) for seed in range(config.seeds))


def stack(trees: Iterable[PyTree]) -> PyTree:
    """Stack trees leaf by leaf, such as the rounds of all seeds into [seeds, T, ...].

    Here and below, arrays are cut in NumPy, because JAX would compile for every shape.
    """
    return jax.tree.map(lambda *leaves: jnp.asarray(np.stack(leaves)), *trees)


def take(tree: PyTree, index: np.ndarray | slice | int | tuple[int, ...]) -> PyTree:
    """Return part of every leaf."""
    return jax.tree.map(lambda leaf: jnp.asarray(np.asarray(leaf)[index]), tree)


def start(config: Config, stream: Stream) -> jnp.ndarray:
    """Return x_1."""
    return jnp.full(stream.outer_dim, config.start, float)


def losses_suffered(instance: Instance, inner_vars: np.ndarray) -> np.ndarray:
    """Return f_t(y_t), the loss on the validation sample when it arrives, [n, T].

    The models `inner_vars` are [n, T, d].
    """
    a, b = (np.asarray(leaf, np.float64) for leaf in instance.rounds["validation"])
    with np.errstate(over="ignore", invalid="ignore"):
        return 0.5 * (np.einsum("td,ntd->nt", a, inner_vars) - b) ** 2


class Comparators(NamedTuple):
    """The best fixed pair of each stage, x_s* and y_s*(x_s*), for the sum of the stage's losses.

    A round of `problem` is a stage; `rounds` and `solutions` have one for each seed and stage.
    """

    problem: Problem
    rounds: PyTree
    solutions: regret.Comparator
    stage: np.ndarray
    """The stage of each round of the stream."""
    losses: np.ndarray
    """Their loss in each round, [seeds, T]."""

    def per_round(self) -> tuple[np.ndarray, np.ndarray]:
        """Return x_s* and y_s* of the stage of each round, [seeds, T, d]."""
        shape = (len(self.losses), self.stage.max() + 1, -1)
        x, y = (np.asarray(var) for var in (self.solutions.outer_var, self.solutions.inner_var))
        return x.reshape(shape)[:, self.stage], y.reshape(shape)[:, self.stage]

    def path(self) -> np.ndarray:
        """Return P_2 + Y_2 of the comparators up to each round, [seeds, T]."""
        with jax.enable_x64(True):
            return np.asarray([*map(regret.path_of, zip(*self.per_round(), strict=True))])

    def excess(self, times: np.ndarray, outer_vars: np.ndarray) -> np.ndarray:
        """Return the extra loss of decisions x_t over the best x of their stage, by round.

        The decisions are [seeds, n, d1] at the rounds `times`. The follower is the one that knows
        the whole stage, so that the extra loss measures how much a distance in x matters.
        """
        seeds, stages = len(self.losses), self.stage.max() + 1
        index = (stages * np.arange(seeds)[:, None] + self.stage[times - 1]).ravel()
        with jax.enable_x64(True):
            rounds, solutions = take((self.rounds, self.solutions), index)
        return _dynamic(self.problem, outer_vars, rounds, solutions)


def stage_comparators(
    instances: Sequence[Instance], stages: int, outer_start: np.ndarray, padded_stages: int = 0
) -> Comparators:
    """Return the comparators of the stages of all seeds.

    The sum of a stage's losses is what a window over the whole stage contains at its end: moments,
    one round of `windowed`. Streams with fewer than `padded_stages` stages are padded, so that all
    are searched by the same compiled program.
    """
    stage_by_round = stage_of(len(instances[0].rounds["training"][1]), stages)
    with jax.enable_x64(True):
        ends = []
        for instance in instances:
            for stage in range(stages):
                in_stage = stage_by_round == stage
                members = dataclasses.replace(
                    instance, rounds=_in_double(instance.rounds, in_stage)
                )
                whole = Window(int(in_stage.sum()), normalise="seen", follower="average")
                view = windowed(members, whole)
                ends.append(take(view.rounds, -1))
        wanted = len(ends)
        ends += ends[-1:] * (len(instances) * padded_stages - wanted)
        rounds = stack(ends)
        first = jnp.asarray(outer_start, float)
        solutions = regret.outer_solutions(view.problem, rounds, outer_start=first, solver=SOLVER)
        rounds, solutions = take((rounds, solutions), slice(wanted))
    inner = np.asarray(solutions.inner_var).reshape(len(instances), stages, -1)
    losses = [
        losses_suffered(instance, ys[stage_by_round][None])[0]
        for instance, ys in zip(instances, inner, strict=True)
    ]
    return Comparators(view.problem, rounds, solutions, stage_by_round, np.asarray(losses))


@functools.lru_cache(maxsize=4)
def comparators(config: Config, stream: Stream) -> Comparators:
    """Return the stage comparators of all seeds, taken from those of the first question."""
    for_tuning = config.for_tuning(stream.outer_dim)
    if config != for_tuning:
        every, kept = comparators(for_tuning, stream), config.seeds
        with jax.enable_x64(True):
            rounds, best = take((every.rounds, every.solutions), slice(kept * stream.stages))
        return every._replace(rounds=rounds, solutions=best, losses=every.losses[:kept])
    first = np.full(stream.outer_dim, config.start)
    return stage_comparators(instances(config, stream), stream.stages, first, max(config.stages))


def bilevel_regret(config: Config, stream: Stream, outer_vars: np.ndarray) -> np.ndarray | None:
    """Return BD-Reg by its definition, with one comparator for each round: [seeds, T].

    Return `None` for five penalties, which can fit one sample in many ways.
    """
    if stream.outer_dim != 1:
        return None
    problem, rounds, solutions = _comparators_of_rounds(config, stream)
    return np.cumsum(_dynamic(problem, outer_vars, rounds, solutions), axis=1)


@functools.lru_cache(maxsize=4)
def _comparators_of_rounds(
    config: Config, stream: Stream
) -> tuple[Problem, PyTree, regret.Comparator]:
    """Return the problem, the rounds of all seeds [seeds x T, ...] and x*_t of each."""
    every = instances(config, stream)
    with jax.enable_x64(True):
        whole = stack(_in_double(instance.rounds) for instance in every)
        rounds = jax.tree.map(lambda leaf: jnp.asarray(np.concatenate(leaf)), whole)
        problem, first = every[0].problem, start(config, stream)
        solutions = regret.outer_solutions(problem, rounds, outer_start=first, solver=SOLVER)
        return problem, rounds, solutions


def _dynamic(
    problem: Problem, outer_vars: np.ndarray, rounds: PyTree, solutions: regret.Comparator
) -> np.ndarray:
    """Return the terms of the dynamic regret [seeds, n] of decisions [seeds, n, d1]."""
    with jax.enable_x64(True):
        flat = jnp.asarray(outer_vars.reshape(-1, outer_vars.shape[-1]), float)
        terms = regret.dynamic(problem, flat, rounds, comparators=solutions, solver=SOLVER).terms
        return np.asarray(terms).reshape(outer_vars.shape[:2])


def _in_double(rounds: PyTree, members: np.ndarray | slice = slice(None)) -> PyTree:
    return jax.tree.map(lambda leaf: jnp.asarray(np.asarray(leaf, np.float64)[members]), rounds)
