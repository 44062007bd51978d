"""The models of a pool: in the engine, and beyond `max_keys` in a file, each with its checksum."""

import os
import tempfile
import weakref
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..._support import files, native
from ..serialise import Arrays

KEPT = ("learned", "total_loss", "x")
"""What is known of a model while it lies on disk."""
TUNED = ("penalty", "inertia", "memory")


class Place(NamedTuple):
    """Where a model lies in the file, and the shapes of its arrays by name."""

    offset: int
    size: int
    checksum: int
    shapes: dict[str, tuple[int, ...]]
    info: dict[str, Any]


class Models:
    """The models by the numbers of their keys, at most `most` of them in memory.

    The file is of this process alone and gone with it: checkpoints hold every key. The room of a
    model that was brought back is used again.
    """

    def __init__(self, spec: Any, most: int | None, folder: Path | None):
        self.engine, self.most = native.loaded().Pool(spec), most
        self.places: dict[int, Place] = {}
        self.size = 0
        """Bytes of the file."""
        if most is None:
            return
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
        # Without a buffer: on a full disk a model has to be known not to be there, at once.
        self.file = tempfile.TemporaryFile(prefix="obax-pool-", dir=folder, buffering=0)  # noqa: SIM115
        self._name = (
            f"{folder or tempfile.gettempdir()}, the file for models of a pool beyond max_keys"
        )
        self._free: dict[int, list[int]] = {}
        self._process = os.getpid()
        weakref.finalize(self, self.file.close)

    def in_memory(self, numbers: np.ndarray, begin: int, end: int) -> Iterator[np.ndarray]:
        """Yield the positions of rows with a key, as many at a time as there may be models in
        memory, once the models of their keys are there."""
        rows = begin + np.flatnonzero(numbers[begin:end] >= 0)
        step = max(1, len(rows) if self.most is None else min(self.most, len(rows)))
        for i in range(0, len(rows), step):
            some = rows[i : i + step]
            if self.most is not None:
                self._bring(np.unique(numbers[some]), self.most)
            yield some

    def _bring(self, numbers: np.ndarray, most: int) -> None:
        """Have these models in memory, and others on disk where they are too many."""
        table = self.engine.summary()
        there = table[:, 5] > 0
        absent = numbers[~there[numbers]]
        there[numbers] = False
        others = np.flatnonzero(there)
        surplus = max(0, len(others) + len(numbers) - most)
        for number in others[np.argsort(table[others, 2], kind="stable")[:surplus]].tolist():
            self.put_away(number)
        for number in absent.tolist():
            if number in self.places:
                self._take_back(number)

    def put_away(self, number: int) -> None:
        """Move a model to the file."""
        self._check_process()
        info, state = self.engine.info(number), self.engine.state(number)
        data = b"".join(array.tobytes() for array in state.values())
        room = self._free.get(len(data))
        offset = room[-1] if room else self.size
        with files.named_errors(self._name):
            self.file.seek(offset)
            rest = memoryview(data)
            while rest:
                rest = rest[self.file.write(rest) :]
        if room:
            room.pop()
        self.size = max(self.size, offset + len(data))
        shapes = {name: array.shape for name, array in state.items()}
        kept = {name: info[name] for name in KEPT}
        self.places[number] = Place(offset, len(data), zlib.crc32(data), shapes, kept)
        self.engine.release(number)

    def _take_back(self, number: int) -> None:
        info, state = self.engine.info(number), self.state(number)
        counts = (info["given"], info["rejected"], info["used"])
        self.engine.restore(number, info["features"], info["labels"], *counts, state)
        place = self.places.pop(number)
        self._free.setdefault(place.size, []).append(place.offset)

    def info(self, number: int) -> dict[str, Any]:
        """Return what is known of a key, wherever its model is."""
        info: dict[str, Any] = self.engine.info(number)
        return info | (self.places[number].info if number in self.places else {})

    def state(self, number: int) -> Arrays | None:
        """Return the numbers of a model, wherever it is; `None` before its first row."""
        if number not in self.places:
            return self.engine.state(number) if self.engine.info(number)["in_memory"] else None
        self._check_process()
        place = self.places[number]
        self.file.seek(place.offset)
        data = b""
        while len(data) < place.size and (more := self.file.read(place.size - len(data))):
            data += more
        if zlib.crc32(data) != place.checksum:
            raise OSError(
                "a model of the pool that lay on disk has come back changed: the file or the disk "
                "is damaged. Load the last checkpoint of the pool."
            )
        ends = np.cumsum([int(np.prod(shape)) for shape in place.shapes.values()])
        parts = np.split(np.frombuffer(data).copy(), ends[:-1])
        named = zip(place.shapes.items(), parts, strict=True)
        return {name: part.reshape(shape) for (name, shape), part in named}

    def summary(self) -> np.ndarray:
        """Return a line for each key: rows given, rejected, learned, their total loss, and the
        logarithms of penalty, inertia and memory."""
        table = np.zeros((len(self.engine), 7))
        table[:, :4] = self.engine.summary()[:, [0, 1, 3, 4]]
        spec, spans = self.engine.spec, {}
        for number in range(len(table)):
            info = self.info(number)
            if "x" not in info:
                continue
            size = len(info["features"])
            if size not in spans:
                layout = spec.replace(features=size, classes=len(info["labels"])).spans
                spans[size] = [slice(*layout[name]) for name in TUNED]
            table[number, 2:4] = info["learned"], info["total_loss"]
            table[number, 4:] = [info["x"][span].mean() for span in spans[size]]
        return table

    def totals(self) -> tuple[float, float]:
        """Return rows learned and their total loss, over all keys."""
        learned, loss = self.engine.summary()[:, 3:5].sum(axis=0).tolist()
        away = [place.info for place in self.places.values()]
        learned += sum(info["learned"] for info in away)
        return learned, loss + sum(info["total_loss"] for info in away)

    def _check_process(self) -> None:
        if os.getpid() != self._process:
            raise RuntimeError(
                "a pool with max_keys keeps models in a file of the process that made it, and this "
                "is a fork of that. Save the pool there and load it here."
            )
