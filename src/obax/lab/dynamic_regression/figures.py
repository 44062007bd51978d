"""The figures of the experiment, from its table."""

from collections.abc import Iterator

import numpy as np
import pandas as pd

from ..report import Figure, Series
from .config import Config

GROUP = ["scenario", "stages", "d1"]


def _band(rows: pd.DataFrame, label: str, *, steps: bool = False, positive: bool = False) -> Series:
    """Mean over seeds with a band of one standard deviation; `positive` for logarithmic axes."""
    curve = rows.groupby("t").value.agg(["mean", "std"]).fillna(0.0)
    low = curve["mean"] - curve["std"]
    return Series(
        label,
        curve.index.tolist(),
        curve["mean"].tolist(),
        (np.maximum(low, curve["mean"] / 10) if positive else low).tolist(),
        (curve["mean"] + curve["std"]).tolist(),
        steps,
    )


def _bands(curves: pd.DataFrame) -> list[Series]:
    names = curves.method.unique()
    return [_band(curves[curves.method == name], _short(str(name))) for name in names]


def _curves(rows: pd.DataFrame, chosen: pd.DataFrame, metric: str) -> pd.DataFrame:
    kept = rows[rows.metric == metric]
    return kept.merge(chosen[["method", "setting"]].drop_duplicates(), on=["method", "setting"])


def regrets(config: Config, rows: pd.DataFrame, best: pd.DataFrame) -> list[Figure]:
    """The paper's left and middle panels: regret, and how far the comparators move."""
    figures = []
    for (scenario, stages, d1), in_group in best.groupby(GROUP, sort=False):
        if d1 != "1":
            continue
        chosen = _one_for_each_window(config, in_group)
        curves = _curves(rows, chosen, "stage_regret_curve")
        series = _bands(curves)
        path = rows[(rows.kind == "comparators") & (rows.metric == "path_length_2")]
        path = path[(path.scenario == scenario) & (path.stages == stages) & (path.d1 == d1)]
        series.append(_band(path, "P_2 + Y_2 of the comparators", steps=True))
        fixed = "a fixed comparator" if stages == "1" else f"{stages} comparators"
        figures.append(
            Figure(
                f"regret-{scenario}-S{stages}",
                f"Regret with {fixed} ({scenario} scenario)",
                "round t",
                "cumulative stage regret",
                series,
                f"Loss suffered minus that of the best pair of each stage, S = {stages}; for each "
                "window its best options and step sizes; mean and one standard deviation over "
                "seeds. P_2 + Y_2 is how far the comparators have moved.",
            )
        )
    return figures


def gaps(ours: pd.DataFrame, offline: pd.DataFrame) -> Iterator[np.ndarray]:
    """|x - x_offline| at the rounds of the offline solution, for each seed and coordinate."""
    for (seed, metric), theirs in offline.groupby(["seed", "metric"]):
        mine = ours[(ours.seed == seed) & (ours.metric == metric)].sort_values("t")
        theirs = theirs.sort_values("t")
        yield np.abs(np.interp(theirs.t, mine.t, mine.value) - theirs.value.to_numpy())


def distance(rows: pd.DataFrame, chosen: pd.DataFrame) -> Figure:
    """How far the learned x is from the offline one, over time, in every group."""
    is_x = rows.metric.str.startswith("x_")
    series = []
    for _, best in chosen.iterrows():
        offline = rows[(rows.kind == "offline") & is_x]
        offline = offline[(offline[GROUP] == best[GROUP]).all(axis=1)]
        ours = rows[(rows.method == best.method) & (rows.setting == best.setting) & is_x]
        found = np.asarray(list(gaps(ours, offline)))
        mean, spread = found.mean(axis=0), found.std(axis=0)
        label = f"{best.scenario}, S = {best.stages}, d1 = {best.d1}"
        times = sorted(offline.t.unique().tolist())
        low, high = np.maximum(mean - spread, 0), mean + spread
        series.append(Series(label, times, mean.tolist(), low.tolist(), high.tolist()))
    return Figure(
        "distance",
        "Distance of the learned x from the offline solution",
        "round t",
        "|x - x offline|",
        series,
        "The OAGD with least regret of each stream; mean and one standard deviation over seeds and "
        "coordinates.",
    )


