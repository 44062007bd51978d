"""Rejected rows with their reasons, in bounded memory."""

import collections
import re
import sys
import warnings
from collections.abc import Hashable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypedDict

from .serialise import tagged, untagged

KEPT = 100
HERE = str(Path(__file__).parent)
_VALUE = re.compile(r" is .*?, ")
"""Matches the value of a feature in a reason."""


class RejectedRow(TypedDict):
    """A row that was not learned; `row` counts the rows given to the model from 1."""

    row: int
    reason: str
    values: Mapping[Hashable, object]


class Rejected:
    """The last rejected rows with their reasons, oldest first; `count` counts all of them."""

    def __init__(self) -> None:
        self.count = 0
        self._kept: collections.deque[RejectedRow] = collections.deque(maxlen=KEPT)

    def add(self, row: int, reason: str, values: Mapping[Hashable, object]) -> None:
        """Keep a row; `row` counts the rows given to the model from 1."""
        self.count += 1
        self._kept.append({"row": row, "reason": reason, "values": values})

    def alarm(self, learned: bool) -> str | None:
        """Return a warning if no row was learned so far, or none of the last `KEPT`. (A bad row at
        the beginning may decide the kinds of features so that all later rows are rejected.)"""
        if len(self._kept) < KEPT:
            return None
        if not learned:
            return f"{KEPT} rows were rejected and none was learned, {self.most_often()}."
        if self._kept[-1]["row"] - self._kept[0]["row"] == KEPT - 1:
            return f"the last {KEPT} rows were all rejected, {self.most_often()}."
        return None

    def most_often(self) -> str:
        """Return the most frequent reason, as the end of a sentence. Reasons that differ in the
        value alone count as the same."""
        kinds = collections.Counter(_VALUE.sub(" ", one["reason"]) for one in self._kept)
        kind, times = kinds.most_common(1)[0]
        reason = next(
            one["reason"] for one in reversed(self._kept) if _VALUE.sub(" ", one["reason"]) == kind
        )
        return f"most often ({times} of the last {len(self._kept)}) because {reason}"

    def __len__(self) -> int:
        return len(self._kept)

    def __getitem__(self, index: Any) -> Any:
        return list(self._kept)[index]

    def __iter__(self) -> Iterator[RejectedRow]:
        return iter(list(self._kept))

    def __repr__(self) -> str:
        return f"Rejected(count={self.count}, last={list(self._kept)[-1:]})"

    def to_plain(self) -> dict[str, Any]:
        """Return them as JSON can hold them."""
        kept = [
            {
                "row": one["row"],
                "reason": one["reason"],
                "names": [_tagged_name(name) for name in one["values"]],
                "values": [_shown(value) for value in one["values"].values()],
            }
            for one in self
        ]
        return {"count": self.count, "kept": kept}

    @classmethod
    def from_plain(cls, plain: dict[str, Any]) -> "Rejected":
        """Return what `to_plain` was called on."""
        rejected = cls()
        for one in plain["kept"]:
            names = [untagged(name) for name in one["names"]]
            values = dict(zip(names, one["values"], strict=True))
            rejected.add(int(one["row"]), str(one["reason"]), values)
        if type(plain["count"]) is not int or plain["count"] < rejected.count:
            raise ValueError(
                "the number of rejected rows of the checkpoint must be a whole number and no less "
                "than the rows that are kept; the file is damaged."
            )
        rejected.count = plain["count"]
        return rejected


def _tagged_name(name: Hashable) -> list[Any]:
    try:
        return tagged(name)
    except ValueError:
        return tagged(str(name))


def _shown(value: object) -> object:
    return value if isinstance(value, float | int | str | type(None)) else repr(value)


def warn_caller(words: str) -> None:
    """Warn, with the line outside of this package that the call came from."""
    level, frame = 2, sys._getframe(1)
    while frame.f_back and frame.f_code.co_filename.startswith(HERE):
        level, frame = level + 1, frame.f_back
    warnings.warn(words, stacklevel=level)
