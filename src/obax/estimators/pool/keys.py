"""The keys of a pool and their numbers."""

import itertools
import math
import zlib
from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import numpy as np

from ..inputs.table import Rows, Table, short
from ..inputs.targets import targets_of
from ..json_codec import tagged


def spread(key: Hashable) -> int:
    """Return a number from a key, the same in every process, and the same for equal keys. (Python's
    hash of a word changes from process to process.)"""
    if isinstance(key, str):
        return zlib.crc32(key.encode("utf-8", "surrogatepass"))
    if isinstance(key, tuple):
        return zlib.crc32(repr([spread(item) for item in key]).encode())
    return zlib.crc32(str(hash(key)).encode())


def why_not(key: object) -> str | None:
    """Return what keeps a value from being a key."""
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
    """Every key that has come, numbered in their order."""

    def __init__(self) -> None:
        self.index: dict[Hashable, int] = {}

    def find(self, keys: Sequence[object], learn: bool) -> tuple[np.ndarray, dict[int, str]]:
        """Return the numbers of keys, -1 for an unknown one; to `learn`, new ones get one, and
        there are reasons, by position, why others cannot."""
        rejected: dict[int, str] = {}
        try:
            found = np.fromiter(
                map(self.index.get, keys, itertools.repeat(-1)), np.int64, len(keys)
            )
        except TypeError:  # One that is not hashable.
            found = np.array([self._known(key) for key in keys], np.int64)
        for i in np.flatnonzero(found < 0).tolist() if learn else ():
            key: Any = keys[i]
            found[i] = self._known(key)
            if found[i] >= 0:
                continue
            if (reason := why_not(key)) is not None:
                rejected[i] = reason
            else:
                found[i] = self.index[key] = len(self.index)
        return found, rejected

    def _known(self, key: object) -> int:
        try:
            return self.index.get(key, -1)
        except TypeError:
            return -1


def split(name: Hashable, keys: Any, rows: Rows) -> tuple[Sequence[object], Rows]:
    """Return keys, and rows without the column `name`, from which the keys are taken if none are
    given."""
    found: Any = None
    if isinstance(rows, Mapping):
        rows = [rows]
    if isinstance(rows, list | tuple) and rows and isinstance(rows[0], Mapping | Table):
        if any(name in row for row in rows if isinstance(row, Mapping)):
            found = [row.get(name) if isinstance(row, Mapping) else None for row in rows]
            rows = [
                {n: value for n, value in row.items() if n != name}
                if isinstance(row, Mapping)
                else row
                for row in rows
            ]
    elif not isinstance(rows, Table) and name in list(getattr(rows, "columns", ())):
        frame: Any = rows
        found, rows = frame[name], frame[[n for n in frame.columns if n != name]]
    given = found if keys is None else keys
    if given is None:
        raise ValueError(
            f"keys must be one for each row, or rows have a column {name!r}; keys is None, and "
            f"rows, of type {type(rows).__name__}, have no such column."
        )
    if isinstance(given, str):
        raise ValueError(f"keys must be one for each row, but is the word {given!r}.")
    listed = targets_of(given)
    return listed.tolist() if isinstance(listed, np.ndarray) else listed, rows
