"""What is known of features, targets and classes: running means, variances, frequencies.

A glitch (a -9999, a target of 1e9) must not spoil them, a jump must be believed. What they cannot
judge is put aside and judged by itself, by median and median deviation: the first values of a
stream, and values so far off that the model is blind for them, once enough came in a row.
"""

import math

import numpy as np
from numba import njit

from .layout import (
    ASIDE,
    ASIDES,
    AVERAGES,
    BALANCE,
    COUNTS,
    DOUBTS,
    FEATURES,
    FREQUENCY,
    LOSS,
    SOFTMAX,
    TARGET_ASIDE,
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
"""... once there are so many rows to judge it by; n rows are allowed STATISTICS_ROWS / n times as
much."""
JUMP = 3
"""So many targets in a row that are cut off are a jump."""
FARTHEST = 100.0 * 1.4826
"""A glitch among them is so many median deviations off; 100 deviations of a Gaussian."""
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
def standardise(vector: np.ndarray, sizes: np.ndarray, row: np.ndarray, a: np.ndarray) -> None:
    """The row as members get it, once for all of them. Of values that are cut off, one farther off
    than any before counts as missing, and so does one after another, which may be a jump."""
    averages, variances = part(vector, sizes, AVERAGES), part(vector, sizes, VARIANCES)
    for i in range(sizes[FEATURES]):
        a[i] = deviations(row[i], averages[i], variances[i])
        if abs(a[i]) == CLIP:
            aside = sizes[ASIDES] + i * ASIDE
            held, farther = int(vector[aside]), abs(row[i] - averages[i]) > vector[aside + 1]
            if (held >= 0 and farther) or (held > 0 and row[i] != vector[aside + 1 + held]):
                a[i] = 0.0
    a[sizes[FEATURES]] = 1.0


@njit
def importance(vector: np.ndarray, sizes: np.ndarray, label: int) -> float:
    """What a row counts for the rarity of its class: 1, unless classes are balanced."""
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
            renew(vector, at[0], at[1], at[2], sizes[ASIDES] + i * ASIDE, row[i], memory, DOUBTS)
    if sizes[LOSS] > SOFTMAX:
        at = (sizes[TARGET_COUNT], sizes[TARGET_AVERAGE], sizes[TARGET_VARIANCE])
        renew(vector, at[0], at[1], at[2], sizes[TARGET_ASIDE], target, memory, JUMP)
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
    aside_at: int,
    value: float,
    memory: float,
    enough: int,
) -> None:
    """Running mean and variance with one more value, which moves them by a few deviations at most.

    `vector[aside_at]` is the number of values aside, less than 0 for the first ones of a stream;
    then the longest way from the mean so far, then the values. `enough` values in a row that are
    cut off are believed, to be where all are from now on, unless they are all the same: that may
    well be the rare value of a feature. Only for targets, for which few are enough, it is a level.
    """
    rows, average, variance = vector[count_at], vector[average_at], vector[variance_at]
    held, values = int(vector[aside_at]), vector[aside_at + 2 : aside_at + ASIDE]
    if rows == 0.0 or held < 0:
        n = 1 - held
        values[n - 1] = value
        vector[average_at], vector[variance_at] = judge(values[:n])
        vector[count_at] = min(float(n), memory)
        vector[aside_at] = -n if n < DOUBTS else 0
        return
    gap = value - average
    vector[aside_at + 1] = max(vector[aside_at + 1], abs(gap))
    if 0.0 < CLIP * CLIP * variance < gap * gap:
        values[held] = value
        held += 1
    else:
        held = 0
    vector[aside_at] = held % enough
    if held == enough:
        there, spread = judge(values[:enough])
        if enough == JUMP or spread > 0.0:
            vector[average_at], vector[variance_at] = there, max(variance, spread)
            vector[count_at] = min(float(DOUBTS), memory)
            vector[aside_at + 1] = 0.0
            return
    blend(vector, count_at, average_at, variance_at, value, memory)


@njit
def blend(
    vector: np.ndarray,
    count_at: int,
    average_at: int,
    variance_at: int,
    value: float,
    memory: float,
) -> None:
    """Running mean and variance with one more value, which moves them by a few deviations at most,
    and by more while there are few rows to judge it by."""
    rows, average, variance = vector[count_at], vector[average_at], vector[variance_at]
    gap, most = value - average, STATISTICS_CLIP
    if rows < STATISTICS_ROWS:
        most *= STATISTICS_ROWS / max(rows, 1.0)
    if 0.0 < most * most * variance < gap * gap:
        gap = math.copysign(most * math.sqrt(variance), gap)
    count = min(rows, memory - 1.0) + 1.0
    by = 1.0 / count
    vector[count_at] = count
    vector[average_at] = average + by * gap
    vector[variance_at] = (1.0 - by) * (variance + by * gap * gap)


@njit
def judge(values: np.ndarray) -> tuple[float, float]:
    """Mean and variance of a few values, without glitches."""
    room = np.empty(values.shape[0])
    for i in range(values.shape[0]):
        room[i] = values[i]
    middle = median(room)
    for i in range(values.shape[0]):
        room[i] = abs(values[i] - middle)
    limit = FARTHEST * median(room)
    n = average = square = 0.0
    for value in values:
        gap = value - middle
        if abs(gap) <= limit or limit == 0.0:
            n += 1.0
            average += gap
            square += gap * gap
    average /= n
    return middle + average, max(square / n - average * average, 0.0)


@njit
def median(values: np.ndarray) -> float:
    """Of a few values, which it puts in order. (NumPy's way takes seconds to compile.)"""
    n = values.shape[0]
    for i in range(1, n):
        value, at = values[i], i
        while at > 0 and values[at - 1] > value:
            values[at] = values[at - 1]
            at -= 1
        values[at] = value
    return 0.5 * (values[n // 2] + values[(n - 1) // 2])
