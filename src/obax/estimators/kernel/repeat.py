"""How well the last target alone would have predicted each row: where it does better than the
model, lags are worth a try.

For numbers the last target is the prediction. For classes the last label has the probability of
being repeated that rows so far give, (repeats + 1) / (rows + 2), and the others share the rest.
"""

import math

import numpy as np
from numba import njit

from .layout import CLASSES, LOSS, SOFTMAX, TARGET_AVERAGE, TARGET_VARIANCE
from .losses import suffered
from .record import LAST, REPEAT_TOTAL, REPEATED, SEEN
from .statistics import deviations


@njit
def repeat(
    record: np.ndarray,
    vector: np.ndarray,
    sizes: np.ndarray,
    z: np.ndarray,
    slope: np.ndarray,
    target: float,
    target_z: float,
    delta: float,
    balance: float,
    loss: float,
) -> None:
    """A row that is about to be noted; the first, which has none before it, counts as the model's
    own `loss`. `z` and `slope` are room."""
    last = record[LAST]
    record[LAST] = target
    if math.isnan(last):
        record[REPEAT_TOTAL] += loss
    elif sizes[LOSS] <= SOFTMAX:
        again = (record[REPEATED] + 1.0) / (record[SEEN] + 1.0)
        p = again if target == last else (1.0 - again) / (sizes[CLASSES] - 1)
        record[REPEATED] += 1.0 if target == last else 0.0
        record[REPEAT_TOTAL] -= balance * math.log(p)
    else:
        average, variance = vector[sizes[TARGET_AVERAGE]], vector[sizes[TARGET_VARIANCE]]
        z[0] = deviations(last, average, variance)
        record[REPEAT_TOTAL] += balance * suffered(sizes[LOSS], z, target_z, delta, slope)
