"""What figures are made of: the rounds that are kept, and a mean with a band over seeds."""

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from ..report import Series

BAND = "mean and one standard deviation over seeds"


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
    rows: pd.DataFrame, label: str, *, hover: str = "", scale: float = 1.0, steps: bool = False
) -> Series:
    """The mean over seeds at every t, with a band of one standard deviation."""
    curve = scale * rows.groupby("t").value.agg(["mean", "std"]).fillna(0.0)
    mean, spread = curve["mean"], curve["std"]
    low, high = (mean - spread).tolist(), (mean + spread).tolist()
    return Series(label, curve.index.tolist(), mean.tolist(), low, high, steps, hover)


def accuracy_headline(table: pd.DataFrame) -> str:
    """The figure to show while running: the last test accuracy, and the seconds it took."""
    found = table[table.metric == "test_accuracy"].sort_values("t")
    seconds = table[table.metric == "seconds"].value.max()
    return f"{found.method.iloc[0]}: {found.value.iloc[-1]:.1%}, {seconds:.3g} s"
