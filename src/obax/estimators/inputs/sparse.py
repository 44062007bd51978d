"""Sparse rows: sparse matrices, and dicts of numbers that have different keys.

A key that is not there contributes nothing to a sparse model; a key with a missing value counts as
there.
"""

from collections.abc import Collection, Container, Hashable, Mapping, Sequence
from typing import Any

import numpy as np

from .table import LARGEST, NUMBERS, Csr, Features, order_of, places, too_large


class Sparse:
    """Sparse rows: row i has the names at `columns[begins[i] : begins[i + 1]]` and their `values`.

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
        self.hidden: np.ndarray | None = None
        """Missing values of names that are not known before a later row."""
        self.rows = np.repeat(np.arange(len(self)), np.diff(begins))
        """The row of each value."""
        for at in np.flatnonzero(np.abs(values) > LARGEST).tolist():
            reason = too_large(self.names[columns[at]], values[at])
            self.rejected.setdefault(int(self.rows[at]), reason)

    def __len__(self) -> int:
        return len(self.begins) - 1

    def row(self, index: int) -> dict[Hashable, float]:
        """Return one row, to show."""
        span = slice(self.begins[index], self.begins[index + 1])
        names = [self.names[column] for column in self.columns[span]]
        return dict(zip(names, self.values[span].tolist(), strict=True))

    def count(self, names: set[Hashable]) -> int:
        """Count the values of these names in rows that are not rejected."""
        theirs = np.array([name in names for name in self.names], bool)
        return int(np.sum(theirs[self.columns[self._taken]]))

    @property
    def brought(self) -> dict[Hashable, int]:
        """The names that a row which is not rejected has a value of, in their order; and the first
        such row."""
        taken = self._taken
        rows = self.rows[taken]
        columns, first = np.unique(self.columns[taken], return_index=True)
        brought = {self.names[i]: row for i, row in zip(columns, rows[first].tolist(), strict=True)}
        if self.rejected or np.isnan(self.values).any():
            # A name whose first value comes later takes its place among those that come then.
            order = sorted(brought, key=lambda name: (brought[name], order_of(name)))
            brought = {name: brought[name] for name in order}
        return brought

    def hide(self, known: Container[Hashable]) -> None:
        """Hide missing values of names that only a later row makes known."""
        if not np.isnan(self.values).any():
            return
        brought = self.brought
        first = [0 if name in known else brought.get(name, len(self)) for name in self.names]
        self.hidden = np.isnan(self.values) & (self.rows < np.array(first)[self.columns])

    def by_keys(self, columns: Mapping[Hashable, int], rejected: Collection[int] = ()) -> Csr:
        """Return where each row begins, and columns and values of all."""
        index, values = places(self.names, columns)[self.columns], self.values.copy()
        for i in rejected:
            values[self.begins[i] : self.begins[i + 1]] = np.nan
        if self.hidden is not None:
            index[self.hidden] = -1
        return self.begins, index, values

    @property
    def _taken(self) -> np.ndarray:
        """Whether a value is there and its row is not rejected."""
        return ~np.isnan(self.values) & ~np.isin(self.rows, list(self.rejected))

    def split(self, names: Container[Hashable], room: int) -> list["Sparse"]:
        """Split the rows before the one that brings more than `room` names which are not among
        `names`, if any does and has rows before it."""
        rows = sorted(row for name, row in self.brought.items() if name not in names)
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
    """Read dicts of numbers; return `None` if there is anything else in them."""
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
    if not NUMBERS.issuperset(map(type, found)):
        return None
    try:
        values = np.array(found, np.float64)
    except OverflowError:  # An integer beyond all floats.
        return None
    return Sparse(list(index), np.array(begins), np.array(columns, np.int64), values)


def from_matrix(matrix: Any) -> Sparse:
    """Read a sparse matrix of SciPy; features are named by their column number. Zeros that it does
    not store are not there."""
    rows = matrix.tocsr()
    check_matrix(rows)
    if not rows.has_canonical_format:
        rows = rows.copy()
        rows.sum_duplicates()
    stored, first, columns = np.unique(rows.indices, return_index=True, return_inverse=True)
    order = np.argsort(first)
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order))
    begins = rows.indptr.astype(np.int64)
    return Sparse(stored[order].tolist(), begins, rank[columns], rows.data.astype(np.float64))


def check_matrix(matrix: Any) -> None:
    """Raise an error for a sparse matrix of anything but real numbers."""
    if matrix.dtype.kind not in "fiub":
        raise ValueError(f"a sparse matrix must hold real numbers, but has dtype {matrix.dtype}.")
