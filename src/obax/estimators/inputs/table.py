"""Dicts, arrays and frames as tables of floats, and which of their rows are rejected."""

import copy
import datetime
import itertools
import math
import numbers
import re
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Self

import numpy as np
import numpy.typing as npt

LARGEST = 1e15
EPOCH = datetime.datetime(1970, 1, 1)
LONGEST = 100
"""Characters of a word."""
ISO_DATE = re.compile(
    r"\d{4}-\d\d-\d\d([T ]\d\d:\d\d(:\d\d([.,]\d{1,9})?)?(Z|[+-]\d\d(:?\d\d)?)?)?"
)
NUMBERS = frozenset({float, int, bool, type(None), np.float64, np.float32, np.int64})
"""Types of values that are numbers, or missing, without a second look."""
Features = Mapping[Any, object]
"""One row as River has it: values by the name of the feature."""
Csr = tuple[np.ndarray, np.ndarray, np.ndarray]
"""Rows as the engine takes them by their keys: begins, columns and values."""


class Category(str):
    """A word that is the name of a category even where it reads as a date."""


class Table:
    """Some rows with the same names, as every method for many rows takes them.

    `values` has a row for each row and a column for each name: of floats with NaN where a feature
    is missing, or of objects, where `None` is missing too, words and dates are kept apart, by
    column, and what is neither has its row rejected. `rejected` has the reasons, by the position
    of the row.

    >>> table = Table(["a", "b"], np.array([[1.0, None], ["x", [2.0]]], object))
    >>> table.words, table.rejected
    ({0: [None, 'x']}, {1: "feature 'b' is [2.0], not a number, word or date but a list"})
    """

    def __init__(self, names: Sequence[Hashable], values: np.ndarray):
        if values.ndim != 2 or values.shape[1] != len(names):
            raise ValueError(
                f"values must be a 2D array with a column for each of {len(names)} names, but has "
                f"shape {values.shape}."
            )
        self.names = list(names)
        self.rejected: dict[int, str] = {}
        self.words: dict[int, list[str | None]] = {}
        self.days: dict[int, np.ndarray] = {}
        """Dates, as days since 1970."""
        self.source: tuple[Table, int] | None = None
        """The table of these rows as they came, and where they begin in it."""
        objects = values.dtype.kind == "O"
        self.values = self._checked(values) if objects else np.asarray(values, np.float64)
        with np.errstate(invalid="ignore"):
            absurd = np.abs(self.values) > LARGEST
        for i in np.flatnonzero(absurd.any(axis=1)).tolist():
            j = int(np.argmax(absurd[i]))
            self.rejected.setdefault(i, too_large(self.names[j], self.values[i, j]))

    @classmethod
    def unreadable(cls, reason: str) -> Self:
        """Return a table of one row without values that is rejected for this reason."""
        table = cls([], np.zeros((1, 0)))
        table.rejected[0] = reason
        return table

    def __len__(self) -> int:
        return len(self.values)

    def row(self, index: int) -> dict[Hashable, object]:
        """Return one row, to show."""
        if self.source is not None:
            table, begin = self.source
            return table.row(begin + index)
        shown: list[object] = self.values[index].tolist()
        for j, words in self.words.items():
            shown[j] = shown[j] if words[index] is None else words[index]
        for j, days in self.days.items():
            if not np.isnan(days[index]):
                shown[j] = str(EPOCH + datetime.timedelta(days=float(days[index])))
        return dict(zip(self.names, shown, strict=True))

    def count(self, names: set[Hashable]) -> int:
        """Count the values of these names in rows that are not rejected."""
        mine = [j for j, name in enumerate(self.names) if name in names]
        taken = np.ones(len(self), bool)
        taken[list(self.rejected)] = False
        return int(np.sum(~np.isnan(self.values[taken][:, mine])))

    def in_columns(
        self, columns: Mapping[Hashable, int], rejected: Collection[int] = ()
    ) -> np.ndarray:
        """Return values in these columns, NaN for missing ones and in rejected rows."""
        if not rejected and self.names == list(columns):
            return self.values
        where = places(self.names, columns)
        values = np.full((len(self), len(columns)), np.nan)
        values[:, where[where >= 0]] = self.values[:, where >= 0]
        values[list(rejected)] = np.nan
        return values

    def by_keys(self, columns: Mapping[Hashable, int], rejected: Collection[int] = ()) -> Csr:
        """Return where each row begins, and columns and values of all."""
        where, values = places(self.names, columns), self.values.copy()
        values[list(rejected)] = np.nan
        begins = np.arange(len(self) + 1, dtype=np.int64) * len(where)
        return begins, np.tile(where, len(self)), values.ravel()

    def _checked(self, objects: np.ndarray) -> np.ndarray:
        """Return values as floats; note words, dates and rejected rows."""
        values = np.full(objects.shape, np.nan)
        for i, line in enumerate(objects.tolist()):
            for j, item in enumerate(line):
                value = number(item)
                if value is not None:
                    values[i, j] = value
                elif (date := since_epoch(item)) is not None:
                    self.days.setdefault(j, np.full(len(objects), np.nan))[i] = date
                elif isinstance(item, str) and len(item) <= LONGEST:
                    words = self.words.setdefault(j, [None] * len(objects))
                    words[i] = (item if type(item) is Category else str(item)) or None
                else:
                    kind = "a longer text" if isinstance(item, str) else f"a {type(item).__name__}"
                    found = f"feature {self.names[j]!r} is {short(item)}"
                    self.rejected[i] = f"{found}, not a number, word or date but {kind}"
        return values


