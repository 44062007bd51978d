"""The figures of the comparison, from its table."""

import pandas as pd

from ..report import Figure, Series
from .config import Config

SHOWN = 8
"""As many as can be told apart."""


def all_figures(config: Config, rows: pd.DataFrame, result: pd.DataFrame) -> list[Figure]:
    """Scores against rounds, calls and seconds; local regrets where there are any."""
    axes = {"rounds": "round t", "calls": "oracle calls, in gradients", "seconds": "seconds"}
    figures = []
    for (problem, budget), here in result.groupby(["problem", "budget"], sort=False):
        for metric, name in (("score_curve", "score"), ("stationarity_curve", "stationarity")):
            # Local regrets once, under the budget of equal calls.
            if name == "stationarity" and (budget != "calls" or here.stationarity.isna().all()):
                continue
            best = here.nsmallest(SHOWN, "score" if name == "score" else "stationarity")
            series = [_series(rows, chosen, metric, str(budget)) for _, chosen in best.iterrows()]
            positive = all(min(one.mean) > 0 for one in series)
            figures.append(
                Figure(
                    f"{name}-{problem}-{budget}",
                    f"{problem}: {_title(name, str(budget))}",
                    axes[str(budget)],
                    f"cumulative {name}",
                    series,
                    f"The {len(series)} methods that end lowest, at the best setting of each; mean "
                    f"and one standard deviation over {config.seeds} seeds.",
                    log_y=positive,
                )
            )
    return figures


def _title(name: str, budget: str) -> str:
    against = {
        "rounds": "one step a round",
        "calls": "equal oracle calls",
        "seconds": "equal wall-clock",
    }[budget]
    return against if name == "score" else f"stationarity, {against}"


def _series(rows: pd.DataFrame, chosen: pd.Series, metric: str, budget: str) -> Series:
    mine = rows[(rows.method == chosen.method) & (rows.setting == chosen.setting)]
    curve = mine[mine.metric == metric].groupby("t").value.agg(["mean", "std"]).fillna(0.0)
    times = curve.index.to_numpy()
    if budget == "calls":
        x = mine[mine.metric == "calls_curve"].groupby("t").value.mean().loc[times].to_numpy()
    elif budget == "seconds":
        x = times * chosen.seconds
    else:
        x = times
    mean, spread = curve["mean"], curve["std"]
    low = (mean - spread).clip(lower=mean / 10) if (mean > 0).all() else mean - spread
    return Series(
        str(chosen.method),
        x.tolist(),
        mean.tolist(),
        low.tolist(),
        (mean + spread).tolist(),
    )
