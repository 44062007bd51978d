"""The figures of the experiment, from its table."""

import itertools
from collections.abc import Hashable, Iterator

import numpy as np
import pandas as pd

from ..kit.curves import band
from ..kit.table import best_of_grid, select
from ..report import Figure, Series
from .config import BASELINES, CUTS, GRID, GROUP, PENALTIES, Config, as_read, plain


def _shown(config: Config, stages: Hashable) -> list[str]:
    """The windows of a figure: in our reading of the paper, and the largest one cut by a detector.
    Those that are never cut would leave no room for the others."""
    windows = [as_read(size, stages) for size in config.sizes()]
    return [method.label() for method in (*windows, plain(max(config.sizes()), "detected"))]


def _each(table: pd.DataFrame, metric: str, in_group: pd.DataFrame) -> list[Series]:
    """The curve of each method."""
    chosen = best_of_grid(in_group, ["method"], [*GROUP, *GRID])
    curves = table[table.metric == metric].merge(chosen)
    return [
        band(curves[curves.method == method], str(method), hover=_hover(setting))
        for method, setting in chosen.set_index("method").iterrows()
    ]


def _hover(setting: pd.Series) -> str:
    """The method in full is in the tables; here the settings that it was best with."""
    alpha = "" if pd.isna(setting.alpha) else f", alpha = {setting.alpha:g}"
    return f"{setting.name}: K = {setting.K}{alpha}, beta = {setting.beta:g}"


def penalties(table: pd.DataFrame) -> Figure:
    """Regret on the first stream for each way to come by a penalty."""
    scenario, stages, d1 = table[GROUP].iloc[0]
    curves = select(table, scenario=scenario, stages=stages, d1=d1, metric="tuning_regret")
    return Figure(
        "penalties",
        f"Loss above the best model of each stage, added up ({scenario}, S = {stages})",
        "round t",
        "cumulative stage regret",
        [
            band(select(curves, method=method.label()), name, method=method.label())
            for name, method in PENALTIES.items()
        ],
        "The best model of a stage is its best pair of penalty and weights in hindsight.",
    )


def regrets(config: Config, table: pd.DataFrame, best: pd.DataFrame) -> Iterator[Figure]:
    """The paper's left and middle panels: regret, and how far the comparators move."""
    played = [method.label() for method in BASELINES]
    for (scenario, stages, d1), in_group in best[best.d1 == 1].groupby(GROUP, sort=False):
        shown = in_group[in_group.method.isin(played + _shown(config, stages))]
        series = _each(table, "stage_regret_curve", shown)
        path = select(table, scenario=scenario, stages=stages, d1=d1, metric="path_length_2")
        moved = "P_2 + Y_2 of the comparators"
        series.append(band(path, moved, steps=True, method="comparators"))
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
    """The paper's right panel: x_1 with the offline solution and the best x of each stage."""
    for (scenario, stages, d1), in_group in best[best.d1 == 1].groupby(GROUP, sort=False):
        shown = in_group[in_group.method.isin(_shown(config, stages))]
        x = select(table, scenario=scenario, stages=stages, d1=d1, metric="x_1")
        series = _each(table, "x_1", shown)
        series.append(band(x[x.kind == "offline"], "offline, all data so far", method="offline"))
        stage = x[x.kind == "comparators"]
        series.append(band(stage, "best x of the stage", steps=True, method="comparators"))
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
    """|x - x_offline| at the rounds of the offline solution, for each seed and coordinate."""
    theirs = offline[offline.metric.str.startswith("x_")]
    found = []
    for (seed, metric), there in theirs.groupby(["seed", "metric"]):
        mine = select(ours, seed=seed, metric=metric).sort_values("t")
        gap = np.abs(np.interp(there.t, mine.t, mine.value) - there.value)
        found.append(there[["seed", "t"]].assign(value=gap))
    return pd.concat(found, ignore_index=True) if found else theirs[["seed", "t", "value"]]


def beside_offline(
    table: pd.DataFrame, chosen: pd.DataFrame
) -> Iterator[tuple[pd.Series, pd.DataFrame, pd.DataFrame, pd.DataFrame]]:
    """Each of the chosen with its rows, those of the offline solution, and their gaps."""
    for _, one in chosen.iterrows():
        ours = table.merge(one.to_frame().T.astype(table[one.index].dtypes))
        offline = select(table, kind="offline", **one[GROUP])
        yield one, ours, offline, gaps(ours, offline)


def distance(table: pd.DataFrame, chosen: pd.DataFrame) -> Figure:
    """How far the learned x is from the offline one, over time, in every group."""
    series = []
    for one, _, _, gap in beside_offline(table, chosen):
        label = f"{one.scenario}, S = {one.stages}, d1 = {one.d1}"
        series.append(band(gap, label, hover=f"{label}: {one.method}"))
    return Figure(
        "distance",
        "Distance of the learned x from the offline solution",
        "round t",
        "|x - x offline|",
        series,
        "The OAGD with least regret of each stream; mean over coordinates.",
    )


def windows(config: Config, best: pd.DataFrame) -> Iterator[Figure]:
    """Regret against the size of the window, for each way to cut it."""
    sizes = sorted({config.size(window) for window in config.window_sizes})
    for scenario, in_scenario in best[best.d1 == 1].groupby("scenario", sort=False):
        series = []
        every = in_scenario.groupby("stages", sort=False)
        for (stages, in_group), (cut, words) in itertools.product(every, CUTS.items()):
            labels = [plain(size, cut).label() for size in sizes]
            kept = in_group[in_group.method.isin(labels)]
            if set(kept.w) == set(sizes) and np.isfinite(kept.value).all():
                label = f"S = {stages}, {words}"
                series.append(band(kept.assign(t=kept.w), label))
        yield Figure(
            f"windows-{scenario}",
            f"Regret against the window ({scenario} scenario)",
            "window size w",
            "stage regret at the end",
            series,
            "Equal weights over the rounds seen since the last cut, and the follower trains on "
            "them; best step sizes of the grid for each w.",
            log_x=True,
            log_y=True,
        )
