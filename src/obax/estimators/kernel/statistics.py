"""What is known of features, targets and classes: running means, variances, frequencies."""

import math

import numpy as np
from numba import njit

from .layout import (
    AVERAGES,
    BALANCE,
    COUNTS,
    FEATURES,
    FREQUENCY,
    LOSS,
    SOFTMAX,
    TARGET_AVERAGE,
    TARGET_COUNT,
    TARGET_VARIANCE,
    VARIANCES,
)
from .views import part

CLIP = 10.0
"""Standardised features and targets are cut off at this many deviations."""
STATISTICS_CLIP = 4.0
"""What a row can do to the running mean and variance, in deviations."""
STATISTICS_ROWS = 30.0
"""So many rows enter the statistics as they are."""
LARGEST = 1e15
"""Values beyond it are absurd."""
EPS = float(np.finfo(np.float64).eps)


@njit
def deviations(value: float, average: float, variance: float) -> float:
    """From the running mean, cut off; 0 for a missing value, an absurd one and a constant."""
    floor = EPS * average
    if not (abs(value) <= LARGEST and variance > floor * floor):
        return 0.0
    return min(max((value - average) / math.sqrt(variance), -CLIP), CLIP)


@njit
def importance(vector: np.ndarray, sizes: np.ndarray, label: int) -> float:
    """The weight of a row in the leader's loss: 1, unless classes are balanced."""
    return 1.0 if sizes[BALANCE] == 0 else rarity(part(vector, sizes, FREQUENCY), label)


@njit
def rarity(frequency: np.ndarray, label: int) -> float:
    """How much more a row of a class counts than in a stream where all are as frequent."""
    total, seen = 0.0, 0.0
    for c in range(frequency.shape[0]):
        total += frequency[c]
        seen += 1.0 if frequency[c] > 0.0 else 0.0
    if not frequency[label] > 0.0:
        return 1.0
    return 1.0 / max(frequency[label] / total * seen, 0.01)


@njit
def count(
    vector: np.ndarray,
    sizes: np.ndarray,
    row: np.ndarray,
    target: float,
    label: int,
    memory: float,
) -> None:
    """The row into the statistics of features and target."""
    for i in range(sizes[FEATURES]):
        if not math.isnan(row[i]):
            at = (sizes[COUNTS] + i, sizes[AVERAGES] + i, sizes[VARIANCES] + i)
            renew(vector, at[0], at[1], at[2], row[i], memory)
    if sizes[LOSS] > SOFTMAX:
        at = (sizes[TARGET_COUNT], sizes[TARGET_AVERAGE], sizes[TARGET_VARIANCE])
        renew(vector, at[0], at[1], at[2], target, memory)
        return
    count_class(part(vector, sizes, FREQUENCY), label, memory)


@njit
def count_class(frequency: np.ndarray, label: int, memory: float) -> None:
    """One more row of a class."""
    total = 0.0
    for c in range(frequency.shape[0]):
        total += frequency[c]
    # Beyond the memory, counts fade: 1 in, 1 out.
    if total >= memory:
        for c in range(frequency.shape[0]):
            frequency[c] *= 1.0 - 1.0 / memory
    frequency[label] += 1.0


@njit
def renew(
    vector: np.ndarray,
    count_at: int,
    average_at: int,
    variance_at: int,
    value: float,
    memory: float,
) -> None:
    """Running mean and variance with one more value, which moves them by a few deviations at most
    once there are some rows to judge it by."""
    rows, average, variance = vector[count_at], vector[average_at], vector[variance_at]
    count = min(rows, memory - 1.0) + 1.0
    gap = value - average
    if rows >= STATISTICS_ROWS and variance > 0.0:
        limit = STATISTICS_CLIP * math.sqrt(variance)
        gap = min(max(gap, -limit), limit)
    vector[count_at] = count
    vector[average_at] = average + gap / count
    vector[variance_at] = (1.0 - 1.0 / count) * (variance + gap * gap / count)
