"""Targets and weights as numbers for the engine; and which targets are rejected."""

import itertools
import math
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from .table import LARGEST, is_missing, number, short

Targets = Iterable[object]
"""One target per row: a list, a series, an array."""
Weights = npt.ArrayLike | None
"""One weight for all rows, or one for each; `None` is 1."""
UNREAD = object()
"""Stands for the target of a row that is not looked at."""


class Coded(NamedTuple):
    """Targets as numbers, NaN for rows that are not learned, and the classes that are new."""

    values: np.ndarray
    new: list[tuple[int, Hashable]]
    """The first row of each new class and its label, in the order of their codes."""
    implied: int | None = None
    """The position in `new` of the class that the first boolean label implies. It becomes known
    only after that row."""


def with_opposites(labels: Iterable[Hashable]) -> list[Hashable]:
    """Return labels in the order of their first appearance; behind the first boolean comes the
    other one, which it implies."""
    distinct: dict[Hashable, None] = {}
    for label in labels:
        distinct.setdefault(label)
        if isinstance(label, bool):
            distinct.setdefault(not label)
    return list(distinct)


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
    weights: np.ndarray | None = None,
    reject_missing: bool = True,
    most: int = 0,
    surplus: Callable[[int], str] = lambda classes: "one too many",
) -> Coded:
    """Return targets of rows as numbers, or as the positions of labels if there is an `index`.

    Rows of `rejected` and rows of weight 0 are not looked at. `rejected` gets the rows whose target
    cannot be learned and, if asked to, those without a target. There are at most `most` classes;
    `surplus` says why there cannot be so many.
    """
    if targets is None:
        return Coded(np.full(size, np.nan), [])
    unread = {*rejected, *(() if weights is None else np.flatnonzero(weights == 0).tolist())}
    if index is None:
        found = Coded(_numbers(targets), [])
        found.values[list(unread)] = np.nan
    else:
        targets = targets.tolist() if isinstance(targets, np.ndarray) else list(targets)
        for i in unread:
            targets[i] = UNREAD
        found = _positions(targets, index, most)
    for i in np.flatnonzero(np.isnan(found.values)).tolist():
        target = targets[i]
        if i in unread or (is_missing(target) and not reject_missing):
            continue
        if is_missing(target):
            rejected[i] = "no target"
        elif index is None:
            rejected[i] = f"target {short(target)} is not a number up to {LARGEST:g}"
        elif not is_hashable(target):
            rejected[i] = f"target {short(target)} cannot be a class: it is not hashable"
        else:
            rejected[i] = f"target {short(target)} would be class {most + 1}, {surplus(most + 1)}"
    return found


def _numbers(targets: Sequence[object] | np.ndarray) -> np.ndarray:
    """Return targets as numbers, NaN for what is none that can be learned."""
    array = isinstance(targets, np.ndarray) and targets.dtype.kind in "fiub"
    try:
        plain = array or {float, int}.issuperset(map(type, targets))
        values = np.array(targets if plain else [number(one) for one in targets], np.float64)
    except OverflowError:  # An integer beyond all floats.
        values = np.array([number(one) for one in targets], np.float64)
    values[~(np.abs(values) <= LARGEST)] = np.nan
    return values


def _positions(targets: list[object], index: Mapping[Hashable, int], most: int) -> Coded:
    """Return the positions of labels, of which those that are not in `index` are new, as long as
    there are at most `most`; NaN for all others."""
    labels: list[object] = targets
    size = len(labels)
    try:
        first = dict(zip(reversed(labels), range(size - 1, -1, -1), strict=True))
    except TypeError:
        labels = [label if is_hashable(label) else UNREAD for label in labels]
        first = dict(zip(reversed(labels), range(size - 1, -1, -1), strict=True))
    codes, new, implied = dict(index), list[tuple[int, Hashable]](), None
    for row in sorted(row for label, row in first.items() if label not in index):
        label: Any = labels[row]
        label = label.item() if isinstance(label, np.generic) else label
        if label in codes or label is UNREAD or is_missing(label) or len(index) + len(new) >= most:
            continue
        codes[labels[row]] = codes[label] = len(index) + len(new)
        new.append((row, label))
        if isinstance(label, bool) and (not label) not in codes and len(index) + len(new) < most:
            codes[not label], implied = len(index) + len(new), len(new)
            new.append((row, not label))
    values = np.fromiter(map(codes.get, labels, itertools.repeat(math.nan)), np.float64, size)
    return Coded(values, new, implied)


def is_hashable(value: object) -> bool:
    """Return whether a value can be the key of a dict."""
    try:
        hash(value)
    except TypeError:
        return False
    return True


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
        values = np.asarray(weights, np.float64)
    except (TypeError, ValueError):
        raise ValueError(f"{name} must be numbers, but is {type(weights).__name__}.") from None
    if values.shape not in ((), (size,)):
        raise ValueError(
            f"{name} must be a number or one for each of {size} rows, but has shape {values.shape}."
        )
    wrong = values[~((values >= 0) & (values < math.inf))]
    if wrong.size:
        raise ValueError(f"{name} must be finite numbers >= 0, but one is {wrong.flat[0]}.")
    return np.broadcast_to(values, (size,))
