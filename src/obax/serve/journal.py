"""An append-only file of the requests that changed a model since its checkpoint.

A line is the CRC-32 of the rest, an operation and its JSON. It reaches the system before the model
learns, and the disk before the client has its answer: a killed process loses no request that was
answered, and neither does a machine without power. Requests that wait share one flush to the disk.
"""

import asyncio
import os
import zlib
from collections.abc import Iterator
from pathlib import Path

from .._support import files
from .._support.messages import UserError
from .protocol import RequestError

Entry = tuple[str, bytes]
"""An operation, and the JSON of its request."""
Position = tuple[int, int]
"""The number of a segment, and its size up to the end of an entry."""


class Journal:
    """The segments of a journal beside a checkpoint, `FILE.journal-1` and so on.

    A checkpoint notes the number of the segment that begins with it; `replay` yields what the
    segments from there on hold, and `rotate` begins the next one. One that is not `written` only
    reads what an earlier server has left.
    """

    def __init__(self, checkpoint: Path, written: bool):
        self._checkpoint, self.written = checkpoint, written
        self._descriptor = -1
        self._size = self._synced = 0
        self._flush = asyncio.Lock()
        self.segment = 0

    @property
    def name(self) -> str:
        """The name of the segments, for messages."""
        return f"{self._checkpoint.name}.journal"

    def replay(self, first: int) -> Iterator[Entry]:
        """Yield the entries of all segments from `first` on, then open the last one to go on.

        What was cut off at the end, in the middle of a line, was never answered and is removed.
        """
        numbers = [number for number in self._numbers() if number >= first]
        for number in numbers:
            path, good = self._path(number), 0
            data = path.read_bytes()
            for line in data.splitlines(keepends=True):
                entry = _parsed(line)
                if entry is None:
                    break
                yield entry
                good += len(line)
            if data[good:].count(b"\n") > 1:
                raise UserError(
                    f"{path} is damaged at byte {good:,}, with whole lines after it. Move it away "
                    f"to go on without the rest."
                )
            if good < len(data):
                os.truncate(path, good)
        self._open(numbers[-1] if numbers else max(first, 1))

    def append(self, operation: str, body: bytes) -> Position:
        """Hand an entry to the system, if it is `written`; return what `synced` waits for."""
        if not self.written:
            return self.segment, 0
        text = operation.encode() + b" " + body.replace(b"\n", b" ").replace(b"\r", b" ")
        line = b"%08x " % zlib.crc32(text) + text + b"\n"
        try:
            if os.write(self._descriptor, line) < len(line):
                raise OSError("the disk is full")
        except OSError as error:
            os.truncate(self._path(self.segment), self._size)
            raise RequestError(f"the journal cannot be written: {error}", 503) from error
        self._size += len(line)
        return self.segment, self._size

    async def synced(self, position: Position) -> None:
        """Wait until the entries up to a position are on the disk."""
        async with self._flush:
            # A segment reaches the disk before the next one begins.
            if position[0] == self.segment and self._synced < position[1]:
                end = self._size
                await asyncio.to_thread(os.fsync, self._descriptor)
                self._synced = end

    async def rotate(self) -> int:
        """Begin the next segment; return its number, for the checkpoint that comes with it."""
        # Those who wait for this segment have their answer before the checkpoint is written.
        await self.synced((self.segment, self._size))
        async with self._flush:
            self._open(self.segment + 1)
        return self.segment

    def remove_before(self, segment: int) -> None:
        """Remove the segments that a checkpoint contains."""
        for number in self._numbers():
            if number < segment:
                self._path(number).unlink(missing_ok=True)

    def close(self) -> None:
        """Close the file."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _open(self, segment: int) -> None:
        self.close()
        self.segment, self._size, self._synced = segment, 0, 0
        if not self.written:
            return
        path, flags = self._path(segment), os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        self._descriptor = os.open(path, flags, 0o644)
        # The name of the file must reach the disk too.
        files.sync_folder(path.parent)
        self._size = os.fstat(self._descriptor).st_size

    def _path(self, segment: int) -> Path:
        return self._checkpoint.with_name(f"{self._checkpoint.name}.journal-{segment}")

    def _numbers(self) -> list[int]:
        beginning = f"{self._checkpoint.name}.journal-"
        names = (path.name for path in self._checkpoint.parent.iterdir())
        ends = (name.removeprefix(beginning) for name in names if name.startswith(beginning))
        return sorted(int(end) for end in ends if end.isdigit())


def _parsed(line: bytes) -> Entry | None:
    checksum, _, text = line.removesuffix(b"\n").partition(b" ")
    if not line.endswith(b"\n") or checksum != b"%08x" % zlib.crc32(text):
        return None
    operation, _, body = text.partition(b" ")
    return operation.decode(), body
