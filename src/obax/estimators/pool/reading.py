"""Rows of a pool as they come, in the pool's columns and classes."""

import dataclasses
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

import numpy as np

from .. import budget
from ..inputs.columns import Columns
from ..inputs.sparse import places
from ..inputs.table import Rows, Table, tables
from ..inputs.targets import coded
from ..options import MOST_LINEAR, Options
from .keys import Keys


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
    classes: int
    """That the pool knew when the rows were read."""
    tables: list[Table]
    keys: Sequence[object]

    def row(self, index: int) -> Mapping[Hashable, object]:
        """Return one row, to show."""
        for table in self.tables:
            if index < len(table):
                return table.row(index)
            index -= len(table)
        raise IndexError(index)


class Reader:
    """The features and classes that a pool knows."""

    def __init__(self, options: Options):
        self.options = options
        self.names: dict[Hashable, int] = {}
        self.index: dict[Hashable, int] = {}
        self.columns = Columns(options.max_categories)
        self.ignored = 0
        self._limits: dict[Any, tuple[int, int]] = {}

    @property
    def labels(self) -> list[Hashable]:
        """The classes, in the order of their first appearance."""
        return list(self.index)

    @property
    def implied(self) -> list[int]:
        """For each class the one that comes with it: the other boolean; -1 for none."""
        return [
            self.index.get(not label, -1) if isinstance(label, bool) else -1 for label in self.index
        ]

    @property
    def siblings(self) -> list[int]:
        """For each column the first one of the same feature of words; -1 for none."""
        return self.columns.siblings(list(self.names), self.names)

    @property
    def most_features(self) -> int:
        """The number of features that there is room for: a pool has no sparse models."""
        most = self.options.most_features if self.options.dense else MOST_LINEAR
        found = self._fitting(budget.most_features, len(self.index))
        return max(min(most, found), len(self.names))

    @property
    def most_classes(self) -> int:
        """The number of classes that there is room for."""
        return max(self._fitting(budget.most_classes, len(self.names)), len(self.index))

    def _fitting(self, most: Callable[[Options, int], int], beside: int) -> int:
        known = self._limits.get(most)
        if known is None or known[0] != beside:
            known = self._limits[most] = (beside, most(self.options, beside))
        return known[1]

    def _surplus(self, classes: int) -> str:
        if classes > self.options.max_classes:
            return "one too many"
        return budget.too_much(self.options, len(self.names), classes)

    def learnable(
        self,
        keys: Keys,
        given: Sequence[object],
        rows: Rows,
        targets: Sequence[object] | np.ndarray,
        weights: np.ndarray | None,
        reject_missing: bool,
    ) -> Batch:
        """Read rows to be learned, with which keys, features and classes may be new."""
        found = list(tables(rows))
        total = sum(len(table) for table in found)
        for what, those in (("keys", given), ("targets", targets)):
            if len(those) != total:
                raise ValueError(
                    f"{what} must be as many as rows, {total}, but there are {len(those)}."
                )
        numbers, rejected = keys.find(given, learn=True)
        pieces = [piece for table in found for piece in self._pieces(table)]
        begin = 0
        for piece in pieces:
            rejected |= {begin + i: reason for i, reason in piece.rejected.items()}
            begin += len(piece)
        index = self.index if self.options.classify else None
        unread = [] if weights is None else np.flatnonzero(weights == 0).tolist()
        goals = coded(
            targets, rejected, index, total, reject_missing=reject_missing, unread=unread,
            most=self.most_classes, surplus=self._surplus,
        )  # fmt: skip
        for _, label in goals.new:
            self.index[label] = len(self.index)
        learned = (~np.isnan(goals.values)).astype(np.float64)
        heavy = learned if weights is None else learned * weights
        by_class = self.options.class_weight
        if isinstance(by_class, Mapping) and self.index:
            factors = np.array([by_class.get(label, 1.0) for label in self.index])
            heavy = heavy * factors[np.where(learned > 0, goals.values, 0).astype(np.int64)]
        values = self._placed(pieces)
        values[list(rejected)] = np.nan
        classes = len(self.index)
        return Batch(numbers, values, goals.values, heavy, rejected, classes, pieces, given)

    def known(self, keys: Keys, given: Sequence[object], rows: Rows) -> Batch:
        """Read rows that are only predicted."""
        pieces = [self.columns.known(table, self.names) for table in tables(rows)]
        values, size = self._placed(pieces), sum(len(piece) for piece in pieces)
        if len(given) != size:
            raise ValueError(f"keys must be as many as rows, {size}, but there are {len(given)}.")
        numbers, _ = keys.find(given, learn=False)
        none = np.zeros(size)
        return Batch(numbers, values, none + np.nan, none, {}, len(self.index), pieces, given)

    def _pieces(self, table: Table) -> list[Table]:
        """Read rows in columns of numbers; new ones are known from now on, if there is room."""
        room = self.most_features - len(self.names)
        found = list(self.columns.pieces(table, self.names, room))
        self.ignored += self.columns.ignored
        self.columns.ignored = 0
        for piece in found:
            if len(piece.rejected) < len(piece):
                for name in piece.names:
                    self.names.setdefault(name, len(self.names))
        return found

    def _placed(self, pieces: Sequence[Table]) -> np.ndarray:
        """Return values in the pool's columns, NaN for what it does not know or does not get."""
        if len(pieces) == 1 and pieces[0].names == list(self.names):
            return np.array(pieces[0].values)
        values = np.full((sum(len(piece) for piece in pieces), len(self.names)), np.nan)
        begin = 0
        for piece in pieces:
            where = places(piece.names, self.names)
            lines = values[begin : begin + len(piece)]
            lines[:, where[where >= 0]] = piece.values[:, where >= 0]
            begin += len(piece)
        return values
