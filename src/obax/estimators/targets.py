"""Targets as people have them, as numbers for the kernel; and which are rejected."""

import dataclasses
import itertools
import math
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence

import numpy as np

from .options import Options
from .table import LARGEST, number, short


@dataclasses.dataclass
class Coded:
    """Targets as numbers, which rows to learn, and where a class appears for the first time."""

    values: np.ndarray
    teach: np.ndarray
    new: list[tuple[int, Hashable]] = dataclasses.field(default_factory=list)

    def stretches(self, size: int) -> Iterator[tuple[int, int, tuple[Hashable] | None]]:
        """Begin, end and, in a tuple, the class that is new in the first row of each stretch."""
        cuts = [row for row, _ in self.new]
        if not cuts or cuts[0]:
            yield 0, cuts[0] if cuts else size, None
        for (row, label), end in zip(self.new, [*cuts[1:], size], strict=False):
            yield row, end, (label,)


def coded(
    options: Options,
    targets: Sequence[object] | np.ndarray | None,
    size: int,
    rejected: dict[int, str],
    index: Mapping[Hashable, int],
    unlabelled: str,
    unread: Sequence[int] = (),
    *,
    most: int = 0,
    surplus: Callable[[int], str] = lambda classes: "one too many",
) -> Coded:
    """Targets of rows; `rejected` has rows that are not looked at and gets those whose target
    cannot be learned. A missing one is a reason too, unless `unlabelled` is `"predict"`. Rows of
    `unread` are not to be learned, whatever their target. Of classes there are at most `most`;
    `surplus` says why not so many."""
    found = Coded(np.zeros(size), np.zeros(size, bool))
    if targets is None:
        return found
    if unread:
        targets = list(targets)
        for i in unread:
            targets[i] = None
    if options.classify:
        doubtful = _labels(targets, index, found, 0 if rejected else most)
    else:
        doubtful = _numbers(targets, found)
    found.teach[list(rejected)] = False
    known = dict(index)
    for i in doubtful:
        if i in rejected or i in unread:
            continue
        target = targets[i]
        if _is_missing(target):
            reason = None if unlabelled == "predict" else "no target"
        elif options.classify:
            reason = _add_label(_plain(target), i, known, found, most, surplus)
        else:
            reason = _add_number(target, i, found)
        if reason is not None:
            rejected[i] = reason
    return found


def _labels(
    targets: Sequence[object] | np.ndarray,
    index: Mapping[Hashable, int],
    found: Coded,
    most: int,
) -> list[int]:
    """Known classes at once, and new ones that are plain words or whole numbers, up to `most`; the
    positions of all others."""
    labels: Sequence[object] = targets.tolist() if isinstance(targets, np.ndarray) else targets
    size = len(labels)
    try:
        new = [label for label in dict.fromkeys(labels) if label not in index]
        if len(index) + len(new) <= most and {str, int, bool}.issuperset(map(type, new)):
            index = dict(index) | {label: len(index) + i for i, label in enumerate(new)}
            found.new += [(labels.index(label), label) for label in new]
        codes = np.fromiter(map(index.get, labels, itertools.repeat(-1)), np.int64, size)
    except TypeError:  # One that is not hashable.
        return list(range(size))
    found.teach[:] = codes >= 0
    found.values[found.teach] = codes[found.teach]
    return np.flatnonzero(codes < 0).tolist()


def _numbers(targets: Sequence[object] | np.ndarray, found: Coded) -> list[int]:
    """Arrays and lists of plain numbers at once; the positions of all others."""
    plain = isinstance(targets, np.ndarray) and targets.dtype.kind in "fiub"
    if not plain and not {float, int}.issuperset(map(type, targets)):
        return list(range(len(targets)))
    try:
        values = np.asarray(targets, np.float64)
    except OverflowError:
        return list(range(len(targets)))
    found.teach[:] = np.abs(values) <= LARGEST
    found.values[found.teach] = values[found.teach]
    return np.flatnonzero(~found.teach).tolist()


def _add_label(
    label: Hashable,
    row: int,
    known: dict[Hashable, int],
    found: Coded,
    most: int,
    surplus: Callable[[int], str],
) -> str | None:
    """Note a class, known or new; or the reason why it cannot be one."""
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
    found.values[row], found.teach[row] = code, True
    return None


def _add_number(target: object, row: int, found: Coded) -> str | None:
    value = number(target)
    if value is None or not abs(value) <= LARGEST:
        return f"target {short(target)} is not a number up to {LARGEST:g}"
    found.values[row], found.teach[row] = value, True
    return None


def _plain(target: object) -> Hashable:
    """NumPy scalars as Python's."""
    return target.item() if isinstance(target, np.generic) else target


def _is_missing(target: object) -> bool:
    if target is None or type(target).__name__ in ("NAType", "NaTType"):
        return True
    return isinstance(target, float | np.floating) and math.isnan(target)
