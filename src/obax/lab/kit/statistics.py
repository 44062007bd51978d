"""What the tables of experiments are read with: intervals, and the line shown while running."""

import numpy as np
import pandas as pd
from scipy import stats


def interval(values: np.ndarray) -> tuple[float, float]:
    """Mean and half-width of its 95% t-interval; the latter is infinite for a single value and for
    a mean that is not finite. Without values the mean is NaN."""
    if len(values) == 0:
        return float("nan"), float("inf")
    with np.errstate(invalid="ignore"):
        mean = float(np.mean(values))
        if len(values) < 2 or not np.isfinite(mean):
            return mean, float("inf")
        error = float(np.std(values, ddof=1)) / np.sqrt(len(values))
    return mean, float(stats.t.ppf(0.975, len(values) - 1)) * error


def accuracy_headline(table: pd.DataFrame) -> str:
    """The figure to show while running: the last test accuracy, and the seconds it took."""
    found = table[table.metric == "test_accuracy"].sort_values("t")
    seconds = table[table.metric == "seconds"].value.max()
    return f"{found.method.iloc[0]}: {found.value.iloc[-1]:.1%}, {seconds:.3g} s"
