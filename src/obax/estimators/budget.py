"""The memory that a model takes, computed in advance, and what fits into `max_memory`.

Counted is what grows with features and classes: the engine's state, work space and history. While a
model grows, the old state is there beside the new one. Names, words and rows that wait for their
labels have limits of their own.
"""

import bisect
import functools
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

import numpy as np

from .._support import native
from .._support.messages import counted
from .inputs.targets import Coded, coded
from .options import MOST_LINEAR, Options


class Bounded:
    """Features and classes that fit into a budget; a base of models and of pools."""

    options: Options
    names: Any
    """The columns of the features."""
    labels: Any
    """The positions of the classes."""
    sparse: Any = False

    @property
    def most_features(self) -> int:
        """The number of features that there is room for, with the classes that there are."""
        return max(most_features(self.options, len(self.labels), self.sparse), len(self.names))

    @property
    def most_classes(self) -> int:
        """The number of classes that there is room for, with the features that there are."""
        return max(most_classes(self.options, len(self.names), self.sparse), len(self.labels))

    def read_targets(
        self,
        targets: Sequence[object] | np.ndarray | None,
        rejected: dict[int, str],
        size: int,
        weights: np.ndarray | None,
        reject_missing: bool,
    ) -> tuple[Coded, np.ndarray]:
        """Return targets as numbers, and the weight of each row, 0 for one that is not learned."""

        def surplus(classes: int) -> str:
            if classes > self.options.max_classes:
                return "one too many"
            return too_much(self.options, len(self.names), classes, self.sparse)

        index: Mapping[Hashable, int] | None = self.labels if self.options.classify else None
        goals = coded(
            targets, rejected, index, size, weights=weights, reject_missing=reject_missing,
            most=self.most_classes, surplus=surplus,
        )  # fmt: skip
        learned = (~np.isnan(goals.values)).astype(np.float64)
        return goals, learned if weights is None else learned * weights


def taken(options: Options, features: int, classes: int, sparse: bool = False) -> int:
    """Return the bytes of a model with so many features and classes, if it is `sparse` already."""
    return int(options.spec(features, classes, sparse or options.sparse(features)).bytes)


@functools.lru_cache(256)
def most_features(options: Options, classes: int, sparse: bool = False) -> int:
    """Return how many features a model with so many classes takes in. Full curvature, which a model
    that becomes sparse gives up, and a sparse one with many features, has to fit on the way."""

    def at_most(features: int) -> int:
        peaks = {features}
        if not options.dense:
            peaks.add(min(features, native.loaded().MOST_FULL))
            peaks |= set() if sparse else {min(features, MOST_LINEAR)}
        return max(taken(options, peak, classes, sparse) for peak in peaks)

    return _most(options.most_features, at_most, options)


@functools.lru_cache(256)
def most_classes(options: Options, features: int, sparse: bool = False) -> int:
    """Return how many classes a model with so many features takes in."""
    return _most(options.max_classes, lambda c: taken(options, features, c, sparse), options)


def too_much(options: Options, features: int, classes: int, sparse: bool = False) -> str:
    """Return how much a model would take, how much there is, and which options to lower."""
    what = counted(features, "feature")
    if options.classify:
        what += f" and {counted(classes, 'class', 'classes')}"
    lowered = {
        "max_classes": options.classify,
        "per_feature=False": options.per_feature,
        "imbalance=None": options.imbalance is not None,
        "features='linear'": options.features != "linear",
        "lags": options.lags,
    }
    cures = ["max_features", *(cure for cure, helps in lowered.items() if helps)]
    return (
        f"a model with {what} takes {in_words(taken(options, features, classes, sparse))}, and "
        f"max_memory is {in_words(options.max_memory)}; raise it, or lower what the model needs "
        f"({', '.join(cures)})"
    )


def check(options: Options, features: int = 0, classes: int = 0, sparse: bool = False) -> None:
    """Raise an error if a model with so many features and classes does not fit."""
    least = taken(options, features, classes, sparse)
    if least <= options.max_memory:
        return
    if not features and not classes:
        raise ValueError(
            f"max_memory must be at least {least:,} bytes, which a model takes before its first "
            f"row, but got {options.max_memory!r}."
        )
    raise ValueError(f"{too_much(options, features, classes, sparse)}.")


def in_words(size: float) -> str:
    """Return a number of bytes in a readable unit.

    >>> in_words(4_200_000_000), in_words(2**20)
    ('3.91 GiB', '1 MiB')
    """
    for unit in ("bytes", "KiB", "MiB"):
        if size < 1000:
            return f"{size:.3g} {unit}"
        size /= 1024
    return f"{size:.3g} GiB" if size < 1000 else f"{size:,.0f} GiB"


def _most(limit: int, size: Callable[[int], int], options: Options) -> int:
    """Return the largest count up to the limit that fits; memory grows with the count."""
    if size(limit) <= options.max_memory:
        return limit
    counts = range(limit)
    return max(0, bisect.bisect_right(counts, options.max_memory, key=size) - 1)
