"""The figures of the comparison, from its table."""

import dataclasses

import pandas as pd

from ..kit.curves import BAND, band
from ..kit.table import select
from ..report import Figure, Series
from .config import Config

SHOWN = 8
"""As many as can be told apart."""
AXES = {"rounds": "round t", "calls": "oracle calls, in gradients", "seconds": "seconds"}
TITLES = {
    "rounds": "one step per round",
    "calls": "equal oracle calls",
    "seconds": "equal wall-clock",
}


def all_figures(config: Config, table: pd.DataFrame, result: pd.DataFrame) -> list[Figure]:
    """Scores against rounds, calls and seconds; local regrets where there are any."""
    figures = []
    for (problem, budget), here in result.groupby(["problem", "budget"], sort=False):
        figures.append(_figure(table, here, str(problem), str(budget), "score"))
        # Local regrets once, under the budget of equal calls.
        if budget == "calls" and here.stationarity.notna().any():
            figures.append(_figure(table, here, str(problem), "calls", "stationarity"))
    return figures


def _figure(
    table: pd.DataFrame, here: pd.DataFrame, problem: str, budget: str, name: str
) -> Figure:
    best = here.nsmallest(SHOWN, name)
    series = [_series(table, chosen, f"{name}_curve", budget) for _, chosen in best.iterrows()]
    return Figure(
        f"{name}-{problem}-{budget}",
        f"{problem}: {'stationarity, ' if name == 'stationarity' else ''}{TITLES[budget]}",
        AXES[budget],
        f"cumulative {name}",
        series,
        f"The {len(series)} methods that end lowest, at the best setting of each; {BAND}.",
        log_y=all(min(one.mean) > 0 for one in series),
    )


def _series(table: pd.DataFrame, chosen: pd.Series, metric: str, budget: str) -> Series:
    """A curve over what the budget counts."""
    names = ("problem", "budget", "method")
    mine = select(table, **{name: chosen[name] for name in names})
    alpha = "" if pd.isna(chosen.alpha) else f"alpha = {chosen.alpha:g}, "
    hover = f"{chosen.method}: {alpha}beta = {chosen.beta:g}, {chosen.repeats} x per round"
    curve = band(mine[mine.metric == metric], chosen.method, hover=hover)
    if budget == "calls":
        spent = mine[mine.metric == "calls_curve"].groupby("t").value.mean()
        return dataclasses.replace(curve, x=spent.loc[list(curve.x)].tolist())
    if budget == "seconds":
        return dataclasses.replace(curve, x=[t * chosen.seconds for t in curve.x])
    return curve
