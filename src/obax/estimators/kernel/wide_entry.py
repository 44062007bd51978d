"""The way into the wide engine, compiled when a first wide model is made: see `entry`."""

from collections.abc import Callable

import numba
import numpy as np
from numba import float64, int64, void

from .conformal import asked_reach, hear
from .entry import LOSS, OUTCOME, REACH, SAID, cached, once
from .layout import SOFTMAX
from .record import HEAD, RING
from .row import ACCEPTED
from .wide import play_row, trail
from .wide_layout import CLASSES, LOSS as KIND

WidePlay = Callable[..., None]
"""`play(head, record, cells, square, sizes, settings, begins, index, values, goals, out)`: as
`entry.Play`.

Row i has the keys `index[begins[i] : begins[i + 1]]`, negative where they are not known, and their
values, NaN where one is missing; a line of `goals` has the target and the weight, 0 for a row that
is not to be learned.
"""


@once
def wide_kernel() -> WidePlay:
    """Compiled for this machine, or read from the cache that an earlier process left."""
    return cached(_compiled)


def _compiled(sources: int, *, cache: bool) -> WidePlay:
    @numba.njit(
        void(
            *(
                float64[::1],
                float64[::1],
                float64[:, ::1],
                float64[:, ::1],
                int64[::1],
                float64[::1],
            ),
            *(int64[::1], int64[::1], float64[::1], float64[:, ::1], float64[:, ::1]),
        ),
        cache=cache,
        error_model="numpy",
    )
    def play(
        head: np.ndarray,
        record: np.ndarray,
        cells: np.ndarray,
        square: np.ndarray,
        sizes: np.ndarray,
        settings: np.ndarray,
        begins: np.ndarray,
        index: np.ndarray,
        values: np.ndarray,
        goals: np.ndarray,
        out: np.ndarray,
    ) -> None:
        _ = sources
        said_end = SAID + max(1, sizes[CLASSES])
        ring, numbers = record[RING:HEAD], sizes[KIND] > SOFTMAX
        for i in range(goals.shape[0]):
            begin, end, line = begins[i], begins[i + 1], out[i]
            line[REACH] = asked_reach(ring)
            line[OUTCOME], line[LOSS] = play_row(
                head,
                record,
                cells,
                square,
                sizes,
                settings,
                index[begin:end],
                values[begin:end],
                goals[i, 0],
                goals[i, 1],
                line[SAID:said_end],
            )
            if goals[i, 1] > 0.0 and line[OUTCOME] == ACCEPTED:
                hear(ring, line[SAID:said_end], goals[i, 0], numbers)
            if line.shape[0] > said_end:
                line[said_end:] = trail(head, sizes)

    return play
