"""What happened, in bounded memory: how the losses and hyperparameters went, and which rows were
rejected."""

import collections
import re
from collections.abc import Hashable, Iterator, Mapping
from typing import TypedDict, overload

import numpy as np

from .kernel.record import HEAD, LAST, POINTS, REPEAT_TOTAL, RING, SEEN, STRIDE, TOTAL, USED

MOST_POINTS = 1024
KEPT = 100
_VALUE = re.compile(r" is .*?, ")
"""The part of a reason that says what a feature was."""


class RejectedRow(TypedDict):
    """A row that the model has not seen; `row` counts the rows given to it from 1."""

    row: int
    reason: str
    values: Mapping[Hashable, object]


class Rejected:
    """The last rejected rows, oldest first, with the reason; `count` is of all of them."""

    def __init__(self) -> None:
        self.count = 0
        self._kept: collections.deque[RejectedRow] = collections.deque(maxlen=KEPT)

    def add(self, row: int, reason: str, values: Mapping[Hashable, object]) -> None:
        """Keep one; `row` counts the rows given to the model from 1."""
        self.count += 1
        self._kept.append({"row": row, "reason": reason, "values": values})

    def alarm(self, learned: bool) -> str | None:
        """What is to be said where nothing was learned so far, or nothing since many rows: one bad
        row in the beginning may settle what all later ones cannot be."""
        if len(self._kept) < KEPT:
            return None
        if not learned:
            return f"{KEPT} rows were rejected and none was learned, {self.most_often()}."
        if self._kept[-1]["row"] - self._kept[0]["row"] == KEPT - 1:
            return f"the last {KEPT} rows were all rejected, {self.most_often()}."
        return None

    def most_often(self) -> str:
        """Why, most of the time, in words that follow on a sentence. Reasons count as the same if
        they differ in the value alone."""
        kinds = collections.Counter(_VALUE.sub(" ", one["reason"]) for one in self._kept)
        kind, times = kinds.most_common(1)[0]
        reason = next(
            one["reason"] for one in reversed(self._kept) if _VALUE.sub(" ", one["reason"]) == kind
        )
        return f"most often ({times} of the last {len(self._kept)}) because {reason}"

    def __len__(self) -> int:
        return len(self._kept)

    @overload
    def __getitem__(self, index: int) -> RejectedRow: ...
    @overload
    def __getitem__(self, index: slice) -> list[RejectedRow]: ...

    def __getitem__(self, index: int | slice) -> RejectedRow | list[RejectedRow]:
        return list(self._kept)[index]

    def __iter__(self) -> Iterator[RejectedRow]:
        return iter(list(self._kept))

    def __repr__(self) -> str:
        return f"Rejected(count={self.count}, last={list(self._kept)[-1:]})"


class Record:
    """The mean loss of every `stride` rows, and x at the end of each such stretch.

    When it is full, every other point goes and the points stand twice as far apart. All of it is
    one vector, `data`, in which the kernel notes rows as it learns them.
    """

    def __init__(self, width: int, points: int = MOST_POINTS):
        self.width = width
        self.data = np.zeros(HEAD + points * (2 + width))
        self.data[POINTS], self.data[STRIDE], self.data[LAST] = points, 1, np.nan

    @classmethod
    def of(cls, head: np.ndarray, rows: np.ndarray, loss: np.ndarray, x: np.ndarray) -> "Record":
        """A record from its parts."""
        record = cls(x.shape[1], int(head[POINTS]))
        record.data[:HEAD] = head
        for place, part in zip(record._places(), (rows, loss, x), strict=True):
            place[: len(part)] = part
        return record

    @property
    def head(self) -> np.ndarray:
        """The small things; `arrays` has the others."""
        return self.data[:HEAD].copy()

    @property
    def ring(self) -> np.ndarray:
        """The scores of the last rows and the coverages in use: see `kernel.conformal`."""
        return self.data[RING:HEAD]

    @property
    def stride(self) -> int:
        """Rows from one point to the next."""
        return int(self.data[STRIDE])

    @property
    def seen(self) -> int:
        """Rows noted."""
        return int(self.data[SEEN])

    @property
    def total(self) -> float:
        """The sum of their losses."""
        return float(self.data[TOTAL])

    @property
    def repeat_total(self) -> float:
        """The same sum, had the last target alone made the predictions."""
        return float(self.data[REPEAT_TOTAL])

    def arrays(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Row numbers, mean losses, x."""
        rows, loss, x = (place[: int(self.data[USED])].copy() for place in self._places())
        return rows.astype(np.int64), loss, x

    def widened(self, width: int, where: np.ndarray) -> "Record":
        """The same where x has got more entries: the old ones now stand at `where`."""
        rows, loss, x = self.arrays()
        wide = np.full((len(x), width), np.nan)
        wide[:, where] = x
        return Record.of(self.head, rows, loss, wide)

    def _places(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        points = int(self.data[POINTS])
        rows, loss = self.data[HEAD : HEAD + 2 * points].reshape(2, points)
        return rows, loss, self.data[HEAD + 2 * points :].reshape(points, self.width)
