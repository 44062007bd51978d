"""The work of the experiment, cut into parts that give rows of the table."""

import functools
from collections.abc import Iterable

import numpy as np
import pandas as pd

from ..kit.experiment import Part
from . import stream
from .config import Config
from .methods import (
    BASELINES,
    Method,
    Setting,
    Trajectories,
    grid,
    methods,
    offline,
    own_methods,
    play,
    shared,
)
from .stream import Group

Row = tuple[str, str, int, int, str, float]


def parts(config: Config) -> list[Part]:
    """Comparators and offline solution of each group, then its methods."""
    found = []
    for group in stream.groups(config):
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


def window_methods(config: Config, group: Group) -> list[Method]:
    """Two kinds of OAGD over many window sizes, for the figure of regret against w."""
    if group.outer_dim != 1:
        return []
    return [
        Method("1") if size == "1" else shared(size, 1.0, "seen", follower)
        for follower in ("current", "average")
        for size in config.window_sizes
    ]


def compare(config: Config, group: Group, method: Method) -> pd.DataFrame:
    """The whole grid; the best setting also as curves."""
    return _rows(config, group, method, play(config, group, method))


def compare_own(config: Config, group: Group, method: Method) -> pd.DataFrame:
    """Own curvature. For w = T only at the setting that is best with current curvature: w linear
    systems a round over the whole grid would take hours."""
    if method.window != "T":
        return compare(config, group, method)
    twin = shared(method.window, method.decay, method.normalise, method.follower)
    regrets = _cumulative_regrets(config, group, play(config, group, twin))
    best = grid(config, twin)[_best(regrets)]
    return _rows(config, group, method, play(config, group, method, [best]))


def comparators(config: Config, group: Group) -> pd.DataFrame:
    """x_s*, the comparators' path length, and how much they lose."""
    found = stream.comparators(config, group)
    outer, _ = found.per_round(group.stages)
    path = found.path(group.stages)
    rows: list[Row] = []
    for seed in range(config.seeds):
        for t in _points(config):
            at = ("comparators", group.label(), seed, int(t))
            rows.append((*at, "path_length_2", float(path[seed, t - 1])))
            rows += _coordinates(at, "x", outer[seed, t - 1])
        last = ("comparators", group.label(), seed, config.horizon)
        rows.append((*last, "loss", float(found.losses[seed].sum())))
    return _frame(rows)


def offline_solution(config: Config, group: Group) -> pd.DataFrame:
    """The trajectory of the offline solution."""
    times, solved = offline(config, group)
    rows: list[Row] = []
    for seed in range(config.seeds):
        points = solved[:, seed].astype(np.float64)
        costs = stream.excess(config, group, seed, times, points)
        for t, x, cost in zip(times, points, costs, strict=True):
            at = ("offline", group.label(), seed, int(t))
            rows += [*_coordinates(at, "x", x), (*at, "excess", float(cost))]
    return _frame(rows)


def _rows(config: Config, group: Group, method: Method, found: Trajectories) -> pd.DataFrame:
    regrets = _cumulative_regrets(config, group, found)
    final = regrets[:, :, -1]
    best = _best(regrets)
    rows: list[Row] = []
    for index, setting in enumerate(found.settings):
        label = f"{group.label()}; {_setting(setting)}"
        for seed in range(config.seeds):
            at = (method.label(), label, seed, config.horizon)
            rows.append((*at, "stage_regret", float(final[index, seed])))
    label = f"{group.label()}; {_setting(found.settings[best])}"
    bilevel = stream.bilevel_regret(config, group, found.outer_vars[best])
    times = _points(config)
    for seed in range(config.seeds):
        xs = found.outer_vars[best, seed][times - 1].astype(np.float64)
        costs = stream.excess(config, group, seed, times, xs)
        for t, cost in zip(times, costs, strict=True):
            at = (method.label(), label, seed, int(t))
            rows.append((*at, "excess", float(cost)))
            rows.append((*at, "stage_regret_curve", float(regrets[best, seed, t - 1])))
            if bilevel is not None:
                rows.append((*at, "bilevel_dynamic_regret", float(bilevel[seed, t - 1])))
            rows += _coordinates(at, "x", found.outer_vars[best, seed, t - 1])
    return _frame(rows)


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


def _points(config: Config) -> np.ndarray:
    """The rounds at which curves are kept."""
    wanted = np.linspace(1, config.horizon, min(config.curve_points, config.horizon))
    return np.unique(wanted.astype(int))


def _setting(setting: Setting) -> str:
    k, alpha, beta = setting
    return f"K={k}; alpha={alpha:g}; beta={beta:g}"


def _coordinates(at: tuple, metric: str, values: np.ndarray) -> Iterable[Row]:
    return [(*at, f"{metric}_{i + 1}", float(value)) for i, value in enumerate(values)]


def _file(method: Method) -> str:
    if method.window in BASELINES:
        return "ogd" if method.window is None else f"ogd-{method.window}"
    options = (f"u{method.decay:g}", method.normalise, method.follower, method.curvature)
    return "-".join([f"w{method.window}", *options])


def _frame(rows: Iterable[Row]) -> pd.DataFrame:
    return pd.DataFrame(rows, columns=["method", "setting", "seed", "t", "metric", "value"])
