"""Intervals for numbers and sets of classes that hold what was asked: see `kernel.conformal`."""

import contextlib
import math
from collections.abc import Hashable, Iterator, Sequence

import numpy as np

from .core import Core
from .kernel.conformal import (
    ASKED,
    COVERAGE,
    COVERED,
    HEAD,
    LEARNED,
    MOST,
    SCORES,
    SLOT,
    SLOTS,
    ask,
    reach,
)


@contextlib.contextmanager
def asked(core: Core, coverage: float | None) -> Iterator[None]:
    """While it lasts, rows that are played tell how far off their prediction may be."""
    if coverage is None:
        yield
        return
    with core._lock:
        slot = slot_of(core, coverage)
        core.record.ring[ASKED] = slot + 1
        try:
            yield
        finally:
            # Not the ring of before: the record may have grown.
            core.record.ring[ASKED] = 0.0


def slot_of(core: Core, coverage: float) -> int:
    """Where the ring has this coverage, from now on if it was not in use yet."""
    number = isinstance(coverage, int | float | np.number) and not isinstance(coverage, bool)
    if not (number and 0 < coverage < 1):
        raise ValueError(f"coverage must be a number between 0 and 1, but got {coverage!r}.")
    slot = ask(core.record.ring, float(coverage))
    if slot == MOST:
        raise ValueError(
            f"coverage must be one of at most {MOST} that a model keeps in use, which are "
            f"{', '.join(f'{one:g}' for one in reached(core))}, but got {coverage!r}."
        )
    return slot


def reach_now(core: Core, coverage: float) -> float:
    """How far off the next prediction may be."""
    # What the kernel runs, as Python: it is short, and not worth a compilation of its own.
    return float(reach.py_func(core.record.ring, slot_of(core, coverage)))


def reached(core: Core) -> dict[float, float]:
    """Each coverage in use, and that of the rows learned since it was first asked for; NaN where
    there are none."""
    table = core.record.ring[HEAD:SCORES].reshape(MOST, SLOT)[: int(core.record.ring[SLOTS])]
    return {
        float(slot[COVERAGE]): float(slot[COVERED] / slot[LEARNED]) if slot[LEARNED] else math.nan
        for slot in table
    }


def around(said: np.ndarray, reaches: np.ndarray | float) -> np.ndarray:
    """Low and high, a line for each row."""
    return np.stack([said - reaches, said + reaches], axis=1)


def likely(said: Sequence[float], reach: float, classes: Sequence[Hashable]) -> set[Hashable]:
    """The classes of a row that are probable enough: 1 - p, as the scores have it."""
    # What has no chance at all was not known when it was said.
    return {label for label, p in zip(classes, said, strict=True) if 1.0 - p <= reach and p > 0.0}
