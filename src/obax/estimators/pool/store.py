"""Models that have not been needed for long, in a file: raw numbers, each with its checksum."""

import os
import tempfile
import weakref
import zlib
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..._support import files


class Place(NamedTuple):
    """Where a model lies in the file, and the shapes of its arrays by name."""

    offset: int
    size: int
    checksum: int
    shapes: dict[str, tuple[int, ...]]
    info: dict[str, Any]
    """What is known of the model while it lies there."""


class Store:
    """A file of this process alone, gone with it: checkpoints hold every key. The room of a model
    that was brought back is used again."""

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

    def put(self, state: dict[str, np.ndarray], info: dict[str, Any]) -> Place:
        """Write a model down."""
        self._check_process()
        data = b"".join(array.tobytes() for array in state.values())
        room = self._free.get(len(data))
        offset = room[-1] if room else self._end
        with files.named_errors(self._named):
            self._file.seek(offset)
            left = memoryview(data)
            while left:
                left = left[self._file.write(left) :]
        if room:
            room.pop()
        self._end = max(self._end, offset + len(data))
        shapes = {name: array.shape for name, array in state.items()}
        return Place(offset, len(data), zlib.crc32(data), shapes, info)

    def get(self, place: Place) -> dict[str, np.ndarray]:
        """Read a model, which stays where it is."""
        self._check_process()
        self._file.seek(place.offset)
        data = b""
        while len(data) < place.size and (more := self._file.read(place.size - len(data))):
            data += more
        if zlib.crc32(data) != place.checksum:
            raise OSError(
                "a model of the pool that lay on disk has come back changed: the file or the disk "
                "is damaged. Load the last checkpoint of the pool."
            )
        numbers, begin, state = np.frombuffer(data), 0, {}
        for name, shape in place.shapes.items():
            end = begin + int(np.prod(shape))
            state[name] = numbers[begin:end].reshape(shape).copy()
            begin = end
        return state

    def free(self, place: Place) -> None:
        """Let the room of a model be used again."""
        self._free.setdefault(place.size, []).append(place.offset)

    def _check_process(self) -> None:
        if os.getpid() != self._process:
            raise RuntimeError(
                "a pool with max_keys keeps models in a file of the process that made it, and this "
                "is a fork of that. Save the pool there and load it here."
            )
