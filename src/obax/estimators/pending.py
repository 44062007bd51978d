"""Rows whose labels come later: a bounded number of them, kept under their ids."""

from collections.abc import Hashable, Iterator
from typing import Any

from .inputs.table import Features, short
from .serialise import tagged, tagged_value, untagged, untagged_value


class Pending:
    """Rows that were predicted under an id and wait for their labels, oldest first.

    There are at most `most` of them: with one more, the oldest is dropped, and counted in
    `dropped`. As many ids of dropped rows are remembered, for the error that their labels get.

    >>> pending = Pending(2)
    >>> for id in "abc":
    ...     pending.keep(id, {"x": 1.0})
    >>> list(pending), pending.dropped, pending.take("c")
    (['b', 'c'], 1, {'x': 1.0})
    >>> pending
    Pending(1 waiting, 1 dropped)
    """

    def __init__(self, most: int):
        self.most = most
        self.dropped = 0
        self._rows: dict[Hashable, Features] = {}
        self._gone: dict[Hashable, None] = {}

    def keep(self, id: Hashable, row: Features) -> None:
        """Keep a row. The same row under the same id is kept once; another row is an error."""
        tagged(id, "id")
        if id in self._rows:
            if self._rows[id] != row:
                raise ValueError(
                    f"id {short(id)} belongs to another row, which still waits for its label; an "
                    f"id can be used again once its row was learned."
                )
            return
        self._rows[id] = dict(row)
        self._gone.pop(id, None)
        self.bound(self.most)

    def bound(self, most: int) -> None:
        """Keep at most `most` rows from now on."""
        self.most = most
        while len(self._rows) > most:
            oldest = next(iter(self._rows))
            del self._rows[oldest]
            self._gone[oldest] = None
            self.dropped += 1
        while len(self._gone) > most:
            del self._gone[next(iter(self._gone))]

    def take(self, id: Hashable) -> Features:
        """Remove the row of an id and return it."""
        tagged(id, "id")
        if id in self._rows:
            return self._rows.pop(id)
        if id in self._gone:
            raise KeyError(
                f"the row of id {short(id)} was dropped before its label came, being the oldest of "
                f"more than max_pending = {self.most}"
            )
        raise KeyError(
            f"no row waits under id {short(id)}: none was predicted with it lately, or it was "
            f"learned already"
        )

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[Hashable]:
        return iter(list(self._rows))

    def __contains__(self, id: object) -> bool:
        return id in self._rows

    def __repr__(self) -> str:
        return f"Pending({len(self)} waiting, {self.dropped} dropped)"

    def to_plain(self) -> dict[str, Any]:
        """Return it as JSON can hold it."""
        rows = [
            [tagged(id), [[tagged(name), tagged_value(value)] for name, value in row.items()]]
            for id, row in self._rows.items()
        ]
        return {"rows": rows, "gone": [tagged(id) for id in self._gone], "dropped": self.dropped}

    @classmethod
    def from_plain(cls, most: int, plain: dict[str, Any]) -> "Pending":
        """Return what `to_plain` was called on."""
        pending = cls(most)
        for id, row in plain["rows"]:
            values = {untagged(name): untagged_value(value) for name, value in row}
            pending._rows[untagged(id)] = values
        pending._gone = {untagged(id): None for id in plain["gone"]}
        pending.dropped = plain["dropped"]
        fits = len(pending._rows) == len(plain["rows"]) and len(pending._gone) == len(plain["gone"])
        count = type(pending.dropped) is int and pending.dropped >= 0
        if not fits or not count or max(len(pending._rows), len(pending._gone)) > most:
            raise ValueError(
                "pending rows of the checkpoint must have ids that differ, be no more than "
                "max_pending, and count those dropped; the file is damaged."
            )
        return pending
