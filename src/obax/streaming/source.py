"""Lines of CSV or JSON from a file or a pipe, in batches of what is there."""

import csv
import dataclasses
import json
import os
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..estimators import Table
from .beginning import MARK, Seen, check_beginning, check_header

LARGEST_BATCH = 512
LONGEST_LINE = 1 << 20
TOO_LONG = f"a line longer than {LONGEST_LINE:,} bytes"
CHUNK = 1 << 16
MISSING = {"", "na", "nan", "null", "none", "?"}
Parsed = list[str] | dict[str, object]
"""A line that is a row: the fields of a CSV, or an object of JSON."""
Row = dict[Any, object]


@dataclasses.dataclass(frozen=True)
class Batch:
    """Some lines, each a row: as the estimators take them, those that cannot be read as rejected.

    A CSV is one table; objects of JSON may each have other names.
    """

    rows: Table | list[Row | Table]
    targets: list[object]
    ids: list[object]
    """Of each line; `None` where it has none."""
    keys: list[object]
    """The same, of models."""

    def __len__(self) -> int:
        return len(self.targets)


@dataclasses.dataclass(eq=False)
class Source:
    """Rows from a file descriptor.

    `offset` is the number of bytes of the rows handed out so far: where a file is to be taken up
    again. `header` is the first line of a CSV; it must have the columns that are named here. With
    `numeric`, the target is a number and not the name of a class.
    """

    descriptor: int
    kind: str
    target: str
    drop: tuple[str, ...] = ()
    offset: int = 0
    header: list[str] | None = None
    numeric: bool = False
    id: str | None = None
    """The column that tells which row a label belongs to, see `late`."""
    key: str | None = None
    """The column that tells whose model a row belongs to."""

    rest: bytes = b""
    """What has been read and not yet handed out."""
    inside: bool = False
    """Within a line that was refused because it does not end."""
    seen: Seen = dataclasses.field(default_factory=Seen)
    """The ends of what has been handed out."""
    wait: Callable[[int], bool] = lambda descriptor: True
    """Waits until there is something to read; whether there is, and not a call to stop."""

    def __post_init__(self) -> None:
        self._left_out = {*self.drop, self.target, self.id, self.key}
        self._ended = False
        self._begun = self.offset > 0 or bool(self.rest)

    def take(self, limit: int) -> Batch:
        """Up to `limit` rows that are there; waits for the first. Empty at the end, or when asked
        to stop."""
        while True:
            if b"\n" not in self.rest and not self._ended and not self.wait(self.descriptor):
                return self._batch([])
            lines = self._lines(min(limit, LARGEST_BATCH))
            if lines or self._ended:
                return self._batch(lines)

    def skip(self, count: int) -> int:
        """Pass over rows; how many there were."""
        done = 0
        while done < count and (batch := self.take(count - done)):
            done += len(batch)
        return done

    def _lines(self, limit: int) -> list[Parsed | str]:
        """What is there, parsed; a string is the fault of a line that cannot be."""
        if b"\n" not in self.rest and not self._ended:
            chunk = os.read(self.descriptor, CHUNK)
            self._ended = not chunk
            self.rest += chunk
            enough = b"\n" in self.rest or len(self.rest) > LONGEST_LINE
            if not self._begun and (self._ended or enough):
                self._begun = True
                check_beginning(self.rest, self.kind)
        if self.inside:
            end = self.rest.find(b"\n") + 1
            self.inside = not end
            self._hand_out(end or len(self.rest))
            return []
        if len(self.rest) > LONGEST_LINE and b"\n" not in self.rest:
            # Nothing that long is a row; without this a broken writer would fill the memory.
            self.inside = True
            self._hand_out(len(self.rest))
            return [TOO_LONG]
        found: list[Parsed | str] = []
        begin = 0
        while len(found) < limit:
            end = self.rest.find(b"\n", begin)
            if end < 0:
                if not (self._ended and begin < len(self.rest)):
                    break
                end = len(self.rest) - 1
            line = self._parse(self.rest[begin : end + 1])
            if line is not None:
                found.append(line)
            begin = end + 1
        self._hand_out(begin)
        return found

    def _hand_out(self, size: int) -> None:
        self.seen.add(self.rest[:size])
        self.offset += size
        self.rest = self.rest[size:]

    def _parse(self, raw: bytes) -> Parsed | str | None:
        if len(raw) > LONGEST_LINE:
            return TOO_LONG
        try:
            text = raw.decode().lstrip(MARK).strip("\r\n")
        except UnicodeDecodeError:
            return "a line that is not UTF-8"
        if not text.strip():
            return None
        return _json_object(text) if self.kind == "jsonl" else self._csv_fields(text)

    def _csv_fields(self, text: str) -> list[str] | str | None:
        # Of a field over several lines, both the first and the last: neither is a row.
        if text.count('"') % 2:
            return "a line that is not CSV: a quoted field must end on the line it begins on"
        try:
            fields = next(csv.reader([text], strict=True))
        except csv.Error as error:
            return f"a line that is not CSV ({error})"
        if self.header is None:
            self.header = [name.strip() for name in fields]
            self._check_header(self.header)
            return None
        if len(fields) != len(self.header):
            return f"{len(fields)} fields where the header has {len(self.header)}"
        return fields

    def _check_header(self, header: list[str]) -> None:
        ids, keys = (() if name is None else (name,) for name in (self.id, self.key))
        named = {"--target": (self.target,), "--drop": self.drop, "--id": ids, "--key": keys}
        check_header(header, named)

    def _batch(self, lines: list[Parsed | str]) -> Batch:
        if self.kind == "jsonl":
            rows = [self._json_row(line) for line in lines]
            objects = [line if isinstance(line, dict) else {} for line in lines]
            targets = [one.get(self.target) for one in objects]
            ids, keys = (
                [None if name is None else one.get(name) for one in objects]
                for name in (self.id, self.key)
            )
            return Batch(rows, targets, ids, keys)
        header = self.header or []
        faults = {i: line for i, line in enumerate(lines) if isinstance(line, str)}
        missing = ["nan"] * len(header)
        fields = [line if isinstance(line, list) else missing for line in lines]
        places = {name: j for j, name in enumerate(header)}
        names = sorted(places.keys() - self._left_out)
        columns = [_numbers([line[places[name]] for line in fields]) for name in names]
        words = any(column.dtype.kind == "O" for column in columns)
        values = np.empty((len(fields), len(names)), object if words else np.float64)
        for j, column in enumerate(columns):
            values[:, j] = column
        table = Table(names, values)
        table.rejected.update(faults)
        # Before there is a header, there are faults at most.
        given = [line[places[self.target]] if header else "" for line in fields]
        targets = [self._csv_target(text) for text in given]
        ids, keys = (_words(fields, places.get(name or "")) for name in (self.id, self.key))
        return Batch(table, targets, ids, keys)

    def _json_row(self, line: Parsed | str) -> Row | Table:
        if not isinstance(line, dict):
            return Table.unreadable(str(line))
        return {name: value for name, value in line.items() if name not in self._left_out}

    def _csv_target(self, text: str) -> object:
        return _number(text) if self.numeric else _word(text)


def _json_object(text: str) -> dict[str, object] | str:
    try:
        row = json.loads(text)
    except (ValueError, RecursionError):
        return "a line that is not JSON"
    if not isinstance(row, dict):
        return f"a line that is a {type(row).__name__}, not an object"
    return row


def _numbers(column: Sequence[str]) -> np.ndarray:
    """A column as floats; as objects if there are words in it."""
    try:
        return np.array([float(text) for text in column])
    except ValueError:
        found = np.array([_number(text) for text in column], object)
    words = any(isinstance(value, str) for value in found)
    return found if words else found.astype(np.float64)


def _words(fields: list[list[str]], place: int | None) -> list[object]:
    return [None if place is None else _word(line[place]) for line in fields]


def _word(text: str) -> str | None:
    return None if (text := text.strip()).lower() in MISSING else text


def _number(text: str) -> float | str | None:
    text = text.strip()
    if text.lower() in MISSING:
        return None
    try:
        return float(text)
    except ValueError:
        return text
