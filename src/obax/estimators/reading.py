"""Rows as people have them, dicts, arrays, frames, to rows of floats; and which are rejected.

The rule, the same for every face:

- a feature that is not there, `None` or NaN is *missing*: it counts as its running mean;
- a row with a feature that is not a number, infinite or beyond 1e15 is *rejected*: the model does
  not see it, it is counted and kept in `rejected_`;
- everything else is learned, cut off at 10 deviations from the running mean.
"""

import collections
import numbers
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

LARGEST = 1e15
KEPT = 100


class Rejected:
    """The last rejected rows, oldest first, with the reason; `count` is of all of them."""

    def __init__(self) -> None:
        self.count = 0
        self._kept: collections.deque[dict[str, Any]] = collections.deque(maxlen=KEPT)

    def add(self, row: int, reason: str, values: Any) -> None:
        """Keep one; `row` counts the rows given to the model from 1."""
        self.count += 1
        self._kept.append({"row": row, "reason": reason, "values": values})

    def __len__(self) -> int:
        return len(self._kept)

    def __getitem__(self, index: Any) -> Any:
        return list(self._kept)[index]

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter(list(self._kept))

    def __repr__(self) -> str:
        return f"Rejected(count={self.count}, last={list(self._kept)[-1:]})"


class Frame:
    """Some rows with the same names: a float64 array with NaN where a feature is missing, and the
    reason for each row that is rejected."""

    def __init__(
        self, names: list[Any], values: np.ndarray, rejected: dict[int, str] | None = None
    ):
        self.names = names
        self.values = values
        self.rejected = {} if rejected is None else rejected
        with np.errstate(invalid="ignore"):
            absurd = np.abs(values) > LARGEST
        for i in np.flatnonzero(absurd.any(axis=1)).tolist():
            j = int(np.argmax(absurd[i]))
            self.rejected.setdefault(
                i, f"feature {names[j]!r} is {values[i, j]:g}, infinite or beyond {LARGEST:g}"
            )

    def __len__(self) -> int:
        return len(self.values)

    def row(self, index: int) -> dict[Any, float]:
        """One row, to show."""
        return dict(zip(self.names, self.values[index].tolist(), strict=True))


def number(value: Any) -> float | None:
    """The value as a float, NaN for a missing one, `None` for what is not a number."""
    if value is None:
        return float("nan")
    if isinstance(value, float | int | np.number | numbers.Number):
        if isinstance(value, complex | np.complexfloating):
            return None
        try:
            return float(value)  # type: ignore[arg-type]
        except OverflowError:
            return float("inf")
        except (TypeError, ValueError):
            return None
    if isinstance(value, np.bool_):
        return float(value)
    if type(value).__name__ in ("NAType", "NaTType"):
        return float("nan")
    return None


def from_dict(row: Mapping[Any, Any]) -> Frame:
    """One row. Names in a fixed order, so that the order of the keys changes nothing."""
    names = sorted(row, key=_order)
    values = np.empty((1, len(names)))
    rejected: dict[int, str] = {}
    for j, name in enumerate(names):
        value = number(row[name])
        if value is None:
            rejected[0] = f"feature {name!r} is {short(row[name])}, not a number"
            value = float("nan")
        values[0, j] = value
    return Frame(names, values, rejected)


def frames(rows: Any) -> Iterator[Frame]:
    """Rows of any kind as frames of rows with the same names."""
    if isinstance(rows, Frame):
        yield rows
    elif isinstance(rows, Mapping):
        yield from_dict(rows)
    elif hasattr(rows, "columns"):
        yield _from_columns(rows)
    elif isinstance(rows, list | tuple) and rows and isinstance(rows[0], Mapping):
        yield from _from_dicts(rows)
    else:
        yield from_array(rows)


def from_array(rows: Any) -> Frame:
    """A two-dimensional array; features are named by their column number."""
    if not hasattr(rows, "dtype") and hasattr(rows, "to_numpy"):
        rows = rows.to_numpy()
    array = np.asarray(rows)
    if array.ndim != 2:
        raise ValueError(
            f"rows must be a dict, a frame, a list of dicts or a 2D array of rows and features, "
            f"but has {array.ndim} dimension(s), shape {array.shape}; reshape a single row with "
            f"rows.reshape(1, -1)."
        )
    names: list[Any] = list(range(array.shape[1]))
    if array.dtype.kind in "fiub":
        return Frame(names, array.astype(np.float64))
    if array.dtype.kind == "c":
        raise ValueError("Complex data not supported: rows must hold real numbers.")
    return _checked(names, array)


def _from_columns(table: Any) -> Frame:
    names = list(table.columns)
    columns = [np.asarray(table[name]) for name in names]
    if all(column.dtype.kind in "fiub" for column in columns):
        stacked = [column.astype(np.float64) for column in columns]
        values = np.stack(stacked, axis=1) if stacked else np.zeros((len(table), 0))
        return Frame(names, values)
    objects = np.empty((len(table), len(names)), object)
    for j, column in enumerate(columns):
        objects[:, j] = column
    return _checked(names, objects)


def _checked(names: list[Any], objects: np.ndarray) -> Frame:
    """Each value looked at on its own."""
    values = np.full(objects.shape, np.nan)
    rejected: dict[int, str] = {}
    for i, line in enumerate(objects.tolist()):
        for j, item in enumerate(line):
            value = number(item)
            if value is None:
                rejected.setdefault(i, f"feature {names[j]!r} is {short(item)}, not a number")
            else:
                values[i, j] = value
    return Frame(names, values, rejected)


def _from_dicts(rows: Sequence[Any]) -> Iterator[Frame]:
    """Runs of rows with the same names."""
    run: list[Frame] = []
    for row in rows:
        if not isinstance(row, Mapping):
            raise ValueError(f"rows must all be dicts, but one is {short(row)}.")
        one = from_dict(row)
        if run and run[0].names != one.names:
            yield _joined(run)
            run = []
        run.append(one)
    if run:
        yield _joined(run)


def _joined(run: list[Frame]) -> Frame:
    rejected = {i: frame.rejected[0] for i, frame in enumerate(run) if frame.rejected}
    return Frame(run[0].names, np.concatenate([frame.values for frame in run]), rejected)


def _order(name: Any) -> tuple[bool, str, Any]:
    # Numbers in their own order, then everything else by what it looks like.
    text = not isinstance(name, int | float)
    return (text, str(name), 0) if text else (text, "", name)


def short(value: Any) -> str:
    """What came, short enough for a message."""
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:37]}..."
