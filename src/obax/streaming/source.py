"""Lines of CSV or JSON from a file or a pipe, in batches of what is there."""

import csv
import json
import os
from typing import Any, NamedTuple

LARGEST_BATCH = 512
LONGEST_LINE = 1 << 20
CHUNK = 1 << 16
MISSING = {"", "na", "nan", "null", "none", "?"}


class Line(NamedTuple):
    """One row as it came, or why it cannot be one."""

    features: dict[str, Any]
    target: Any
    fault: str | None


class Source:
    """Rows from a file descriptor.

    `offset` is the number of bytes of the rows handed out so far: where a file is to be taken up
    again. `header` is the first line of a CSV. With `numeric`, the target is a number and not the
    name of a class.
    """

    def __init__(
        self,
        descriptor: int,
        kind: str,
        target: str,
        drop: tuple[str, ...] = (),
        *,
        offset: int = 0,
        header: list[str] | None = None,
        numeric: bool = False,
    ):
        self.kind = kind
        self.target = target
        self.drop = {*drop, target}
        self.offset = offset
        self.header = header
        self.numeric = numeric
        self._descriptor = descriptor
        self._rest = b""
        self._ended = False

    def take(self, limit: int) -> list[Line]:
        """Up to `limit` rows that are there; waits for the first. Empty at the end."""
        while True:
            lines = self._lines(min(limit, LARGEST_BATCH))
            if lines or self._ended:
                return lines

    def skip(self, count: int) -> int:
        """Pass over rows; how many there were."""
        done = 0
        while done < count and (lines := self.take(count - done)):
            done += len(lines)
        return done

    def _lines(self, limit: int) -> list[Line]:
        if b"\n" not in self._rest and not self._ended:
            chunk = os.read(self._descriptor, CHUNK)
            self._ended = not chunk
            self._rest += chunk
            if len(self._rest) > LONGEST_LINE and b"\n" not in self._rest:
                # Nothing that long is a row; without this a broken writer would fill the memory.
                self.offset += len(self._rest)
                self._rest = b""
                return [Line({}, None, f"a line longer than {LONGEST_LINE:,} bytes")]
        found: list[Line] = []
        begin = 0
        while len(found) < limit:
            end = self._rest.find(b"\n", begin)
            if end < 0:
                if not (self._ended and begin < len(self._rest)):
                    break
                end = len(self._rest) - 1
            raw = self._rest[begin : end + 1]
            begin = end + 1
            self.offset += len(raw)
            line = self._parse(raw)
            if line is not None:
                found.append(line)
        self._rest = self._rest[begin:]
        return found

    def _parse(self, raw: bytes) -> Line | None:
        try:
            text = raw.decode().strip("\r\n")
        except UnicodeDecodeError:
            return Line({}, None, "a line that is not UTF-8")
        if not text.strip():
            return None
        return self._parse_json(text) if self.kind == "jsonl" else self._parse_csv(text)

    def _parse_json(self, text: str) -> Line:
        try:
            row = json.loads(text)
        except (ValueError, RecursionError):
            return Line({}, None, "a line that is not JSON")
        if not isinstance(row, dict):
            return Line({}, None, f"a line that is a {type(row).__name__}, not an object")
        target = row.get(self.target)
        features = {name: value for name, value in row.items() if name not in self.drop}
        return Line(features, target, None)

    def _parse_csv(self, text: str) -> Line | None:
        try:
            fields = next(csv.reader([text], strict=True))
        except csv.Error as error:
            return Line({}, None, f"a line that is not CSV ({error})")
        if self.header is None:
            self.header = [name.strip() for name in fields]
            return None
        if len(fields) != len(self.header):
            return Line({}, None, f"{len(fields)} fields where the header has {len(self.header)}")
        row = dict(zip(self.header, fields, strict=True))
        target: Any = row.get(self.target, "").strip()
        if self.numeric:
            target = _number(target)
        elif target.lower() in MISSING:
            target = None
        features = {n: _number(value) for n, value in row.items() if n not in self.drop}
        return Line(features, target, None)


def _number(text: str) -> Any:
    text = text.strip()
    if text.lower() in MISSING:
        return None
    try:
        return float(text)
    except ValueError:
        return text
