"""The way into the kernel, compiled when first asked for and kept on disk after that."""

import contextlib
import functools
import sys
import tempfile
import threading
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import numba
import numpy as np
from numba import float64, int64, void

from .conformal import asked_reach, hear
from .layout import CLASSES, FEATURES, LOSS as KIND, SHARES, SOFTMAX, X
from .lean import drop_source, spare_scipy
from .record import HEAD, RING
from .row import ACCEPTED, play_row
from .views import members, room, shaped
from .whole import as_one

Play = Callable[[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray], None]
"""`play(vector, record, work, sizes, rows, out)`: test on every row and learn those that are to be
learned, in their order.

A line of `rows` has the features, NaN where one is missing, the target, and the weight of the row's
loss, 0 if it is not to be learned. A line of `out` gets what became of the row, its loss before it
was learned, how far off the prediction may be (see `conformal`), what was said of it (see `row`)
and, where it is long enough, x and the members' shares after it and, after those, what each member
said: the probability of the target, or a number in its deviations.
"""
OUTCOME, LOSS, REACH, SAID = range(4)
T = TypeVar("T")
_loading = threading.RLock()


def once(load: Callable[[], T]) -> Callable[[], T]:
    """`load`, called by one thread and once: a kernel that is loaded twice at the same time finds
    the names of the other."""
    kept = functools.cache(load)

    @functools.wraps(load)
    def loaded() -> T:
        with _loading:
            return kept()

    return loaded


@once
def kernel() -> Play:
    """Compiled for this machine, or read from the cache that an earlier process left."""
    return cached(_compiled, compact=True)


def cached(compiled: Callable[..., T], *, compact: bool = False) -> T:
    """What `compiled` compiles as one piece (see `whole`), kept on disk.

    Numba keeps it beside this file, where that cannot be written in the user's cache folder, or in
    NUMBA_CACHE_DIR; where nothing can be written, each process compiles for itself.
    """
    spare_scipy()
    sources = 0
    for file in sorted(Path(__file__).parent.glob("*.py")):
        sources = zlib.crc32(file.read_bytes(), sources)
    # Of one cache only: other versions and other checkouts have theirs.
    place = zlib.crc32(f"{Path(__file__).parent} {sys.version} {numba.__version__}".encode())
    name = f"obax-{compiled.__module__}-{sources:08x}-{place:08x}"
    with alone(name), as_one(compiled.__qualname__, compact=compact):
        try:
            return drop_source(compiled(sources, cache=True))
        except RuntimeError:
            return compiled(sources, cache=False)


@contextlib.contextmanager
def alone(name: str) -> Iterator[None]:
    """One process at a time, where the system can: what one of several that start together compiles
    the others then read from the cache. A process that ends leaves the lock."""
    try:
        import fcntl

        file = (Path(tempfile.gettempdir()) / f"{name}.lock").open("a")
    except (ImportError, OSError):
        yield
        return
    with file:
        with contextlib.suppress(OSError):
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _compiled(sources: int, *, cache: bool) -> Play:
    """Numba looks for changes in the file of a function alone, not in those of the functions that
    it calls; `sources`, which stands for all of them, makes it look again."""

    @numba.njit(
        void(*3 * [float64[::1]], int64[::1], float64[:, ::1], float64[:, ::1]),
        cache=cache,
        error_model="numpy",
    )
    def play(
        vector: np.ndarray,
        record: np.ndarray,
        work: np.ndarray,
        sizes: np.ndarray,
        rows: np.ndarray,
        out: np.ndarray,
    ) -> None:
        _ = sources
        vector, record = (
            shaped(vector, vector.shape),
            shaped(record, record.shape),
        )
        work, sizes = shaped(work, work.shape), shaped(sizes, sizes.shape)
        rows, out = shaped(rows, rows.shape), shaped(out, out.shape)
        f = sizes[FEATURES]
        said_end = SAID + max(1, sizes[CLASSES])
        followers, leader, plain = members(vector, work, sizes)
        space = room(work, sizes)
        trail = vector[sizes[X] : sizes[SHARES + 1]]
        ring, numbers = record[RING:HEAD], sizes[KIND] > SOFTMAX
        for i in range(rows.shape[0]):
            row, line = rows[i], out[i]
            line[REACH] = asked_reach(ring)
            line[OUTCOME], line[LOSS] = play_row(
                vector,
                record,
                work,
                sizes,
                followers,
                leader,
                plain,
                space,
                row[:f],
                row[f],
                row[f + 1],
                line[SAID:said_end],
            )
            if row[f + 1] > 0.0 and line[OUTCOME] == ACCEPTED:
                hear(ring, line[SAID:said_end], row[f], numbers)
            told = line[said_end:]
            for j in range(min(told.shape[0], trail.shape[0])):
                told[j] = trail[j]
            label = int(row[f]) if sizes[CLASSES] > 0 else 0
            for j in range(told.shape[0] - trail.shape[0]):
                told[trail.shape[0] + j] = space.said[j, label]

    return play
