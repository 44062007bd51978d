"""Features of the wide engine: their scale, their order, their statistics.

A feature that has been there in nine of ten rows is standardised, and where its value
is missing it counts as its mean. Any other, a word, is divided by the root of its mean square and
not centred: absent is 0. A key with a missing value counts as there.
"""

import math

import numpy as np
from numba import njit

from .layout import SOFTMAX
from .statistics import CLIP, LARGEST, STATISTICS_ROWS, blend, count_class, deviations
from .wide_layout import (
    AVERAGE,
    CLASSES,
    COUNT,
    FIRST,
    FREQUENCY,
    LOSS,
    ROWS,
    SCALE_MEMORY,
    SEEN,
    TARGET_AVERAGE,
    TARGET_COUNT,
    TARGET_VARIANCE,
    VARIANCE,
)

MANY_KEYS = 64
"""Beyond it, they are sorted by more than one exchange after the other."""
OFTEN = 0.9
"""A feature that is there in this share of the rows is centred."""


@njit
def scaled(cell: np.ndarray, value: float, rows: float) -> float:
    """A value as the members get it; 0 for a missing one and for one that was the same always."""
    seen = cell[SEEN]
    there = seen >= STATISTICS_ROWS and seen >= OFTEN * (rows - cell[FIRST])
    if there or seen >= OFTEN * rows:
        return deviations(value, cell[AVERAGE], cell[VARIANCE])
    size = math.sqrt(cell[VARIANCE] + cell[AVERAGE] * cell[AVERAGE]) if seen > 0.0 else abs(value)
    if not (abs(value) <= LARGEST and size > 0.0):
        return 0.0
    return min(max(value / size, -CLIP), CLIP)


@njit
def in_order(places: np.ndarray, a: np.ndarray) -> None:
    """Keys by their places, so that the order in which they came changes nothing. There are few, or
    they are in order already."""
    if places.shape[0] > MANY_KEYS:
        order = np.argsort(places)
        places[:], a[:] = places[order], a[order]
        return
    for i in range(2, places.shape[0]):
        place, value, at = places[i], a[i], i
        while places[at - 1] > place:
            places[at], a[at] = places[at - 1], a[at - 1]
            at -= 1
        places[at], a[at] = place, value


@njit
def take(
    head: np.ndarray,
    cells: np.ndarray,
    sizes: np.ndarray,
    settings: np.ndarray,
    index: np.ndarray,
    values: np.ndarray,
    target: float,
    label: int,
) -> None:
    """The row into the statistics of its features and of the target."""
    memory = settings[SCALE_MEMORY]
    for i in range(index.shape[0]):
        if index[i] >= 0:
            cell = cells[index[i] + 1]
            if not cell[SEEN] > 0.0:
                cell[FIRST] = head[ROWS]
            cell[SEEN] += 1.0
            if not math.isnan(values[i]):
                blend(cell, COUNT, AVERAGE, VARIANCE, values[i], memory)
    if sizes[LOSS] > SOFTMAX:
        blend(head, TARGET_COUNT, TARGET_AVERAGE, TARGET_VARIANCE, target, memory)
    else:
        count_class(head[FREQUENCY : FREQUENCY + sizes[CLASSES]], label, memory)
    head[ROWS] += 1.0
