"""Models that have not been needed for long, in a file: raw numbers, each with its checksum."""

import os
import tempfile
import weakref
import zlib
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ..._support import atomic


class Place(NamedTuple):
    """Where a model lies, and what it is."""

    offset: int
    numbers: int
    checksum: int
    features: int
    classes: int


class Cold:
    """A file of this process alone, gone with it: what is to last is in checkpoints, which hold
    every key. Room of a model that was brought back is used again."""

    def __init__(self, folder: str | Path | None):
        if folder is not None:
            Path(folder).mkdir(parents=True, exist_ok=True)
        # Without a buffer: on a full disk a model has to be known not to be there, at once.
        self._file = tempfile.TemporaryFile(prefix="obax-pool-", dir=folder, buffering=0)  # noqa: SIM115
        self._named = (
            f"{folder or tempfile.gettempdir()}, the file for models of a pool beyond max_keys"
        )
        self._end = 0
        self._free: dict[int, list[int]] = {}
        self._process = os.getpid()
        weakref.finalize(self, self._file.close)

    def put(self, state: np.ndarray, features: int, classes: int) -> Place:
        """Write a model down."""
        self._check_process()
        data, room = state.tobytes(), self._free.get(state.size)
        offset = room[-1] if room else self._end
        with atomic.naming(self._named):
            self._file.seek(offset)
            left = memoryview(data)
            while left:
                left = left[self._file.write(left) :]
        if room:
            room.pop()
        self._end = max(self._end, offset + len(data))
        return Place(offset, state.size, zlib.crc32(data), features, classes)

    def get(self, place: Place) -> np.ndarray:
        """Read a model, which stays where it is."""
        self._check_process()
        self._file.seek(place.offset)
        size, data = 8 * place.numbers, b""
        while len(data) < size and (more := self._file.read(size - len(data))):
            data += more
        if zlib.crc32(data) != place.checksum:
            raise OSError(
                "a model of the pool that lay on disk has come back changed: the file or the disk "
                "is damaged. Load the last checkpoint of the pool."
            )
        return np.frombuffer(data).copy()

    def free(self, place: Place) -> None:
        """Its room may be used again."""
        self._free.setdefault(place.numbers, []).append(place.offset)

    def _check_process(self) -> None:
        if os.getpid() != self._process:
            raise RuntimeError(
                "a pool with max_keys keeps models in a file of the process that made it, and this "
                "is a fork of that. Save the pool there and load it here."
            )
