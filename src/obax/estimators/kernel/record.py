"""How losses and hyperparameters went, in bounded memory: see `history.Record`.

One vector: POINTS ... REPEAT_TOTAL (see `repeat` for the last three), the scores that intervals are
made of (see `conformal`), then row numbers, mean losses and x of each point.
"""

import numpy as np
from numba import njit

from .conformal import SIZE
from .views import shaped

POINTS, USED, STRIDE, SEEN, TOTAL, SUM, PENDING, LAST, REPEATED, REPEAT_TOTAL, RING = range(11)
HEAD = RING + SIZE


@njit
def note(record: np.ndarray, loss: float, x: np.ndarray) -> None:
    """One row that was learned. A point is made of every STRIDE of them; when there is no more
    room, every other point goes and the points stand twice as far apart."""
    record[SEEN] += 1.0
    record[TOTAL] += loss
    record[SUM] += loss
    record[PENDING] += 1.0
    if record[PENDING] < record[STRIDE]:
        return
    points, used, width = int(record[POINTS]), int(record[USED]), x.shape[0]
    rows, means = record[HEAD : HEAD + points], record[HEAD + points : HEAD + 2 * points]
    xs = shaped(record[HEAD + 2 * points :], (points, width))
    rows[used] = record[SEEN]
    means[used] = record[SUM] / record[STRIDE]
    for i in range(width):
        xs[used, i] = x[i]
    record[SUM] = record[PENDING] = 0.0
    used += 1
    if used == points:
        used = points // 2
        for i in range(used):
            rows[i] = rows[2 * i + 1]
            means[i] = (means[2 * i] + means[2 * i + 1]) / 2.0
            for j in range(width):
                xs[i, j] = xs[2 * i + 1, j]
        record[STRIDE] *= 2.0
    record[USED] = used
