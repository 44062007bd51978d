"""Lines of CSV or JSON from a file or a pipe, in batches of what is there."""

import csv
import dataclasses
import json
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..estimators import Table
from .columns import AS_THEY_LOOK, Identifiers, Kinds, ValueRejected, parse_number, parse_word
from .input_checks import BYTE_ORDER_MARK, ENDS_SIZE, Ends, check_first_bytes, check_header

MAX_BATCH = 512
MAX_LINE_BYTES = 1 << 20
TOO_LONG = f"a line longer than {MAX_LINE_BYTES:,} bytes"
CHUNK_BYTES = 1 << 16
Parsed = list[str] | dict[str, object]
"""A line that is a row: the fields of a CSV line, or an object of JSON."""
Row = dict[Any, object]


@dataclasses.dataclass(frozen=True)
class Input:
    """Where rows come from, and what their columns mean."""

    source: Path | int
    """A path, or a file descriptor such as 0."""
    target: str
    """The column to predict."""
    format: str = "csv"
    """`"csv"`, `"jsonl"`, or `"parquet"` for a file."""
    drop: tuple[str, ...] = ()
    """Columns to leave out."""
    id: str | None = None
    """The column that says which row a label on a later line belongs to, see `late_labels`."""
    continues: bool = False
    """Whether, after a resumption, a pipe goes on where it was. Otherwise it starts from its
    beginning again and the rows that were processed are skipped. Files are always resumed at the
    right byte."""
    allow_changed: bool = False
    """Whether to go on although the input is not the one of the checkpoint."""
    kinds: Kinds = AS_THEY_LOOK
    """Columns that are said to be numbers, dates or categories."""


