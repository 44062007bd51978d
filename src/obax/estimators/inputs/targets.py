"""Targets and weights as numbers for the engine; and which targets are rejected."""

import itertools
import math
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from .table import LARGEST, number, short

Targets = Iterable[object]
"""One target per row: a list, a series, an array."""
Weights = npt.ArrayLike | None
"""One weight for all rows, or one for each; `None` is 1."""


class Coded(NamedTuple):
    """Targets as numbers, NaN for rows that are not learned, and where a class is new."""

    values: np.ndarray
    new: list[tuple[int, Hashable]]
    """Row and label, in order. With the first boolean label comes the other one, which is not news
    of that row but known after it."""


def with_opposites(labels: Iterable[Hashable]) -> list[Hashable]:
    """Return labels in the order of their first appearance; behind the first boolean comes the
    other one, which it implies."""
    found: dict[Hashable, None] = {}
    for label in dict.fromkeys(labels):
        found.setdefault(label)
        if isinstance(label, bool):
            found.setdefault(not label)
    return list(found)


def targets_of(y: Targets) -> list[object] | np.ndarray:
    """Return one target per row: an array as it is, anything else as Python's own types."""
    if isinstance(y, np.ndarray):
        return y.ravel()
    if hasattr(y, "to_list"):
        return y.to_list()
    if isinstance(y, Iterable) and not isinstance(y, str | bytes | Mapping):
        return list(y)
    raise ValueError(f"y must be one target per row, but is {type(y).__name__}.")


def coded(
    targets: Sequence[object] | np.ndarray | None,
    rejected: dict[int, str],
    index: Mapping[Hashable, int] | None,
    size: int,
    *,
    reject_missing: bool,
    unread: Sequence[int] = (),
    most: int = 0,
    surplus: Callable[[int], str] = lambda classes: "one too many",
) -> Coded:
    """Return targets of rows as numbers, or as the positions of labels if there is an `index`.

    Rows of `rejected` are not looked at; it gets those whose target cannot be learned, and those
    without a target if asked to. Rows of `unread` are not learned, whatever their target. There are
    at most `most` classes; `surplus` says why there cannot be so many.
    """
    found = Coded(np.full(size, np.nan), [])
    if targets is None:
        return found
    if unread:
        targets = list(targets)
        for i in unread:
            targets[i] = None
    if index is None:
        doubtful = _numbers(targets, found.values)
    else:
        doubtful = _labels(targets, index, found, 0 if rejected else most)
    found.values[list(rejected)] = np.nan
    known = dict(index or {})
    for i in doubtful:
        if i in rejected or i in unread:
            continue
        target = targets[i]
        if _is_missing(target):
            reason = "no target" if reject_missing else None
        elif index is not None:
            reason = _add_label(_plain(target), i, known, found, most, surplus)
        else:
            reason = _add_number(target, i, found.values)
        if reason is not None:
            rejected[i] = reason
    return found


def _labels(
    targets: Sequence[object] | np.ndarray, index: Mapping[Hashable, int], found: Coded, most: int
) -> list[int]:
    """Code known classes at once, and new ones that are plain words or whole numbers, up to `most`;
    return the positions of all others."""
    labels: Sequence[object] = targets.tolist() if isinstance(targets, np.ndarray) else targets
    try:
        new = [label for label in with_opposites(labels) if label not in index]
        if len(index) + len(new) <= most and {str, int, bool}.issuperset(map(type, new)):
            index = dict(index) | {label: len(index) + i for i, label in enumerate(new)}
            for label in new:
                row = labels.index(label) if label in labels else len(labels)
                if isinstance(label, bool) and (not label) in labels:
                    row = min(row, labels.index(not label))
                found.new.append((row, label))
        codes = np.fromiter(map(index.get, labels, itertools.repeat(-1)), np.int64, len(labels))
    except TypeError:  # One that is not hashable.
        return list(range(len(labels)))
    known = codes >= 0
    found.values[known] = codes[known]
    return np.flatnonzero(~known).tolist()


def _numbers(targets: Sequence[object] | np.ndarray, values: np.ndarray) -> list[int]:
    """Read arrays and lists of plain numbers at once; return the positions of all others."""
    plain = isinstance(targets, np.ndarray) and targets.dtype.kind in "fiub"
    if not plain and not {float, int}.issuperset(map(type, targets)):
        return list(range(len(targets)))
    try:
        found = np.asarray(targets, np.float64)
    except OverflowError:
        return list(range(len(targets)))
    fine = np.abs(found) <= LARGEST
    values[fine] = found[fine]
    return np.flatnonzero(~fine).tolist()


def _add_label(
    label: Hashable,
    row: int,
    known: dict[Hashable, int],
    found: Coded,
    most: int,
    surplus: Callable[[int], str],
) -> str | None:
    """Note a class, known or new; return the reason why it cannot be one."""
    try:
        code = known.get(label)
    except TypeError:
        return f"target {short(label)} cannot be a class: it is not hashable"
    if code is None:
        if len(known) >= most:
            count = len(known) + 1
            return f"target {short(label)} would be class {count}, {surplus(count)}"
        code = known[label] = len(known)
        found.new.append((row, label))
        if isinstance(label, bool) and (not label) not in known and len(known) < most:
            known[not label] = len(known)
            found.new.append((row, not label))
    found.values[row] = code
    return None


def _add_number(target: object, row: int, values: np.ndarray) -> str | None:
    value = number(target)
    if value is None or not abs(value) <= LARGEST:
        return f"target {short(target)} is not a number up to {LARGEST:g}"
    values[row] = value
    return None


def _plain(target: object) -> Hashable:
    """Return NumPy scalars as Python's."""
    return target.item() if isinstance(target, np.generic) else target


def _is_missing(target: object) -> bool:
    if target is None or type(target).__name__ in ("NAType", "NaTType"):
        return True
    return isinstance(target, float | np.floating) and math.isnan(target)


def one_weight(weight: object) -> float:
    """Return the weight of a row; raise an error for what cannot be one."""
    try:
        value = float(weight)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        value = math.nan
    if not 0 <= value < math.inf:
        raise ValueError(f"w must be a finite number >= 0, but is {weight!r}.")
    return value


def many_weights(weights: Weights, size: int, name: str = "w") -> np.ndarray | None:
    """Return one weight for each row; `None` where all are 1."""
    if weights is None:
        return None
    try:
        found = np.asarray(weights, np.float64)
    except (TypeError, ValueError):
        raise ValueError(f"{name} must be numbers, but is {type(weights).__name__}.") from None
    if found.shape not in ((), (size,)):
        raise ValueError(
            f"{name} must be a number or one for each of {size} rows, but has shape {found.shape}."
        )
    wrong = found[~((found >= 0) & (found < math.inf))]
    if wrong.size:
        raise ValueError(f"{name} must be finite numbers >= 0, but one is {wrong.flat[0]}.")
    return np.broadcast_to(found, (size,))
