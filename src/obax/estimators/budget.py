"""What a model takes in memory, known before it is taken, and what fits into `max_memory`.

Counted is what grows with features and classes: the state, the kernel's room to work in and the
history, exactly as they are laid out. While a model grows, the old state is there beside the new
one. Names, words and rows that wait for their labels have limits of their own.
"""

from collections.abc import Callable

from .._support.counting import counted
from .history import MOST_POINTS
from .kernel.layout import VECTOR_END, WORK_END
from .kernel.record import HEAD
from .kernel.wide_layout import MOST_FULL, WidePlan
from .options import LARGE, Options

NUMBER = 8
"""Bytes."""


def taken(options: Options, features: int, classes: int, wide: bool = False) -> int:
    """Bytes of a model with so many features and classes. `wide`: it is one already."""
    wide = wide or options.wide(features)
    plan = options.plan(0 if wide else features, classes, wide)
    record = HEAD + MOST_POINTS * (2 + plan.trail)
    if wide:
        return NUMBER * (record + WidePlan(plan).numbers(features))
    return NUMBER * (record + int(plan.sizes[VECTOR_END] + plan.sizes[WORK_END]))


def most_features(options: Options, classes: int, wide: bool = False) -> int:
    """How many features a model with so many classes takes in. Full curvature, which a model that
    becomes wide gives up, and a wide one with many features, is to fit on the way there."""

    def at_most(features: int) -> int:
        peaks = {features}
        if not options.dense:
            peaks |= {min(features, MOST_FULL)} | ({min(features, LARGE)} if not wide else set())
        return max(taken(options, peak, classes, wide) for peak in peaks)

    return _most(options.most_features, at_most, options)


def most_classes(options: Options, features: int, wide: bool = False) -> int:
    """How many classes a model with so many features takes in."""
    return _most(options.max_classes, lambda c: taken(options, features, c, wide), options)


def too_much(options: Options, features: int, classes: int, wide: bool = False) -> str:
    """What was asked, what it would take, what there is, and what to lower."""
    what = counted(features, "feature")
    if options.classify:
        what += f" and {counted(classes, 'class', 'classes')}"
    cures = ["max_features", "max_classes"] if options.classify else ["max_features"]
    if options.per_feature:
        cures.append("per_feature=False")
    if options.imbalance is not None:
        cures.append("imbalance=None")
    if options.features != "linear":
        cures.append("features='linear'")
    if options.lags:
        cures.append("lags")
    return (
        f"a model with {what} takes {in_words(taken(options, features, classes, wide))}, and "
        f"max_memory is {in_words(options.max_memory)}; raise it, or lower what the model needs "
        f"({', '.join(cures)})"
    )


def check(options: Options, features: int = 0, classes: int = 0, wide: bool = False) -> None:
    """An error where so many do not fit."""
    least = taken(options, features, classes, wide)
    if least <= options.max_memory:
        return
    if not features and not classes:
        raise ValueError(
            f"max_memory must be at least {least:,} bytes, which a model takes before its first "
            f"row, but got {options.max_memory!r}."
        )
    raise ValueError(f"{too_much(options, features, classes, wide)}.")


def in_words(size: float) -> str:
    """Bytes as people read them.

    >>> in_words(4_200_000_000), in_words(2**20)
    ('3.91 GiB', '1 MiB')
    """
    for unit in ("bytes", "KiB", "MiB"):
        if size < 1000:
            return f"{size:.3g} {unit}"
        size /= 1024
    return f"{size:.3g} GiB" if size < 1000 else f"{size:,.0f} GiB"


def _most(limit: int, size: Callable[[int], int], options: Options) -> int:
    """The largest count up to the limit that fits; what is taken grows with the count."""
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
