"""The work of the experiment, cut into parts that give rows of the table."""

import functools

import numpy as np
import pandas as pd

from ..kit.curves import points
from ..kit.experiment import Part
from ..kit.table import Rows, Value
from . import stream
from .config import (
    COMPARATORS,
    OFFLINE,
    Config,
    Group,
    Method,
    groups,
    methods,
    own_methods,
    shared,
    window_methods,
)
from .methods import Setting, Trajectories, grid, offline, play


def parts(config: Config) -> list[Part]:
    """Comparators and offline solution of each group, then its methods."""
    found = []
    for group in groups(config):
        name = group.name()
        found.append(Part(f"{name}-comparators", functools.partial(comparators, config, group)))
        found.append(Part(f"{name}-offline", functools.partial(offline_solution, config, group)))
        for method in dict.fromkeys([*methods(config), *window_methods(config, group)]):
            work = functools.partial(compare, config, group, method)
            found.append(Part(f"{name}-{_file(method)}", work))
        for method in own_methods(config, group):
            work = functools.partial(compare_own, config, group, method)
            found.append(Part(f"{name}-{_file(method)}", work))
    return found


def compare(config: Config, group: Group, method: Method) -> pd.DataFrame:
    """The whole grid; the best setting also as curves."""
    return _table(config, group, method, play(config, group, method))


def compare_own(config: Config, group: Group, method: Method) -> pd.DataFrame:
    """Own curvature. For w = T only at the setting that is best with current curvature: w linear
    systems in every round, over the whole grid, would take hours."""
    if method.w != config.horizon:
        return compare(config, group, method)
    assert method.w and method.u and method.normalise and method.follower
    twin = shared(method.w, method.u, method.normalise, method.follower)
    regrets = _cumulative_regrets(config, group, play(config, group, twin))
    best = grid(config, twin)[_best(regrets)]
    return _table(config, group, method, play(config, group, method, [best]))


def comparators(config: Config, group: Group) -> pd.DataFrame:
    """x_s*, the comparators' path length, and how much they lose."""
    found = stream.comparators(config, group)
    outer, path = found.per_round()[0], found.path()
    rows, times = Rows(), points(config.horizon, config.curve_points)
    for seed in range(config.seeds):
        at = _at(group, COMPARATORS, None, seed)
        rows.add(at, times, {"path_length_2": path[seed, times - 1]})
        rows.add(at, times, _coordinates(outer[seed, times - 1]))
        rows.add(at, config.horizon, {"loss": found.losses[seed].sum()})
    return rows.table()


def offline_solution(config: Config, group: Group) -> pd.DataFrame:
    """The trajectory of the offline solution."""
    times, solved = offline(config, group)
    xs = np.swapaxes(solved, 0, 1).astype(np.float64)
    excess = stream.comparators(config, group).excess(times, xs)
    rows = Rows()
    for seed in range(config.seeds):
        at = _at(group, OFFLINE, None, seed)
        rows.add(at, times, _coordinates(xs[seed]) | {"excess": excess[seed]})
    return rows.table()


def _table(config: Config, group: Group, method: Method, found: Trajectories) -> pd.DataFrame:
    regrets = _cumulative_regrets(config, group, found)
    best = _best(regrets)
    rows, times = Rows(), points(config.horizon, config.curve_points)
    for index, setting in enumerate(found.settings):
        for seed in range(config.seeds):
            at = _at(group, method, setting, seed)
            rows.add(at, config.horizon, {"stage_regret": regrets[index, seed, -1]})
    xs = found.outer_vars[best].astype(np.float64)
    bilevel = stream.bilevel_regret(config, group, xs)
    excess = stream.comparators(config, group).excess(times, xs[:, times - 1])
    for seed in range(config.seeds):
        at = _at(group, method, found.settings[best], seed)
        rows.add(at, times, {"excess": excess[seed]})
        rows.add(at, times, {"stage_regret_curve": regrets[best, seed, times - 1]})
        if bilevel is not None:
            rows.add(at, times, {"bilevel_dynamic_regret": bilevel[seed, times - 1]})
        rows.add(at, times, _coordinates(xs[seed, times - 1]))
    return rows.table()


def _cumulative_regrets(config: Config, group: Group, found: Trajectories) -> np.ndarray:
    best = stream.comparators(config, group).losses
    streams = stream.instances(config, group)
    losses = np.stack(
        [stream.suffered(one, found.inner_vars[:, seed]) for seed, one in enumerate(streams)],
        axis=1,
    )
    with np.errstate(over="ignore", invalid="ignore"):
        regrets = np.cumsum(losses - best, axis=2)
    # A setting that diverged has lost everything.
    return np.where(np.isfinite(regrets), regrets, np.inf)


def _best(regrets: np.ndarray) -> int:
    """The setting with the least mean regret at the end, from curves [settings, seeds, T]."""
    return int(np.argmin(np.mean(regrets[:, :, -1], axis=1)))


def _at(group: Group, method: Method, setting: Setting | None, seed: int) -> dict[str, Value]:
    k, alpha, beta = setting or (None, None, None)
    grid = {"K": k, "alpha": alpha, "beta": beta}
    return method.columns() | group.columns() | grid | {"seed": seed}


def _coordinates(xs: np.ndarray) -> dict[str, np.ndarray]:
    return {f"x_{i + 1}": xs[:, i] for i in range(xs.shape[1])}


def _file(method: Method) -> str:
    if method.kind == "OGD":
        return f"ogd-{method.x}"
    if method.w == 1:
        return "w1"
    options = (f"w{method.w}", f"u{method.u:g}", method.normalise, method.follower)
    return "-".join(map(str, (*options, method.curvature)))