def _one_for_each_window(config: Config, in_group: pd.DataFrame) -> pd.DataFrame:
    """OGD, and for each window size the options with least regret."""
    shown = in_group[(in_group.kind == "OGD") | in_group.w.isin(config.windows)]
    mean = shown.groupby(["method", "setting"], sort=False).value.mean().reset_index()
    window = shown.assign(w=shown.w.fillna(shown.method))[["method", "w"]].drop_duplicates()
    mean = mean.merge(window, on="method")
    return mean.loc[mean.groupby("w", sort=False).value.idxmin()]


def trajectories(config: Config, rows: pd.DataFrame, best: pd.DataFrame) -> list[Figure]:
    """The paper's right panel: x_1 with the offline solution and the best x of each stage."""
    figures = []
    for (scenario, stages, d1), in_group in best.groupby(GROUP, sort=False):
        if d1 != "1":
            continue
        chosen = _one_for_each_window(config, in_group[in_group.kind == "OAGD"])
        curves = _curves(rows, chosen, "x_1")
        series = _bands(curves)
        same = (rows.metric == "x_1") & (rows.scenario == scenario)
        same &= (rows.stages == stages) & (rows.d1 == d1)
        series.append(_band(rows[same & (rows.kind == "offline")], "offline, all data so far"))
        series.append(
            _band(rows[same & (rows.kind == "comparators")], "best x of the stage", steps=True)
        )
        figures.append(
            Figure(
                f"trajectory-{scenario}-S{stages}",
                f"The learned x_1, S = {stages} ({scenario} scenario)",
                "round t",
                "x_1 (log penalty)",
                series,
                "Mean and one standard deviation over seeds, with offline hyperparameter "
                "optimisation on all data so far and the best x of each stage in hindsight.",
            )
        )
    return figures


def windows(config: Config, best: pd.DataFrame) -> list[Figure]:
    """Regret against the size of the window."""
    figures = []
    sizes = {w: config.size(w) for w in config.window_sizes}
    rows = best[(best.kind == "OAGD") & best.w.isin(sizes) & (best.d1 == "1")]
    rows = rows[(rows.curvature != "own") & ((rows.w == "1") | (rows.normalise == "seen"))]
    rows = rows[rows.u == "1"]
    for scenario, in_scenario in rows.groupby("scenario", sort=False):
        series = []
        for stages, in_group in in_scenario.groupby("stages", sort=False):
            for follower in ("current", "average"):
                kept = in_group[(in_group.w == "1") | (in_group.follower == follower)]
                kept = kept.assign(t=kept.w.map(sizes)).drop_duplicates(["t", "seed"])
                if np.isfinite(kept.value).all():
                    label = f"S = {stages}, follower on {_plain(follower)}"
                    series.append(_band(kept, label, positive=True))
        figures.append(
            Figure(
                f"windows-{scenario}",
                f"Regret against the window ({scenario} scenario)",
                "window size w",
                "stage regret at the end",
                series,
                "u_i = 1, divided by the weight of the rounds seen; best step sizes of the grid "
                "for each w; mean and one standard deviation over seeds.",
                log_x=True,
                log_y=True,
            )
        )
    return figures


def _plain(follower: str) -> str:
    return {"current": "the current round", "average": "the window's average"}[follower]


def _short(method: str) -> str:
    """`OAGD w=100, u=0.9, seen, average` from the label of the table."""
    if not method.startswith("OAGD"):
        return method.replace("; ", ", ")
    values = dict(item.split("=", 1) for item in method.split("; ")[1:])
    if values["w"] == "1":
        return "OAGD w=1"
    own = ", own" if values["curvature"] == "own" else ""
    return (
        f"OAGD w={values['w']}, u={values['u']}, {values['normalise']}, {values['follower']}{own}"
    )
