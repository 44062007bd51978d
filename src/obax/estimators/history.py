"""What happened, in bounded memory: how the losses and hyperparameters went, and which rows were
rejected."""

import collections
from collections.abc import Hashable, Iterator, Mapping
from typing import Any, TypedDict

import numpy as np

POINTS = 1024
KEPT = 100


class RejectedRow(TypedDict):
    """A row that the model has not seen; `row` counts the rows given to it from 1."""

    row: int
    reason: str
    values: Mapping[Hashable, float]


class Rejected:
    """The last rejected rows, oldest first, with the reason; `count` is of all of them."""

    def __init__(self) -> None:
        self.count = 0
        self._kept: collections.deque[RejectedRow] = collections.deque(maxlen=KEPT)

    def add(self, row: int, reason: str, values: Mapping[Hashable, float]) -> None:
        """Keep one; `row` counts the rows given to the model from 1."""
        self.count += 1
        self._kept.append({"row": row, "reason": reason, "values": values})

    def __len__(self) -> int:
        return len(self._kept)

    def __getitem__(self, index: int | slice) -> Any:
        return list(self._kept)[index]

    def __iter__(self) -> Iterator[RejectedRow]:
        return iter(list(self._kept))

    def __repr__(self) -> str:
        return f"Rejected(count={self.count}, last={list(self._kept)[-1:]})"


class Record:
    """The mean loss of every `stride` rows, and x at the end of each such stretch.

    When it is full, every other point goes and the points stand twice as far apart.
    """

    def __init__(self, width: int, points: int = POINTS):
        self.points = points
        self.width = width
        self.stride = 1
        self.rows: list[int] = []
        self.loss: list[float] = []
        self.x: list[np.ndarray] = []
        self.seen = 0
        self.total = 0.0
        self._sum = 0.0
        self._pending = 0

    def add(self, loss: np.ndarray, x: np.ndarray) -> None:
        """Rows that were played: their losses and hyperparameters."""
        self.total += float(loss.sum(dtype=np.float64))
        begin = 0
        while begin < len(loss):
            size = min(len(loss) - begin, self.stride - self._pending)
            self._sum += float(loss[begin : begin + size].sum(dtype=np.float64))
            self._pending += size
            begin += size
            self.seen += size
            if self._pending == self.stride:
                self._push(np.asarray(x[begin - 1], np.float64))

    def widen(self, width: int, where: np.ndarray) -> None:
        """x has got more entries: the old ones now stand at `where`."""
        for i, old in enumerate(self.x):
            new = np.full(width, np.nan)
            new[where] = old
            self.x[i] = new
        self.width = width

    def arrays(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Row numbers, mean losses, x."""
        x = np.stack(self.x) if self.x else np.zeros((0, self.width))
        return np.array(self.rows, int), np.array(self.loss), x

    def _push(self, x: np.ndarray) -> None:
        self.rows.append(self.seen)
        self.loss.append(self._sum / self.stride)
        self.x.append(x)
        self._sum, self._pending = 0.0, 0
        if len(self.rows) == self.points:
            self.loss = [(a + b) / 2 for a, b in zip(self.loss[::2], self.loss[1::2], strict=True)]
            self.rows, self.x = self.rows[1::2], self.x[1::2]
            self.stride *= 2

    def to_json(self) -> dict[str, Any]:
        """The small things, for a checkpoint; `arrays` has the others."""
        return {
            "points": self.points,
            "stride": self.stride,
            "seen": self.seen,
            "total": self.total,
            "sum": self._sum,
            "pending": self._pending,
        }

    @classmethod
    def from_json(
        cls, small: dict[str, Any], rows: np.ndarray, loss: np.ndarray, x: np.ndarray
    ) -> "Record":
        """The record again."""
        record = cls(x.shape[1], small["points"])
        record.stride, record.seen, record.total = small["stride"], small["seen"], small["total"]
        record._sum, record._pending = small["sum"], small["pending"]
        record.rows, record.loss, record.x = rows.tolist(), loss.tolist(), list(x)
        return record
