"""The memory of a model, known before it is taken, and what fits into `max_memory`.

Counted is what grows with features and classes: the engine's state, work space and history. While a
model grows, the old state is there beside the new one. Names, words and rows that wait for their
labels have limits of their own.
"""

from collections.abc import Callable

from .._support import native
from .._support.messages import counted
from .options import MOST_LINEAR, Options


def taken(options: Options, features: int, classes: int, sparse: bool = False) -> int:
    """Return the bytes of a model with so many features and classes, if it is `sparse` already."""
    return int(options.spec(features, classes, sparse or options.sparse(features)).bytes)


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


def most_classes(options: Options, features: int, sparse: bool = False) -> int:
    """Return how many classes a model with so many features takes in."""
    return _most(options.max_classes, lambda c: taken(options, features, c, sparse), options)


def too_much(options: Options, features: int, classes: int, sparse: bool = False) -> str:
    """Return what was asked, what it would take, what there is, and what to lower."""
    what = counted(features, "feature")
    if options.classify:
        what += f" and {counted(classes, 'class', 'classes')}"
    cures = ["max_features", "max_classes"] if options.classify else ["max_features"]
    if options.per_feature:
        cures.append("per_feature=False")
    if options.imbalance is not None:
        cures.append("imbalance=None")
    if options.automatic or options.features in ("fourier", "interactions"):
        cures.append("features='linear'")
    if options.lags:
        cures.append("lags")
    return (
        f"a model with {what} takes {in_words(taken(options, features, classes, sparse))}, and "
        f"max_memory is {in_words(options.max_memory)}; raise it, or lower what the model needs "
        f"({', '.join(cures)})"
    )


def check(options: Options, features: int = 0, classes: int = 0, sparse: bool = False) -> None:
    """Raise an error if so many do not fit."""
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
    """Return bytes as people read them.

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
    low, high = 0, limit
    while high - low > 1:
        middle = (low + high) // 2
        if size(middle) <= options.max_memory:
            low = middle
        else:
            high = middle
    return low
