"""An append-only file of the requests that changed a model since its checkpoint.

A line is the CRC-32 of the rest, a number, an operation and its JSON. It reaches the system before
the model learns, and the disk before the client has its answer: a killed process loses no request
that was answered, and neither does a machine without power. Requests that wait share one flush to
the disk.
"""

import asyncio
import os
import zlib
from collections.abc import Iterator
from pathlib import Path

from .._support import files
from .._support.messages import UserError
from .protocol import RequestError


class Journal:
    """The file `MODEL.obax.journal` beside a checkpoint.

    Entries are numbered. A checkpoint notes the `number` of the last entry that it contains;
    `replay` yields those after it, and `clear` removes them all once a checkpoint contains them. A
    journal that is not `written` only reads what an earlier server has left.
    """

    def __init__(self, checkpoint: Path, written: bool):
        self.path, self.written = checkpoint.with_name(f"{checkpoint.name}.journal"), written
        self.number = 0
        """The number of the last entry."""
        self._descriptor = -1
        self._size = self._synced = 0
        self._flush = asyncio.Lock()

    def replay(self, contained: int) -> Iterator[tuple[str, bytes]]:
        """Yield operation and JSON of the entries after number `contained`, then open the file.

        What was cut off at the end, in the middle of a line, was never answered and is removed.
        """
        self.number = contained
        data = self.path.read_bytes() if self.path.exists() else b""
        for line in data.splitlines(keepends=True):
            checksum, _, text = line.removesuffix(b"\n").partition(b" ")
            if not line.endswith(b"\n") or checksum != b"%08x" % zlib.crc32(text):
                break
            number, operation, body = text.split(b" ", 2)
            if int(number) > self.number + 1:
                raise UserError(
                    f"{self.path} goes on with entry {int(number):,}, but its checkpoint ends with "
                    f"{self.number:,}: it belongs to another checkpoint. Move one of them away."
                )
            if int(number) > self.number:
                yield operation.decode(), body
                self.number += 1
            self._size += len(line)
        if data.count(b"\n", self._size) > 1:
            raise UserError(
                f"{self.path} is damaged at byte {self._size:,}, with whole lines after it. Move "
                f"it away to go on without the rest."
            )
        if self.written:
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
            self._descriptor = os.open(self.path, flags, 0o644)
            os.ftruncate(self._descriptor, self._size)
            # The name of the file must reach the disk too.
            files.sync_folder(self.path.parent)

    def append(self, operation: str, body: bytes) -> int:
        """Hand an entry to the system, if it is `written`; return its number, for `synced`."""
        if not self.written:
            return 0
        text = b"%d %s %s" % (self.number + 1, operation.encode(), b" ".join(body.splitlines()))
        line = b"%08x %s\n" % (zlib.crc32(text), text)
        try:
            if os.write(self._descriptor, line) < len(line):
                raise OSError("the disk is full")
        except OSError as error:
            os.ftruncate(self._descriptor, self._size)
            raise RequestError(f"the journal cannot be written: {error}", 503) from error
        self._size += len(line)
        self.number += 1
        return self.number

    async def synced(self, number: int) -> None:
        """Wait until the entries up to a number are on the disk."""
        async with self._flush:
            if self._synced < number:
                last = self.number
                await asyncio.to_thread(os.fsync, self._descriptor)
                self._synced = last

    async def clear(self) -> None:
        """Remove all entries: a checkpoint that is on the disk contains them."""
        async with self._flush:
            if self.written:
                os.ftruncate(self._descriptor, 0)
            else:
                self.path.unlink(missing_ok=True)
            self._size, self._synced = 0, self.number
