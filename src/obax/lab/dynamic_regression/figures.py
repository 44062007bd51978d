"""The figures of the experiment, drawn from its table."""

import itertools
from collections.abc import Hashable, Iterator

import numpy as np
import pandas as pd

from ..framework.results import Figure, Series
from ..framework.statistics import mean_over_seeds
from ..framework.table import best_of_grid, select
from .config import (
    BASELINES,
    CUTS,
    GRID,
    GROUP,
    PENALTIES,
    Config,
    as_we_read_the_paper,
    with_equal_weights,
)


def _shown(config: Config, stages: Hashable) -> list[str]:
    """Return the labels of the windows in a figure.

    They are those of our reading of the paper and the largest one cut by a detector. The regrets of
    windows that are never cut are so large that they would hide the others.
    """
    windows = [as_we_read_the_paper(size, stages) for size in config.sizes()]
    detected = with_equal_weights(max(config.sizes()), "detected")
    return [method.label() for method in (*windows, detected)]


def _curves(table: pd.DataFrame, metric: str, in_group: pd.DataFrame) -> list[Series]:
    """Return the curve of each method, with the setting that it was best with in its details."""
    chosen = best_of_grid(in_group, ["method"], [*GROUP, *GRID])
    every = table[table.metric == metric].merge(chosen)
    curves = []
    for label, setting in chosen.set_index("method").iterrows():
        rows = every[every.method == label]
        alpha = "" if pd.isna(setting.alpha) else f", alpha = {setting.alpha:g}"
        details = f"{label}: K = {setting.K}{alpha}, beta = {setting.beta:g}"
        kind = _kind(rows.x.iloc[0], rows.kind.iloc[0])
        w = None if pd.isna(rows.w.iloc[0]) else int(rows.w.iloc[0])
        curves.append(mean_over_seeds(rows, str(label), kind=kind, w=w, details=details))
    return curves


def _kind(x: object, kind: str) -> str:
    """Return the kind that decides the colour. The oracle is no method: it knows the best x."""
    return "" if x == "oracle" else kind


def penalties(table: pd.DataFrame) -> Figure:
    """Return the regret on the first stream for each way to choose a penalty."""
    scenario, stages, d1 = table[GROUP].iloc[0]
    curves = select(table, scenario=scenario, stages=stages, d1=d1, metric="tuning_regret")
    return Figure(
        "penalties",
        f"Loss above the best model of each stage, added up ({scenario}, S = {stages})",
        "round t",
        "cumulative stage regret",
        [
            mean_over_seeds(
                select(curves, method=method.label()), name, kind=_kind(method.x, method.kind)
            )
            for name, method in PENALTIES.items()
        ],
        "The best model of a stage is its best pair of penalty and weights in hindsight.",
    )


def regrets(config: Config, table: pd.DataFrame, best: pd.DataFrame) -> Iterator[Figure]:
    """Yield the paper's left and middle panels: regret, and how far the comparators move."""
    played = [method.label() for method in BASELINES]
    for (scenario, stages, d1), in_group in best[best.d1 == 1].groupby(GROUP, sort=False):
        shown = in_group[in_group.method.isin(played + _shown(config, stages))]
        series = _curves(table, "stage_regret_curve", shown)
        path = select(table, scenario=scenario, stages=stages, d1=d1, metric="path_length_2")
        moved = "P_2 + Y_2 of the comparators"
        series.append(mean_over_seeds(path, moved, steps=True, kind="comparators"))
        fixed = "a fixed comparator" if stages == 1 else f"{stages} comparators"
        yield Figure(
            f"regret-{scenario}-S{stages}",
            f"Regret with {fixed} ({scenario} scenario)",
            "round t",
            "cumulative stage regret",
            series,
            f"Loss suffered minus that of the best pair of each stage, S = {stages}; for each "
            f"method its best step sizes. P_2 + Y_2 is how far the comparators have moved.",
        )


