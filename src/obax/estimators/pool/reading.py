"""Rows of a pool, read: the numbers of their keys, and values in the pool's columns."""

import dataclasses
import itertools
import zlib
from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import numpy as np

from ..budget import Bounded
from ..inputs.columns import Columns
from ..inputs.table import Rows, Table, is_missing, short, tables
from ..inputs.targets import is_hashable, targets_of
from ..options import MOST_LINEAR, Options
from ..serialise import tagged


def spread(key: Hashable) -> int:
    """Return a number from a key, the same in every process, and the same for equal keys. (Python's
    hash of a word changes from process to process.)"""
    if isinstance(key, str):
        return zlib.crc32(key.encode("utf-8", "surrogatepass"))
    if isinstance(key, tuple):
        return zlib.crc32(repr([spread(item) for item in key]).encode())
    return zlib.crc32(str(hash(key)).encode())


def why_not(key: Any) -> str | None:
    """Return why a value cannot be a key; `None` if it can."""
    if is_missing(key) or (isinstance(key, str) and not key):
        return "its key is missing"
    kind = type(key).__name__
    if not is_hashable(key):
        return f"key {short(key)} cannot be a key: a {kind} is not hashable"
    try:
        tagged(key)
    except ValueError:
        return (
            f"key {short(key)} cannot be a key: it is a {kind}, not a word, a number or a tuple of "
            f"them"
        )
    return None


def split(name: Hashable, keys: Any, rows: Rows) -> tuple[Sequence[object], Rows]:
    """Return keys, and rows without the column `name`, from which the keys are taken if none are
    given."""
    own: Any = None
    frame: Any = rows
    if isinstance(rows, Mapping):
        rows = [rows]
    if isinstance(rows, list | tuple):
        dicts = [row if isinstance(row, Mapping) else {} for row in rows]
        if any(name in row for row in dicts):
            own = [row.get(name) for row in dicts]
            rows = [
                {n: value for n, value in row.items() if n != name}
                if isinstance(row, Mapping)
                else row
                for row in rows
            ]
    elif not isinstance(rows, Table) and name in list(getattr(rows, "columns", ())):
        own, rows = frame[name], frame[[n for n in frame.columns if n != name]]
    given = own if keys is None else keys
    if given is None:
        raise ValueError(
            f"keys must be one for each row, or rows have a column {name!r}; keys is None, and "
            f"rows, of type {type(rows).__name__}, have no such column."
        )
    if isinstance(given, str):
        raise ValueError(f"keys must be one for each row, but is the word {given!r}.")
    listed = targets_of(given)
    return listed.tolist() if isinstance(listed, np.ndarray) else listed, rows


@dataclasses.dataclass
class Batch:
    """Rows that have been read, those of bad keys among them."""

    numbers: np.ndarray
    """The numbers of their keys; -1 where there is none."""
    values: np.ndarray
    targets: np.ndarray
    """NaN for a row that is not learned."""
    weights: np.ndarray
    rejected: dict[int, str]
    tables: list[Table]
    keys: Sequence[object]

    def row(self, index: int) -> Mapping[Hashable, object]:
        """Return one row, to show."""
        for table in self.tables:
            if index < len(table):
                return table.row(index)
            index -= len(table)
        raise IndexError(index)


