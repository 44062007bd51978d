"""What figures are made of: the rounds that are kept, and a mean among its seeds."""

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from ..report import Series

FEW = 10
"""So many seeds are drawn as they are; of more, the band that holds eight of ten."""


def points(horizon: int, count: int) -> np.ndarray:
    """At most `count` rounds from 1 to the horizon, evenly: where curves are kept."""
    return np.unique(np.linspace(1, horizon, min(count, horizon)).astype(int))


def cumulative(terms: ArrayLike) -> np.ndarray:
    """Running sums over the last axis; a run that diverged has lost everything."""
    with np.errstate(over="ignore", invalid="ignore"):
        sums = np.cumsum(np.asarray(terms, np.float64), axis=-1)
    return np.where(np.isfinite(sums), sums, np.inf)


def best_curve(curves: np.ndarray) -> int:
    """The setting with the least mean at the end, from curves [settings, seeds, T]."""
    return int(np.argmin(np.mean(curves[:, :, -1], axis=1)))


def band(
    rows: pd.DataFrame,
    label: str,
    *,
    hover: str = "",
    scale: float = 1.0,
    steps: bool = False,
    method: str = "",
) -> Series:
    """The mean over seeds at every t among the seeds themselves. Where a seed has several values
    at a t, such as one for each coordinate, it has their mean."""
    seeds = scale * rows.groupby(["t", "seed"]).value.mean().unstack()
    mean = seeds.mean(axis=1)
    low = high = None
    lines: list[list[float]] = []
    if seeds.shape[1] > FEW:
        low, high = (seeds.quantile(share, axis=1).tolist() for share in (0.1, 0.9))
    elif seeds.shape[1] > 1:
        lines = seeds.T.to_numpy().tolist()
    found = (seeds.index.tolist(), mean.tolist(), low, high)
    return Series(label, *found, steps=steps, hover=hover, seeds=lines, method=method)


def accuracy_headline(table: pd.DataFrame) -> str:
    """The figure to show while running: the last test accuracy, and the seconds it took."""
    found = table[table.metric == "test_accuracy"].sort_values("t")
    seconds = table[table.metric == "seconds"].value.max()
    return f"{found.method.iloc[0]}: {found.value.iloc[-1]:.1%}, {seconds:.3g} s"