@dataclasses.dataclass
class Position:
    """How far an input has been read: what a checkpoint keeps of it."""

    offset: int = 0
    """The number of bytes of the rows that were handed out."""
    header: list[str] | None = None
    """The first line of a CSV."""
    seen: Ends = dataclasses.field(default_factory=Ends)
    """The ends of what was handed out."""
    inside: bool = False
    """Whether it is within a line that was rejected for its length and has not ended yet."""
    rest: bytes = b""
    """What was read and not handed out yet."""

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for a checkpoint."""
        values = {"rest": self.rest.decode("latin-1"), "seen": self.seen.to_dict()}
        return dataclasses.asdict(self) | values

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "Position":
        """Return the position that `to_dict` was called on; other entries are ignored."""
        return cls(
            values["offset"],
            values["header"],
            Ends.from_dict(values["seen"]),
            values.get("inside", False),  # Checkpoints of version 0.2.0 lack it.
            values["rest"].encode("latin-1"),
        )


@dataclasses.dataclass(frozen=True)
class Batch:
    """Some lines as the estimators take them; those that cannot be read are rejected rows.

    A CSV is one table; objects of JSON may each have other names.
    """

    rows: Table | list[Row | Table]
    targets: Sequence[object]
    ids: Sequence[object]
    """The id of each line; `None` where it has none."""
    keys: Sequence[object]
    """The key of each line, which says whose model it belongs to."""

    def __len__(self) -> int:
        return len(self.targets)


class Source:
    """Rows of an input.

    **Arguments:**

    - `input`: the input. A path is opened here, and closed by `close`.
    - `position`: where to begin. The header of a CSV must have the columns that are named.
    - `key`: the column that says whose model a row belongs to.
    - `numeric`: whether the target is a number and not the name of a class.
    - `wait`: waits until there is something to read from a descriptor; returns `False` when the
      stream is asked to stop.
    """

    def __init__(
        self,
        input: Input,
        position: Position | None = None,
        *,
        key: str | None = None,
        numeric: bool = False,
        wait: Callable[[int], bool] = lambda descriptor: True,
    ):
        self.input, self.key, self.numeric, self.wait = input, key, numeric, wait
        self.position = position or Position()
        self._not_features = {*input.drop, input.target, input.id, key}
        self._ended = False
        self._identifiers = Identifiers()
        path = input.source
        self.descriptor = os.open(path, os.O_RDONLY) if isinstance(path, Path) else path
        try:
            self._start()
        except BaseException:
            self.close()
            raise

    def _start(self) -> None:
        """Go to the position."""
        if isinstance(self.input.source, Path):
            os.lseek(self.descriptor, self.position.offset, os.SEEK_SET)
            self.position.rest = b""
        self._format_checked = self.position.offset > 0 or bool(self.position.rest)

    def close(self) -> None:
        """Close what was opened here."""
        if isinstance(self.input.source, Path):
            os.close(self.descriptor)

    def seen(self) -> Ends:
        """Return the ends of what was handed out."""
        if isinstance(self.input.source, Path):
            return read_ends(self.descriptor, self.position.offset)
        return self.position.seen

    def take(self, limit: int) -> Batch:
        """Return up to `limit` rows that are there; wait for the first.

        The batch is empty at the end of the input, or when asked to stop.
        """
        while True:
            if not self._has_line() and not self._ended and not self.wait(self.descriptor):
                return self._batch([])
            lines = self._lines(min(limit, MAX_BATCH))
            if lines or self._ended:
                return self._batch(lines)

    def skip(self, count: int) -> int:
        """Skip rows; return how many there were."""
        skipped = 0
        while skipped < count and (batch := self.take(count - skipped)):
            skipped += len(batch)
        return skipped

    def _has_line(self) -> bool:
        return b"\n" in self.position.rest

    def _lines(self, limit: int) -> list[Parsed | str]:
        """Return the lines that are there, parsed; a string is what is wrong with a line."""
        if not self._has_line() and not self._ended:
            self._read()
        position = self.position
        if position.inside:
            end = position.rest.find(b"\n") + 1
            position.inside = not end
            self._hand_out(end or len(position.rest))
            return []
        if len(position.rest) > MAX_LINE_BYTES and not self._has_line():
            # No row is that long; without this a broken writer would fill the memory.
            position.inside = True
            self._hand_out(len(position.rest))
            return [TOO_LONG]
        lines: list[Parsed | str] = []
        begin = 0
        while len(lines) < limit:
            end = position.rest.find(b"\n", begin)
            if end < 0:
                if not (self._ended and begin < len(position.rest)):
                    break
                end = len(position.rest) - 1
            line = self._parse(position.rest[begin : end + 1])
            if line is not None:
                lines.append(line)
            begin = end + 1
        self._hand_out(begin)
        return lines

    def _read(self) -> None:
        chunk = os.read(self.descriptor, CHUNK_BYTES)
        self._ended = not chunk
        self.position.rest += chunk
        enough = self._has_line() or len(self.position.rest) > MAX_LINE_BYTES
        if not self._format_checked and (self._ended or enough):
            self._format_checked = True
            check_first_bytes(self.position.rest, self.input.format)

    def _hand_out(self, size: int) -> None:
        self.position.seen.add(self.position.rest[:size])
        self.position.offset += size
        self.position.rest = self.position.rest[size:]

    def _parse(self, line: bytes) -> Parsed | str | None:
        """Return a row, what is wrong with the line, or `None` for an empty line or a header."""
        if len(line) > MAX_LINE_BYTES:
            return TOO_LONG
        try:
            text = line.decode().lstrip(BYTE_ORDER_MARK).strip("\r\n")
        except UnicodeDecodeError:
            return "a line that is not UTF-8"
        if not text.strip():
            return None
        return _json_object(text) if self.input.format == "jsonl" else self._csv_fields(text)

    def _csv_fields(self, text: str) -> list[str] | str | None:
        # Of a field over several lines this rejects both the first line and the last.
        if text.count('"') % 2:
            return "a line that is not CSV: a quoted field must end on the line it begins on"
        try:
            fields = next(csv.reader([text], strict=True))
        except csv.Error as error:
            return f"a line that is not CSV ({error})"
        header = self.position.header
        if header is None:
            self.position.header = [name.strip() for name in fields]
            self._check_header(self.position.header)
            return None
        if len(fields) != len(header):
            return f"{len(fields)} fields where the header has {len(header)}"
        return fields

    def _batch(self, lines: list[Parsed | str]) -> Batch:
        return (self._json_batch if self.input.format == "jsonl" else self._csv_batch)(lines)

    def _json_batch(self, lines: list[Parsed | str]) -> Batch:
        rows = [self._json_row(line) for line in lines]
        for name in {name for row in rows if isinstance(row, dict) for name in row}:
            values = (row.get(name) for row in rows if isinstance(row, dict))
            self._identifiers.look(name, values)
        objects = [line if isinstance(line, dict) else {} for line in lines]
        targets, ids, keys = (
            [None if name is None else one.get(name) for one in objects]
            for name in (self.input.target, self.input.id, self.key)
        )
        if self.numeric:
            targets = [parse_number(y) if isinstance(y, str) else y for y in targets]
        return Batch(rows, targets, ids, keys)

    def _json_row(self, line: Parsed | str) -> Row | Table:
        if not isinstance(line, dict):
            return Table.unreadable(str(line))
        convert, names = self.input.kinds.convert, line.keys() - self._not_features
        try:
            return {name: convert(name, line[name]) for name in line if name in names}
        except ValueRejected as error:
            return Table.unreadable(str(error))

    def _csv_batch(self, lines: list[Parsed | str]) -> Batch:
        # Before there is a header all lines are rejected.
        header = self.position.header or []
        missing = ["nan"] * len(header)
        fields = [line if isinstance(line, list) else missing for line in lines]
        rejected = {i: line for i, line in enumerate(lines) if isinstance(line, str)}
        texts = {name: [line[j] for line in fields] for j, name in enumerate(header)}
        batch = self._columns_batch(texts, len(lines), rejected)
        parse = parse_number if self.numeric else parse_word
        targets = [None if y is None else parse(y) for y in batch.targets]  # type: ignore[arg-type]
        ids, keys = (
            [None if one is None else parse_word(one) for one in column]  # type: ignore[arg-type]
            for column in (batch.ids, batch.keys)
        )
        return Batch(batch.rows, targets, ids, keys)

    def _check_header(self, header: list[str]) -> None:
        ids, keys = ([name] if name else [] for name in (self.input.id, self.key))
        options = {"--target": [self.input.target], "--drop": self.input.drop}
        check_header(header, options | {"--id": ids, "--key": keys})

    def _columns_batch(
        self, columns: Mapping[str, Sequence[Any]], size: int, rejected: dict[int, str]
    ) -> Batch:
        """Return rows that come in columns, some of them rejected already."""
        names = sorted(columns.keys() - self._not_features)
        parts = [self._column(name, columns[name], rejected) for name in names]
        numbers = all(part.dtype.kind == "f" for part in parts)
        values = np.empty((size, len(names)), np.float64 if numbers else object)
        for j, part in enumerate(parts):
            values[:, j] = part
        table = Table(names, values)
        table.rejected.update(rejected)
        missing = [None] * size
        others = (self.input.target, self.input.id, self.key)
        return Batch(table, *(columns.get(name or "", missing) for name in others))

    def _column(self, name: str, given: Sequence[Any], rejected: dict[int, str]) -> np.ndarray:
        """Return a column as floats, or as objects if there are words or dates in it."""
        kinds = self.input.kinds
        if not kinds.of(name):
            try:
                return np.array([float(value) for value in given])
            except (TypeError, ValueError, OverflowError):
                pass
        values = np.full(len(given), None, object)
        for i, value in enumerate(given):
            try:
                values[i] = kinds.convert(name, value)
            except ValueRejected as error:
                rejected.setdefault(i, str(error))
        if {float, type(None)}.issuperset(map(type, values)):
            return values.astype(np.float64)
        if not kinds.of(name):
            self._identifiers.look(name, values)
        return values


def read_ends(descriptor: int, size: int) -> Ends:
    """Return the ends of the first `size` bytes of a file."""
    tail = max(0, size - ENDS_SIZE)
    return Ends(
        os.pread(descriptor, min(size, ENDS_SIZE), 0), os.pread(descriptor, size - tail, tail)
    )


def _json_object(text: str) -> dict[str, object] | str:
    try:
        row = json.loads(text)
    except (ValueError, RecursionError):
        return "a line that is not JSON"
    if not isinstance(row, dict):
        return f"a line that is a {type(row).__name__}, not an object"
    return row