Rows = Table | Features | Sequence[Features | Table] | npt.ArrayLike
"""Rows of any kind; frames of pandas and polars are like arrays, with names, and sparse matrices of
SciPy like arrays."""


def number(value: object) -> float | None:
    """Return the value as a float: NaN for a missing one, `None` for what is not a number."""
    if is_missing(value):
        return float("nan")
    if isinstance(value, complex | np.complexfloating | np.timedelta64):
        return None
    if isinstance(value, np.number | numbers.Number | np.bool_):
        try:
            return float(value)  # type: ignore[arg-type]
        except OverflowError:
            return float("inf")
        except (TypeError, ValueError):
            return None
    return None


def is_missing(value: object) -> bool:
    """Return whether a value stands for a missing one."""
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return True
    return isinstance(value, float | np.floating) and math.isnan(value)


def since_epoch(value: object) -> float | None:
    """Return a date as days since 1970-01-01: NaN for a missing one, `None` for no date. A text is
    one if it is written as in ISO 8601."""
    if type(value) is str:
        if ISO_DATE.fullmatch(value) is None:
            return None
        try:
            value = datetime.datetime.fromisoformat(value)
        except ValueError:  # Such as the 30th of February.
            return None
    if isinstance(value, np.datetime64):
        value = value.astype("M8[us]").item()
        if value is None:
            return float("nan")
    if isinstance(value, datetime.datetime):
        if value.tzinfo is not None:
            value = value.astimezone(datetime.UTC).replace(tzinfo=None)
        return (value - EPOCH) / datetime.timedelta(days=1)
    if isinstance(value, datetime.date):
        return float((value - EPOCH.date()).days)
    return None


def tables(rows: Rows) -> Iterator[Table]:
    """Read rows of any kind as tables, each of rows with the same names."""
    for block in blocks(rows):
        if isinstance(block, Table):
            yield block
        else:
            for run in runs(block):
                yield from_dicts(run)


def blocks(rows: Rows) -> Iterator[Table | list[Features]]:
    """Read rows of any kind, dicts as they are and everything else as tables."""
    if isinstance(rows, Table):
        yield rows
    elif hasattr(rows, "collect"):  # A lazy frame of polars.
        yield _from_columns(rows.collect())
    elif isinstance(rows, Mapping):
        yield [rows]
    elif hasattr(rows, "columns"):
        yield _from_columns(rows)
    elif isinstance(rows, list | tuple) and rows and isinstance(rows[0], Mapping | Table):
        for are_dicts, group in itertools.groupby(rows, lambda row: isinstance(row, Mapping)):
            if are_dicts:
                yield list(group)
                continue
            for table in group:
                if not isinstance(table, Table):
                    raise ValueError(f"rows must all be dicts, but one is {short(table)}.")
                yield table
    else:
        yield _from_array(rows)  # type: ignore[arg-type]


def runs(rows: Iterable[Features]) -> Iterator[list[Features]]:
    """Split dicts where their names change."""
    return (list(run) for _, run in itertools.groupby(rows, lambda row: row.keys()))


