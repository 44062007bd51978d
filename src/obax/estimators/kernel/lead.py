"""The leader's step: along the slopes of the tuned member's loss in its hyperparameters."""

import math

import numpy as np
from numba import njit

from .layout import (
    BANDWIDTH,
    ENTRIES,
    HIGH,
    LEARNED,
    LOW,
    MEAN,
    PENALTIES,
    ROWS,
    SETTINGS,
    SQUARE,
    STEP_SIZE,
    X,
)
from .views import part

WARM_UP, WARM_UP_ROWS = 20.0, 300.0
"""The leader's first steps are 1 + WARM_UP times as long, falling to plain ones."""
MEAN_DECAY, SQUARE_ROWS = 0.9, 3000.0
"""Of the running mean of the hypergradient, and the rows in that of its square. These are many:
what one change of the stream weighs must not be forgotten before the next, or the small slopes in
between move x as far as the large ones. Until there are so many it is the last tenth of them: what
the very first rows weigh, whose standardisation has not settled, must be forgotten."""
LONG_AGO = 1000.0
"""Rows after which nothing is left of the start in the running mean."""
LONGEST_SLOPE = 30.0
"""A slope counts for at most so many of its running sizes: one glitch is not to be what all slopes
after it are measured by."""


@njit
def tune(vector: np.ndarray, work: np.ndarray, sizes: np.ndarray, slopes: np.ndarray) -> None:
    """The leader's step."""
    rows, n = vector[sizes[ROWS]], sizes[LEARNED]
    step(
        part(vector, sizes, X),
        part(vector, sizes, MEAN),
        part(vector, sizes, SQUARE),
        part(work, sizes, LOW),
        part(work, sizes, HIGH),
        sizes[ENTRIES : ENTRIES + n],
        sizes[PENALTIES] + 1,
        sizes[BANDWIDTH],
        work[sizes[SETTINGS] + STEP_SIZE],
        rows,
        slopes,
    )
    vector[sizes[ROWS]] = rows + 1.0


@njit
def step(
    x: np.ndarray,
    mean: np.ndarray,
    square: np.ndarray,
    low: np.ndarray,
    high: np.ndarray,
    entries: np.ndarray,
    memory: int,
    bandwidth: int,
    step_size: float,
    rows: float,
    slopes: np.ndarray,
) -> None:
    """Along the running mean of the hypergradient, in units of its running size, so that a start
    that is five orders of magnitude off is left as fast as any other. `memory` and `bandwidth` are
    where in x they stand."""
    rate = step_size * (1.0 + WARM_UP / (1.0 + rows / WARM_UP_ROWS))
    mean_share = 1.0 - MEAN_DECAY ** (rows + 1.0) if rows < LONG_AGO else 1.0
    square_share = max(1.0 / SQUARE_ROWS, 10.0 / (rows + 10.0))
    for j in range(entries.shape[0]):
        slope = slopes[j]
        if rows >= WARM_UP_ROWS and square[j] > 0.0:
            most = LONGEST_SLOPE * math.sqrt(square[j])
            slope = min(max(slope, -most), most)
        mean[j] = MEAN_DECAY * mean[j] + (1.0 - MEAN_DECAY) * slope
        square[j] += square_share * (slope * slope - square[j])
        size = math.sqrt(square[j]) + 1e-12
        at = entries[j]
        # While there are fewer rows than waves, a bandwidth at which no row is like another looks
        # best: there the bandwidth does not hurry.
        by = step_size if at == bandwidth else rate
        top = high[at]
        if at == memory:
            # There is no more to remember than has been seen, and with a memory that is longer the
            # slope vanishes: there would be no way back after a change.
            top = min(top, max(x[at], math.log(rows + WARM_UP_ROWS)))
        x[at] = min(max(x[at] - by * mean[j] / mean_share / size, low[at]), top)
