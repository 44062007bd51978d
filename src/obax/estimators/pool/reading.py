"""Rows of a pool as they come, in the pool's features and classes."""

import dataclasses
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

import numpy as np

from .. import budget
from ..columns import Columns
from ..given import targets_of
from ..options import LARGE, Options
from ..table import Rows, Table, tables
from ..targets import coded
from ..weights import of_classes
from .keys import Keys


@dataclasses.dataclass
class Batch:
    """Rows that have been read, those of bad keys among them."""

    numbers: np.ndarray
    """Of their keys; -1 where there is none."""
    values: np.ndarray
    targets: np.ndarray
    labelled: np.ndarray
    weights: np.ndarray
    rejected: dict[int, str]
    classes: int
    tables: list[Table]
    keys: Sequence[object]

    @property
    def shape(self) -> tuple[int, int]:
        """Features and classes that the pool knew when it was read."""
        return self.values.shape[1], self.classes

    def row(self, index: int) -> Mapping[Hashable, object]:
        """One row, to show."""
        for table in self.tables:
            if index < len(table):
                return table.row(index)
            index -= len(table)
        raise IndexError(index)


def split(name: Hashable, keys: Any, rows: Rows) -> tuple[Sequence[object], Rows]:
    """Keys, and rows without the column `name`, from which the keys are taken where none are
    given."""
    found: Any = None
    if isinstance(rows, Mapping):
        rows = [rows]
    if isinstance(rows, list | tuple) and rows and isinstance(rows[0], Mapping | Table):
        dicts = [row for row in rows if isinstance(row, Mapping)]
        if any(name in row for row in dicts):
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


class Reader:
    """The features and classes that a pool knows, shared by its keys."""

    def __init__(self, options: Options):
        self.options = options
        self.names: dict[Hashable, int] = {}
        self.classes: list[Hashable] = []
        self.index: dict[Hashable, int] = {}
        self.columns = Columns(options.max_categories)
        self.ignored = 0
        self._limits: dict[Callable[..., int], tuple[int, int]] = {}

    @property
    def most_features(self) -> int:
        """A pool has full curvature for every key, and no wide models."""
        most = self.options.most_features if self.options.dense else LARGE
        found = self._fitting(budget.most_features, len(self.classes))
        return max(min(most, found), len(self.names))

    @property
    def most_classes(self) -> int:
        """Of the pool, and of each key."""
        return max(self._fitting(budget.most_classes, len(self.names)), len(self.classes))

    def _fitting(self, most: Callable[[Options, int], int], beside: int) -> int:
        """What fits into the budget of a model beside so many of the other."""
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
        targets: Sequence[object] | np.ndarray | None,
        weights: np.ndarray | None,
        unlabelled: str,
    ) -> Batch:
        """Rows to be learned, with which keys, features and classes may be new."""
        found = list(tables(rows))
        total = sum(len(table) for table in found)
        for what, those in (("keys", given), ("targets", targets)):
            if those is not None and len(those) != total:
                raise ValueError(
                    f"{what} must be as many as rows, {total}, but there are {len(those)}."
                )
        numbers, refused = keys.find(given, learn=True)
        pieces = [piece for table in found for piece in self._pieces(table)]
        rejected = refused
        begin = 0
        for piece in pieces:
            rejected |= {begin + i: reason for i, reason in piece.rejected.items()}
            begin += len(piece)
        unread = [] if weights is None else np.flatnonzero(weights == 0).tolist()
        goals = coded(
            self.options, targets, total, rejected, self.index, unlabelled, unread,
            most=self.most_classes, surplus=self._surplus,
        )  # fmt: skip
        self.add_classes([label for _, label in goals.new])
        taught = goals.teach.astype(np.float64)
        if weights is not None:
            taught *= weights
        by_class = self.options.class_weight
        if isinstance(by_class, Mapping):
            taught *= of_classes(by_class, self.classes, goals.values)
        values = self._placed(pieces)
        values[list(rejected)] = np.nan
        known = len(self.classes)
        return Batch(
            numbers, values, goals.values, goals.teach, taught, rejected, known, pieces, given
        )

    def known(self, keys: Keys, given: Sequence[object], rows: Rows) -> Batch:
        """Rows that are only predicted."""
        pieces = [self.columns.known(table, self.names) for table in tables(rows)]
        values, size = self._placed(pieces), sum(len(piece) for piece in pieces)
        if len(given) != size:
            raise ValueError(f"keys must be as many as rows, {size}, but there are {len(given)}.")
        numbers, _ = keys.find(given, learn=False)
        none = np.zeros(size)
        known = len(self.classes)
        return Batch(numbers, values, none, none > 0, none.copy(), {}, known, pieces, given)

    def add_classes(self, labels: Sequence[Hashable]) -> None:
        """Know these classes; keys meet them one by one."""
        for label in labels:
            if label not in self.index:
                self.index[label] = len(self.classes)
                self.classes.append(label)

    def _pieces(self, table: Table) -> list[Table]:
        """In columns of numbers; new ones are known from now on, as many as there is room for."""
        room = self.most_features - len(self.names)
        found = list(self.columns.pieces(table, self.names, room))
        self.ignored += self.columns.ignored
        self.columns.ignored = 0
        for piece in found:
            if len(piece.rejected) == len(piece):
                continue
            new = [name for name in piece.names if name not in self.names]
            for name in new[: max(0, self.most_features - len(self.names))]:
                self.names[name] = len(self.names)
            surplus = set(new) - self.names.keys()
            if surplus:
                self.ignored += piece.count(surplus)
        return found

    def _placed(self, pieces: Sequence[Table]) -> np.ndarray:
        """NaN for what the pool does not know or does not get."""
        if len(pieces) == 1 and pieces[0].names == list(self.names):
            return np.array(pieces[0].values)
        values = np.full((sum(len(piece) for piece in pieces), len(self.names)), np.nan)
        begin = 0
        for piece in pieces:
            lines = values[begin : begin + len(piece)]
            for j, name in enumerate(piece.names):
                if name in self.names:
                    lines[:, self.names[name]] = piece.values[:, j]
            begin += len(piece)
        return values
