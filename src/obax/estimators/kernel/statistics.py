"""What is known of features, targets and classes: running means, variances, frequencies.

A glitch (a -9999, a target of 1e9) must not spoil them, a jump must be believed. What they cannot
judge is put aside and judged by itself, by median and median deviation: the first values of a
stream, and values so far off that the model is blind for them, once so many came in a row.
"""

import math

import numpy as np
from numba import njit

from .layout import (
    AVERAGES,
    BALANCE,
    COUNTS,
    DOUBTFUL,
    DOUBTS,
    FEATURES,
    FREQUENCY,
    LOSS,
    SOFTMAX,
    TARGET_AVERAGE,
    TARGET_COUNT,
    TARGET_DOUBTFUL,
    TARGET_VARIANCE,
    VARIANCES,
)
from .views import part

CLIP = 10.0
"""Standardised features and targets are cut off at this many deviations."""
STATISTICS_CLIP = 4.0
"""What a row can do to the running mean and variance, in deviations."""
STATISTICS_ROWS = 30.0
"""... once there are so many rows to judge it by; n rows are allowed STATISTICS_ROWS / n times as
much."""
ASIDE = 10.0 * 1.4826
"""Of these, none counts for more than so many median deviations (10 deviations of a Gaussian)."""
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
    if sizes[BALANCE] == 0:
        return 1.0
    frequency = part(vector, sizes, FREQUENCY)
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
            aside = sizes[DOUBTFUL] + i * (1 + DOUBTS)
            renew(vector, at[0], at[1], at[2], aside, row[i], memory, False)
    if sizes[LOSS] > SOFTMAX:
        at = (sizes[TARGET_COUNT], sizes[TARGET_AVERAGE], sizes[TARGET_VARIANCE])
        renew(vector, at[0], at[1], at[2], sizes[TARGET_DOUBTFUL], target, memory, True)
        return
    frequency = part(vector, sizes, FREQUENCY)
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
    aside_at: int,
    value: float,
    memory: float,
    level: bool,
) -> None:
    """Running mean and variance with one more value, which moves them by a few deviations at most.

    `vector[aside_at]` is the number of values aside, less than 0 for the first ones of a stream;
    the values follow it. Values that are all the same are a new level of a target, which `level`
    says, but may well be the rare value of a feature.
    """
    rows, average, variance = vector[count_at], vector[average_at], vector[variance_at]
    held = int(vector[aside_at])
    if rows == 0.0 or held < 0:
        vector[aside_at + 1 - held] = value
        n = 1 - held
        vector[average_at], vector[variance_at] = judge(vector[aside_at + 1 : aside_at + 1 + n])
        vector[count_at] = min(float(n), memory)
        vector[aside_at] = -n if n < DOUBTS else 0
        return
    gap = value - average
    deviation = math.sqrt(variance)
    if 0.0 < CLIP * deviation < abs(gap):
        vector[aside_at + 1 + held] = value
        held += 1
    else:
        held = 0
    vector[aside_at] = held % DOUBTS
    if held == DOUBTS:
        found = judge(vector[aside_at + 1 : aside_at + 1 + DOUBTS])
        if level or found[1] > 0.0:
            vector[average_at], vector[variance_at] = found
            vector[count_at] = min(float(DOUBTS), memory)
            return
    if variance > 0.0:
        limit = STATISTICS_CLIP * max(1.0, STATISTICS_ROWS / rows) * deviation
        gap = min(max(gap, -limit), limit)
    count = min(rows, memory - 1.0) + 1.0
    vector[count_at] = count
    vector[average_at] = average + gap / count
    vector[variance_at] = (1.0 - 1.0 / count) * (variance + gap * gap / count)


@njit
def judge(values: np.ndarray) -> tuple[float, float]:
    """Mean and variance of a few values, of which some may be glitches."""
    n = values.shape[0]
    middle = median(values)
    limit = ASIDE * median(np.abs(values - middle))
    average = square = 0.0
    for i in range(n):
        gap = values[i] - middle
        if limit > 0.0:
            gap = min(max(gap, -limit), limit)
        average += gap / n
        square += gap * gap / n
    return middle + average, max(square - average * average, 0.0)


@njit
def median(values: np.ndarray) -> float:
    """Of a few values."""
    ordered = np.sort(values)
    n = ordered.shape[0]
    return 0.5 * (ordered[n // 2] + ordered[(n - 1) // 2])