def trajectories(config: Config, table: pd.DataFrame, best: pd.DataFrame) -> Iterator[Figure]:
    """Yield the paper's right panel: x_1, the offline solution and the best x of each stage."""
    for (scenario, stages, d1), in_group in best[best.d1 == 1].groupby(GROUP, sort=False):
        shown = in_group[in_group.method.isin(_shown(config, stages))]
        x = select(table, scenario=scenario, stages=stages, d1=d1, metric="x_1")
        series = _curves(table, "x_1", shown)
        for kind, label, steps in (
            ("offline", "offline, all data so far", False),
            ("comparators", "best x of the stage", True),
        ):
            series.append(mean_over_seeds(x[x.kind == kind], label, steps=steps, kind=kind))
        yield Figure(
            f"trajectory-{scenario}-S{stages}",
            f"The learned x_1, S = {stages} ({scenario} scenario)",
            "round t",
            "x_1 (log penalty)",
            series,
            "With offline hyperparameter optimisation on all data so far and the best x of each "
            "stage in hindsight.",
        )


def gaps(ours: pd.DataFrame, offline: pd.DataFrame) -> pd.DataFrame:
    """Return |x - x_offline| at the rounds of the offline solution, by seed and coordinate."""
    theirs = offline[offline.metric.str.startswith("x_")]
    frames = []
    for (seed, metric), rows in theirs.groupby(["seed", "metric"]):
        mine = select(ours, seed=seed, metric=metric).sort_values("t")
        gap = np.abs(np.interp(rows.t, mine.t, mine.value) - rows.value)
        frames.append(rows[["seed", "t"]].assign(value=gap))
    return pd.concat(frames, ignore_index=True) if frames else theirs[["seed", "t", "value"]]


def beside_offline(
    table: pd.DataFrame, chosen: pd.DataFrame
) -> Iterator[tuple[pd.Series, pd.DataFrame, pd.DataFrame, pd.DataFrame]]:
    """Yield each chosen method with its rows, those of the offline solution, and the gaps."""
    for _, one in chosen.iterrows():
        ours = table.merge(one.to_frame().T.astype(table[one.index].dtypes))
        offline = select(table, kind="offline", **one[GROUP])
        yield one, ours, offline, gaps(ours, offline)


def distance(table: pd.DataFrame, chosen: pd.DataFrame) -> Figure:
    """Return how far the learned x is from the offline one, over time, on every stream."""
    series = []
    for one, _, _, gap in beside_offline(table, chosen):
        label = f"{one.scenario}, S = {one.stages}, d1 = {one.d1}"
        series.append(mean_over_seeds(gap, label, details=f"{label}: {one.method}"))
    return Figure(
        "distance",
        "Distance of the learned x from the offline solution",
        "round t",
        "|x - x offline|",
        series,
        "The OAGD with the least regret on each stream; mean over coordinates.",
    )


def windows(config: Config, best: pd.DataFrame) -> Iterator[Figure]:
    """Yield the regret against the size of the window, for each way to cut it."""
    sizes = sorted({config.size(window) for window in config.window_sizes})
    for scenario, in_scenario in best[best.d1 == 1].groupby("scenario", sort=False):
        series = []
        every = in_scenario.groupby("stages", sort=False)
        for (stages, in_group), (cut, words) in itertools.product(every, CUTS.items()):
            labels = [with_equal_weights(size, cut).label() for size in sizes]
            kept = in_group[in_group.method.isin(labels)]
            if set(kept.w) == set(sizes) and np.isfinite(kept.value).all():
                label = f"S = {stages}, {words}"
                series.append(mean_over_seeds(kept.assign(t=kept.w), label))
        yield Figure(
            f"windows-{scenario}",
            f"Regret against the window ({scenario} scenario)",
            "window size w",
            "stage regret at the end",
            series,
            "Equal weights over the rounds since the last cut, and the follower trains on them; "
            "best step sizes of the grid for each w.",
            log_x=True,
            log_y=True,
        )
