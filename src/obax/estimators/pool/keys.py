"""Which model a row belongs to: keys, their numbers, and the shard of each."""

import itertools
import math
import zlib
from collections.abc import Hashable, Sequence

import numpy as np

from ..table import short
from ..tags import tagged


def spread(key: Hashable) -> int:
    """A number from a key, the same in every process, and the same for keys that are equal. (What
    Python has for words changes from process to process.)"""
    if isinstance(key, str):
        return zlib.crc32(key.encode("utf-8", "surrogatepass"))
    if isinstance(key, tuple):
        return zlib.crc32(repr([spread(item) for item in key]).encode())
    return zlib.crc32(str(hash(key)).encode())


def why_not(key: object) -> str | None:
    """What keeps a value from being a key."""
    if key is None or key == "" or type(key).__name__ in ("NAType", "NaTType"):
        return "its key is missing"
    if isinstance(key, float) and math.isnan(key):
        return "its key is missing"
    try:
        hash(key)
    except TypeError:
        return f"key {short(key)} cannot be a key: a {type(key).__name__} is not hashable"
    try:
        tagged(key)
    except ValueError:
        return (
            f"key {short(key)} cannot be a key: it is a {type(key).__name__}, not a word, a number "
            f"or a tuple of them"
        )
    return None


class Keys:
    """Every key that has come, numbered in their order; and the place of each: shard, and number
    there."""

    def __init__(self, shards: int):
        self.shards = shards
        self.index: dict[Hashable, int] = {}
        self.names: list[Hashable] = []
        self._counts = [0] * shards
        self._places = np.zeros((16, 2), np.int64)

    @property
    def places(self) -> np.ndarray:
        """Shard and number there, by number."""
        return self._places[: len(self.names)]

    def find(self, keys: Sequence[object], learn: bool) -> tuple[np.ndarray, dict[int, str]]:
        """The numbers of keys, -1 for one that is not known; with `learn`, new ones get one, and
        there are reasons, by position, why others cannot."""
        rejected: dict[int, str] = {}
        try:
            found = np.fromiter(
                map(self.index.get, keys, itertools.repeat(-1)), np.int64, len(keys)
            )
        except TypeError:  # One that is not hashable.
            found = np.array([self._known(key) for key in keys], np.int64)
        if not learn:
            return found, rejected
        for i in np.flatnonzero(found < 0).tolist():
            key = keys[i]
            number = self._known(key)
            if number < 0:
                reason = why_not(key)
                if reason is not None:
                    rejected[i] = reason
                    continue
                number = self.add(key)
            found[i] = number
        return found, rejected

    def add(self, key: Hashable) -> int:
        """The number of a new key."""
        number, shard = len(self.names), spread(key) % self.shards
        if number == len(self._places):
            self._places = np.concatenate([self._places, np.zeros_like(self._places)])
        self._places[number] = shard, self._counts[shard]
        self._counts[shard] += 1
        self.names.append(key)
        self.index[key] = number
        return number

    def counts(self) -> list[int]:
        """Keys of each shard."""
        return list(self._counts)

    def _known(self, key: object) -> int:
        try:
            return self.index.get(key, -1)
        except TypeError:
            return -1
