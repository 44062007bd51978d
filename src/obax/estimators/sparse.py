"""Rows by their keys: sparse matrices, and dicts of numbers with keys of their own.

The rule of `table` holds, but that a key that is not there contributes nothing to a wide model; a
key with a missing value counts as there.
"""

import itertools
from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import numpy as np

from .kernel import MOST_FULL
from .options import LARGE, Options
from .table import LARGEST, Features, Rows, Table, order_of, tables

PLAIN = frozenset({float, int, bool, np.float64, np.float32, np.int64})
"""Types of values that are numbers without a second look."""


class Sparse:
    """Some rows: row i has the names at `columns[begins[i] : begins[i + 1]]` and their `values`.

    `names` stand in the order in which the rows bring them; `rejected` is as in `Table`.
    """

    def __init__(
        self,
        names: Sequence[Hashable],
        begins: np.ndarray,
        columns: np.ndarray,
        values: np.ndarray,
    ):
        self.names, self.begins, self.columns, self.values = list(names), begins, columns, values
        self.rejected: dict[int, str] = {}
        for at in np.flatnonzero(np.abs(values) > LARGEST).tolist():
            row = int(np.searchsorted(begins, at, side="right")) - 1
            found = f"feature {self.names[columns[at]]!r} is {values[at]:g}"
            self.rejected.setdefault(row, f"{found}, infinite or beyond {LARGEST:g}")

    def __len__(self) -> int:
        return len(self.begins) - 1

    def row(self, index: int) -> dict[Hashable, float]:
        """One row, to show."""
        span = slice(self.begins[index], self.begins[index + 1])
        names = [self.names[column] for column in self.columns[span]]
        return dict(zip(names, self.values[span].tolist(), strict=True))

    def placed(self, names: Mapping[Hashable, int]) -> np.ndarray:
        """Of every value the place of its name; -1 for one that is not known."""
        places = np.array([names.get(name, -1) for name in self.names], np.int64)
        return places[self.columns]

    def count(self, names: set[Hashable]) -> int:
        """The values of these names in rows that are not rejected."""
        theirs = np.array([name in names for name in self.names])[self.columns]
        theirs[np.isin(self.rows, list(self.rejected))] = False
        return int(theirs.sum())

    @property
    def rows(self) -> np.ndarray:
        """Of every value, its row."""
        return np.repeat(np.arange(len(self)), np.diff(self.begins))

    @property
    def brought(self) -> dict[Hashable, int]:
        """The names that come with a row that is not rejected, in their order; and which it is."""
        taken = ~np.isin(self.rows, list(self.rejected))
        columns, first = np.unique(self.columns[taken], return_index=True)
        rows = self.rows[taken][first].tolist()
        return {self.names[i]: row for i, row in zip(columns.tolist(), rows, strict=True)}

    def split(self, names: Mapping[Hashable, int], most: int) -> list["Sparse"]:
        """In two, before the row that brings more than `most` names, if any does and has rows
        before it."""
        rows = sorted(row for name, row in self.brought.items() if name not in names)
        room = most - len(names)
        if not 0 <= room < len(rows) or rows[room] == 0:
            return [self]
        cut = rows[room]
        middle = self.begins[cut]
        return [
            Sparse(self.names, begins, self.columns[span], self.values[span])
            for begins, span in (
                (self.begins[: cut + 1], slice(None, middle)),
                (self.begins[cut:] - middle, slice(middle, None)),
            )
        ]


def from_dicts(rows: Sequence[Features]) -> Sparse | None:
    """Dicts of plain numbers; `None` if there is anything else in them, for `table` to look at."""
    index: dict[Hashable, int] = {}
    columns: list[int] = []
    found: list[Any] = []
    begins = [0]
    for row in rows:
        # In a fixed order, so that the order of the keys changes nothing.
        for name in sorted((name for name in row if name not in index), key=order_of):
            index[name] = len(index)
        columns += map(index.__getitem__, row)
        found += row.values()
        begins.append(len(found))
    if not PLAIN.issuperset(map(type, found)):
        return None
    try:
        values = np.array(found, np.float64)
    except OverflowError:  # An integer beyond all floats.
        return None
    return Sparse(list(index), np.array(begins), np.array(columns, np.int64), values)


def from_matrix(matrix: Any, names: Sequence[Hashable] | None = None) -> Sparse:
    """A sparse matrix of SciPy; features are named by their column number unless they have names.
    Zeros that it does not store are not there."""
    rows = matrix.tocsr()
    if rows.dtype.kind not in "fiub":
        raise ValueError(f"a sparse matrix must hold real numbers, but has dtype {rows.dtype}.")
    if not rows.has_canonical_format:
        rows = rows.copy()
        rows.sum_duplicates()
    stored, first, columns = np.unique(rows.indices, return_index=True, return_inverse=True)
    order = np.argsort(first)
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order))
    brought = stored[order].tolist()
    named = brought if names is None else [names[column] for column in brought]
    begins = rows.indptr.astype(np.int64)
    return Sparse(named, begins, rank[columns], rows.data.astype(np.float64))


def parts_of(
    rows: Rows | Sparse, options: Options, names: Mapping[Hashable, int], wide: bool
) -> list[Table | Sparse]:
    """Rows of any kind for a model that knows some names: as tables or, from the row on that makes
    it wide, by their keys; cut where the row comes that makes it too wide for full curvature."""
    if isinstance(rows, Sparse):
        return [*rows.split(names, MOST_FULL)]
    if hasattr(rows, "tocsr"):
        matrix: Any = rows
        few = not wide and not options.wide(matrix.shape[1])
        if few:
            return list(tables(matrix.toarray()))
        return [*from_matrix(matrix).split(names, MOST_FULL)]
    dicts = _as_dicts(rows)
    if dicts is None or options.per_feature:
        return list(tables(rows))
    cut = 0 if wide else _crossing(dicts, names)
    rest = from_dicts(dicts[cut:]) if cut < len(dicts) else None
    if rest is None:
        return list(tables(rows))
    known = names if not cut else dict.fromkeys((*names, *itertools.chain(*dicts[:cut])), 0)
    return [*(tables(dicts[:cut]) if cut else ()), *rest.split(known, MOST_FULL)]


def _as_dicts(rows: object) -> Sequence[Features] | None:
    """Rows that are dicts, or one; `None` for any other."""
    if isinstance(rows, Mapping):
        return [rows]
    if isinstance(rows, list | tuple) and all(isinstance(row, Mapping) for row in rows):
        return rows
    return None


def _crossing(rows: Sequence[Features], names: Mapping[Hashable, int]) -> int:
    """Which of the rows brings the name that makes a model wide; their number if none does."""
    known = set(names)
    for i, row in enumerate(rows):
        known.update(row)
        if len(known) > LARGE:
            return i
    return len(rows)
