"""The parts of the experiment."""

import functools
import itertools

import numpy as np
import pandas as pd

from ...problems.regression import stage_of
from ..framework.experiment import Parts
from ..framework.results import Value
from ..framework.run_folder import Rows
from ..framework.statistics import best_curve, cumulative, evenly_spaced_rounds
from . import config as settings, measures
from .config import COMPARATORS, GRID, OFFLINE, Config, Method, Stream
from .methods import Setting, Trajectories, offline, play, with_current_curvature

SOON = 100
"""A cut within this many rounds after a change counts as caused by it."""


def parts(config: Config) -> Parts:
    """Return the comparators, the offline solution and the methods of each stream."""
    works: dict[str, functools.partial[pd.DataFrame]] = {}
    for d1, scenario, stages in itertools.product(
        config.outer_dims, config.scenarios, config.stages
    ):
        stream = Stream(scenario, stages, d1)
        name = stream.name()
        works[f"{name}-comparators"] = functools.partial(comparators, config, stream)
        works[f"{name}-offline"] = functools.partial(offline_solution, config, stream)
        for method in settings.methods_of(config, stream):
            work = functools.partial(compare, config, stream, method)
            works[f"{name}-{_file_name(method)}"] = work
    return works


def compare(config: Config, stream: Stream, method: Method) -> pd.DataFrame:
    """Play a method with the whole grid. Return every setting's regret and the best one's curves.

    Own curvature with w = T plays only the setting that is best with current curvature: w linear
    systems in every round would take hours for the whole grid.
    """
    chosen = None
    if method.curvature == "own" and method.w == config.horizon:
        tried = play(config, stream, with_current_curvature(method))
        chosen = [tried.settings[best_curve(_cumulative_regrets(config, stream, tried))]]
    rows, times = Rows(), evenly_spaced_rounds(config.horizon, config.curve_points)
    if method in settings.methods_of_questions(config):
        with_more_seeds = config.for_tuning(stream.outer_dim)
        played = play(with_more_seeds, stream, method)
        _add_tuning(rows, with_more_seeds, stream, method, played)
    else:
        played = play(config, stream, method, chosen)
    regrets = _cumulative_regrets(config, stream, played)
    best = best_curve(regrets)
    for index, setting in enumerate(played.settings):
        for seed in range(config.seeds):
            ids = _identifiers(stream, method, seed, setting)
            rows.add(ids, config.horizon, {"stage_regret": regrets[index, seed, -1]})
    xs = played.outer_vars[best, : config.seeds].astype(np.float64)
    bilevel = measures.bilevel_regret(config, stream, xs)
    excess = measures.comparators(config, stream).excess(times, xs[:, times - 1])
    for seed in range(config.seeds):
        curves = {"excess": excess[seed], "stage_regret_curve": regrets[best, seed, times - 1]}
        if bilevel is not None:
            curves["bilevel_dynamic_regret"] = bilevel[seed, times - 1]
        curves |= _coordinates(xs[seed, times - 1])
        ids = _identifiers(stream, method, seed, played.settings[best])
        rows.add(ids, times, curves)
        if played.lengths is not None:
            lengths = played.lengths[best, seed]
            rows.add(ids, config.horizon, cuts(lengths, stage_of(config.horizon, stream.stages)))
    return rows.table()


def cuts(lengths: np.ndarray, stages: np.ndarray) -> dict[str, float]:
    """Return how often a window was cut, how many changes were noticed soon, and the mean delay.

    `lengths` are the numbers of rounds in the window and `stages` those of the stage, by round.
    """
    grown = np.minimum(lengths[:-1] + 1, lengths.max())
    cut = 1 + np.flatnonzero(lengths[1:] < grown)
    changes = np.flatnonzero(np.diff(stages)) + 1
    delays = [cut[cut >= change][:1] - change for change in changes]
    soon = [int(delay[0]) for delay in delays if len(delay) and delay[0] < SOON]
    late = {"cuts_delay": float(np.mean(soon))} if soon else {}
    return {"cuts": len(cut), "cuts_found": len(soon)} | late


def _add_tuning(
    rows: Rows, config: Config, stream: Stream, method: Method, played: Trajectories
) -> None:
    """Add what the two questions need: the loss suffered per round and the regret of many seeds."""
    regrets = _cumulative_regrets(config, stream, played)
    best, least = best_curve(regrets), measures.comparators(config, stream).losses.sum(axis=1)
    times = evenly_spaced_rounds(config.horizon, config.curve_points)
    for seed in range(config.seeds):
        ids = _identifiers(stream, method, seed, played.settings[best])
        regret = regrets[best, seed]
        rows.add(ids, config.horizon, {"tuning_loss": (regret[-1] + least[seed]) / config.horizon})
        rows.add(ids, times, {"tuning_regret": regret[times - 1]})


def comparators(config: Config, stream: Stream) -> pd.DataFrame:
    """Return x_s*, the path length of the comparators and their loss."""
    best = measures.comparators(config, stream)
    outer, path = best.per_round()[0], best.path()
    rows, times = Rows(), evenly_spaced_rounds(config.horizon, config.curve_points)
    for seed in range(config.seeds):
        ids, curves = _identifiers(stream, COMPARATORS, seed), _coordinates(outer[seed, times - 1])
        rows.add(ids, times, {"path_length_2": path[seed, times - 1]} | curves)
        rows.add(ids, config.horizon, {"loss": best.losses[seed].sum()})
    return rows.table()


def offline_solution(config: Config, stream: Stream) -> pd.DataFrame:
    """Return the trajectory of the offline solution."""
    times, solved = offline(config, stream)
    xs = np.swapaxes(solved, 0, 1).astype(np.float64)
    excess = measures.comparators(config, stream).excess(times, xs)
    rows = Rows()
    for seed in range(config.seeds):
        curves = {**_coordinates(xs[seed]), "excess": excess[seed]}
        rows.add(_identifiers(stream, OFFLINE, seed), times, curves)
    return rows.table()


def _cumulative_regrets(config: Config, stream: Stream, played: Trajectories) -> np.ndarray:
    losses = [
        measures.losses_suffered(instance, played.inner_vars[:, seed])
        for seed, instance in enumerate(measures.instances(config, stream))
    ]
    return cumulative(np.stack(losses, axis=1) - measures.comparators(config, stream).losses)


def _identifiers(
    stream: Stream, method: Method, seed: int, setting: Setting | tuple[None, ...] = (None,) * 3
) -> dict[str, Value]:
    grid = dict(zip(GRID, setting, strict=True))
    return method.columns() | stream.columns() | grid | {"seed": seed}


def _coordinates(xs: np.ndarray) -> dict[str, np.ndarray]:
    return {f"x_{i + 1}": xs[:, i] for i in range(xs.shape[1])}


def _file_name(method: Method) -> str:
    if method.kind == "OGD":
        return f"ogd-{method.x}"
    if method.w == 1:
        return "w1"
    cut = "" if method.cut == "never" else f"-{method.cut}"
    options = f"{method.normalise}-{method.follower}-{method.curvature}"
    return f"w{method.w}-u{method.u:g}-{options}{cut}"