class Reader(Bounded):
    """The keys, features and classes that a pool knows, numbered by their first appearance."""

    def __init__(self, options: Options):
        self.options = options
        self.keys: dict[Hashable, int] = {}
        self.names: dict[Hashable, int] = {}
        self.labels: dict[Hashable, int] = {}
        self.columns = Columns(options.max_categories)
        self.ignored = 0

    @property
    def implied(self) -> list[int]:
        """For each class the one that comes with it: the other boolean; -1 for none."""
        return [
            self.labels.get(not label, -1) if isinstance(label, bool) else -1
            for label in self.labels
        ]

    @property
    def siblings(self) -> list[int]:
        """For each column the first one of the same feature of words; -1 for none."""
        return self.columns.siblings(list(self.names), self.names)

    @property
    def most_features(self) -> int:
        """The number of features that there is room for: a pool has no sparse models."""
        most = self.options.most_features if self.options.dense else MOST_LINEAR
        return max(min(most, super().most_features), len(self.names))

    def learnable(
        self,
        keys: Sequence[object],
        rows: Rows,
        targets: Sequence[object] | np.ndarray,
        weights: np.ndarray | None,
        reject_missing: bool,
    ) -> Batch:
        """Read rows to be learned, with which keys, features and classes may be new."""
        read = list(tables(rows))
        total = sum(map(len, read))
        for what, those in (("keys", keys), ("targets", targets)):
            if len(those) != total:
                raise ValueError(
                    f"{what} must be as many as rows, {total}, but there are {len(those)}."
                )
        numbers, rejected = self._numbers(keys, learn=True)
        pieces = [piece for table in read for piece in self._pieces(table)]
        begin = 0
        for piece in pieces:
            rejected |= {begin + i: reason for i, reason in piece.rejected.items()}
            begin += len(piece)
        goals, weights = self.read_targets(targets, rejected, total, weights, reject_missing)
        for _, label in goals.new:
            self.labels[label] = len(self.labels)
        by_class = self.options.class_weight
        if isinstance(by_class, Mapping) and self.labels:
            factors = np.array([by_class.get(label, 1.0) for label in self.labels])
            weights = weights * factors[np.nan_to_num(goals.values).astype(np.int64)]
        values = self._in_columns(pieces)
        values[list(rejected)] = np.nan
        return Batch(numbers, values, goals.values, weights, rejected, pieces, keys)

    def known(self, keys: Sequence[object], rows: Rows) -> Batch:
        """Read rows that are only predicted."""
        pieces = [self.columns.known(table, self.names) for table in tables(rows)]
        values = self._in_columns(pieces)
        if len(keys) != len(values):
            raise ValueError(
                f"keys must be as many as rows, {len(values)}, but there are {len(keys)}."
            )
        numbers, _ = self._numbers(keys, learn=False)
        none = np.zeros(len(values))
        return Batch(numbers, values, none + np.nan, none, {}, pieces, keys)

    def _numbers(self, keys: Sequence[Any], learn: bool) -> tuple[np.ndarray, dict[int, str]]:
        """Return the numbers of keys, -1 for an unknown one; to `learn`, new ones get one, and
        there are reasons, by position, why others cannot."""
        rejected: dict[int, str] = {}
        usable = keys
        try:
            numbers = np.fromiter(map(self.keys.get, usable, itertools.repeat(-1)), np.int64)
        except TypeError:  # One that is not hashable.
            usable = [key if is_hashable(key) else None for key in keys]
            numbers = np.fromiter(map(self.keys.get, usable, itertools.repeat(-1)), np.int64)
        for i in np.flatnonzero(numbers < 0).tolist() if learn else ():
            if (reason := why_not(keys[i])) is not None:
                rejected[i] = reason
            else:
                numbers[i] = self.keys.setdefault(keys[i], len(self.keys))
        return numbers, rejected

    def _pieces(self, table: Table) -> list[Table]:
        """Read rows in columns of numbers; new ones are known from now on, if there is room."""
        pieces = list(self.columns.pieces(table, self.names, self.most_features - len(self.names)))
        self.ignored += self.columns.ignored
        self.columns.ignored = 0
        for piece in pieces:
            if len(piece.rejected) < len(piece):
                for name in piece.names:
                    self.names.setdefault(name, len(self.names))
        return pieces

    def _in_columns(self, pieces: Sequence[Table]) -> np.ndarray:
        """Return values in the pool's columns, NaN for missing ones."""
        none = np.zeros((0, len(self.names)))
        return np.concatenate([none, *(piece.in_columns(self.names) for piece in pieces)])
