"""The work of the experiment, cut into parts that give rows of the table."""

import dataclasses
import functools

import numpy as np
import pandas as pd

from ...problems.regression import stage_of
from ..kit.curves import best_curve, cumulative, points
from ..kit.experiment import Part
from ..kit.table import Rows, Value
from . import stream
from .config import (
    COMPARATORS,
    GRID,
    OFFLINE,
    Config,
    Group,
    Method,
    asked_of,
    groups,
    methods_of,
)
from .methods import Setting, Trajectories, offline, play


def parts(config: Config) -> list[Part]:
    """Comparators and offline solution of each group, then its methods."""
    found = []
    for group in groups(config):
        works = {
            "comparators": functools.partial(comparators, config, group),
            "offline": functools.partial(offline_solution, config, group),
        }
        for method in methods_of(config, group):
            works[_file(method)] = functools.partial(compare, config, group, method)
        found += [Part(f"{group.name()}-{name}", work) for name, work in works.items()]
    return found


def compare(config: Config, group: Group, method: Method) -> pd.DataFrame:
    """The whole grid; the best setting also as curves.

    For w = T with own curvature only the setting that is best with current curvature: w linear
    systems in every round, over the whole grid, would take hours.
    """
    settings = None
    if method.curvature == "own" and method.w == config.horizon:
        twin = dataclasses.replace(method, curvature="current")
        tried = play(config, group, twin)
        settings = [tried.settings[best_curve(_cumulative_regrets(config, group, tried))]]
    rows, times = Rows(), points(config.horizon, config.curve_points)
    if method in asked_of(config):
        many = config.for_tuning(group.outer_dim)
        found = play(many, group, method)
        _tuning(rows, many, group, method, found)
        found = found.first(config.seeds)
    else:
        found = play(config, group, method, settings)
    regrets = _cumulative_regrets(config, group, found)
    best = best_curve(regrets)
    for index, setting in enumerate(found.settings):
        for seed in range(config.seeds):
            at = _at(group, method, seed, setting)
            rows.add(at, config.horizon, {"stage_regret": regrets[index, seed, -1]})
    xs = found.outer_vars[best].astype(np.float64)
    bilevel = stream.bilevel_regret(config, group, xs)
    excess = stream.comparators(config, group).excess(times, xs[:, times - 1])
    for seed in range(config.seeds):
        curves = {"excess": excess[seed], "stage_regret_curve": regrets[best, seed, times - 1]}
        if bilevel is not None:
            curves["bilevel_dynamic_regret"] = bilevel[seed, times - 1]
        curves |= _coordinates(xs[seed, times - 1])
        at = _at(group, method, seed, found.settings[best])
        rows.add(at, times, curves)
        if found.lengths is not None:
            lengths = found.lengths[best, seed]
            rows.add(at, config.horizon, cuts(lengths, stage_of(config.horizon, group.stages)))
    return rows.table()


SOON = 100
"""A cut so many rounds after a change is because of it."""


def cuts(lengths: np.ndarray, stages: np.ndarray) -> dict[str, float]:
    """How often a window with these numbers of rounds was cut, how many changes of the stage were
    followed by a cut soon, and on average after how many rounds."""
    grown = np.minimum(lengths[:-1] + 1, lengths.max())
    cut = 1 + np.flatnonzero(lengths[1:] < grown)
    changes = np.flatnonzero(np.diff(stages)) + 1
    delays = [cut[cut >= change][:1] - change for change in changes]
    soon = [int(delay[0]) for delay in delays if len(delay) and delay[0] < SOON]
    late = {"cuts_delay": float(np.mean(soon))} if soon else {}
    return {"cuts": len(cut), "cuts_found": len(soon)} | late


def _tuning(rows: Rows, many: Config, group: Group, method: Method, found: Trajectories) -> None:
    """What the two questions need: loss suffered per round and regret, of many seeds."""
    regrets = _cumulative_regrets(many, group, found)
    best, floor = best_curve(regrets), stream.comparators(many, group).losses.sum(axis=1)
    times = points(many.horizon, many.curve_points)
    for seed in range(many.seeds):
        at, mine = _at(group, method, seed, found.settings[best]), regrets[best, seed]
        rows.add(at, many.horizon, {"tuning_loss": (mine[-1] + floor[seed]) / many.horizon})
        rows.add(at, times, {"tuning_regret": mine[times - 1]})


def comparators(config: Config, group: Group) -> pd.DataFrame:
    """x_s*, the comparators' path length, and how much they lose."""
    found = stream.comparators(config, group)
    outer, path = found.per_round()[0], found.path()
    rows, times = Rows(), points(config.horizon, config.curve_points)
    for seed in range(config.seeds):
        at, curves = _at(group, COMPARATORS, seed), {"path_length_2": path[seed, times - 1]}
        rows.add(at, times, curves | _coordinates(outer[seed, times - 1]))
        rows.add(at, config.horizon, {"loss": found.losses[seed].sum()})
    return rows.table()


def offline_solution(config: Config, group: Group) -> pd.DataFrame:
    """The trajectory of the offline solution."""
    times, solved = offline(config, group)
    xs = np.swapaxes(solved, 0, 1).astype(np.float64)
    excess = stream.comparators(config, group).excess(times, xs)
    rows = Rows()
    for seed in range(config.seeds):
        curves = _coordinates(xs[seed]) | {"excess": excess[seed]}
        rows.add(_at(group, OFFLINE, seed), times, curves)
    return rows.table()


def _cumulative_regrets(config: Config, group: Group, found: Trajectories) -> np.ndarray:
    streams = enumerate(stream.instances(config, group))
    losses = [stream.suffered(one, found.inner_vars[:, seed]) for seed, one in streams]
    return cumulative(np.stack(losses, axis=1) - stream.comparators(config, group).losses)


def _at(
    group: Group, method: Method, seed: int, setting: Setting | tuple[None, ...] = (None,) * 3
) -> dict[str, Value]:
    grid = dict(zip(GRID, setting, strict=True))
    return method.columns() | group.columns() | grid | {"seed": seed}


def _coordinates(xs: np.ndarray) -> dict[str, np.ndarray]:
    return {f"x_{i + 1}": xs[:, i] for i in range(xs.shape[1])}


def _file(method: Method) -> str:
    if method.kind == "OGD":
        return f"ogd-{method.x}"
    if method.w == 1:
        return "w1"
    options = [f"w{method.w}", f"u{method.u:g}", method.normalise, method.follower]
    options += [method.curvature] + [method.cut] * (method.cut != "never")
    return "-".join(map(str, options))