def from_dicts(run: Sequence[Features]) -> Table:
    """Return dicts with the same names as a table; the order of their keys changes nothing."""
    names = sorted(run[0], key=order_of)
    flat = [row[name] for row in run for name in names]
    if NUMBERS.issuperset(map(type, flat)):
        try:
            return Table(names, np.array(flat, np.float64).reshape(len(run), len(names)))
        except OverflowError:  # An integer beyond all floats.
            pass
    values = np.empty(len(flat), object)
    for i, value in enumerate(flat):
        # One by one: an assignment of the whole row would take a list inside it apart.
        values[i] = value
    return Table(names, values.reshape(len(run), len(names)))


def _from_array(rows: npt.ArrayLike) -> Table:
    """Read a two-dimensional array; features are named by their column number."""
    if not hasattr(rows, "dtype") and hasattr(rows, "to_numpy"):
        rows = rows.to_numpy()
    array = np.asarray(rows)
    if array.ndim != 2:
        raise ValueError(
            f"rows must be a dict, a frame, a list of dicts or a 2D array of rows and features, "
            f"but has {array.ndim} dimension(s), shape {array.shape}; reshape a single row with "
            f"rows.reshape(1, -1)."
        )
    if array.dtype.kind == "c":
        raise ValueError("Complex data not supported: rows must hold real numbers.")
    real = array.dtype.kind in "fiub"
    return Table(range(array.shape[1]), array if real else _objects(array))


def _from_columns(frame: Any) -> Table:
    names = list(frame.columns)
    columns = [np.asarray(frame[name]) for name in names]
    real = all(column.dtype.kind in "fiub" for column in columns)
    values = np.empty((len(frame), len(names)), np.float64 if real else object)
    for j, column in enumerate(columns):
        values[:, j] = column if real else _objects(column)
    return Table(names, values)


def _objects(array: np.ndarray) -> np.ndarray:
    """Return an array of Python's own types; NumPy would make integers of times in nanoseconds."""
    if array.dtype.kind in "mM":
        array = array.astype(f"{array.dtype.kind}8[us]")
    return array.astype(object)


def order_of(name: Hashable) -> tuple[bool, str, float]:
    """Return a key to sort names by: numbers first, then everything else by its text."""
    return (False, "", name) if isinstance(name, int | float) else (True, str(name), 0)


def places(names: Sequence[Hashable], columns: Mapping[Hashable, int]) -> np.ndarray:
    """Return the column of each name; -1 for one that is not known."""
    return np.array([columns.get(name, -1) for name in names], np.int64)


def reordered(rows: Any, order: np.ndarray) -> Any:
    """Return rows in another order."""
    if isinstance(rows, list | tuple):
        return [rows[i] for i in order]
    if hasattr(rows, "tocsr"):
        return rows.tocsr()[order]
    table = copy.copy(next(tables(rows)))
    table.values = table.values[order]
    table.words = {j: [words[i] for i in order] for j, words in table.words.items()}
    table.days = {j: days[order] for j, days in table.days.items()}
    reasons = [(i, table.rejected.get(old)) for i, old in enumerate(order.tolist())]
    table.rejected = {i: reason for i, reason in reasons if reason is not None}
    return table


def too_large(name: Hashable, value: float) -> str:
    """Return the reason for the rejection of a row with such a value."""
    return f"feature {name!r} is {value:g}, infinite or beyond {LARGEST:g}"


def short(value: object) -> str:
    """Return a value as text that is short enough for a message."""
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:37]}..."


def as_dict(row: Features | None) -> Features:
    """Return the row itself; raise an error for what is not a dict."""
    if type(row) is dict or isinstance(row, Mapping):
        return row
    raise ValueError(
        f"x must be a dict of features, but is {type(row).__name__}; use learn_many or partial_fit "
        f"for arrays and frames."
    )


def to_series(values: Any, like: Rows) -> Any:
    """Return a series of polars for rows of polars, and one of pandas for others."""
    if type(like).__module__.startswith("polars"):
        import polars

        return polars.Series(np.asarray(values).tolist())
    import pandas

    index = getattr(like, "index", None)  # That of a list is a method.
    return pandas.Series(values, index=None if callable(index) else index)


def to_frame(values: np.ndarray, columns: Sequence[Hashable], like: Rows) -> Any:
    """Return a frame of polars for rows of polars, and one of pandas for others."""
    if type(like).__module__.startswith("polars"):
        import polars

        return polars.DataFrame(values, schema=[str(name) for name in columns], orient="row")
    import pandas

    index = getattr(like, "index", None)
    return pandas.DataFrame(values, columns=list(columns), index=None if callable(index) else index)
