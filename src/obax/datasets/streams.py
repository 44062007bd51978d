"""Streams of index batches: shuffled, imbalanced, shifting; and the rounds of loss tuning.

All batches depend on the seed and the round t alone, which counts from 1: with `start=` a stream
begins at any round, and a resumed run gets the batches of the uninterrupted one.
"""

import functools
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from .._support.checks import Count, NonNegativeInt, Positive, check, checked
from .containers import Array, Split, checked_labels, checked_proportions

# The purpose of a random draw, so that one seed gives many independent streams.
_EPOCH, _CHOICE, _KEY, _MIX, _POOL = range(1, 6)

Plan = Sequence[tuple[int, Any]]


@checked
def profile(base: Positive, classes: Count) -> Array:
    """Return the proportions base^i of classes i = 0, 1, ..., scaled to sum to 1.

    >>> profile(0.5, 3).round(3).tolist()
    [0.571, 0.286, 0.143]
    """
    return checked_proportions(base ** np.arange(classes), "base")


def imbalanced(labels: ArrayLike, wanted: ArrayLike, seed: int = 0) -> Array:
    """Return indices of random rows with the wanted numbers or proportions of the classes.

    `wanted` has an entry for each class. Integers are counts; other numbers are proportions, as
    from `profile`, and as many rows are drawn as the proportions allow.

    >>> labels = np.repeat([0, 1], [6, 6])
    >>> labels[imbalanced(labels, [3, 1])].sum(), len(imbalanced(labels, profile(0.5, 2)))
    (np.int64(1), 9)
    """
    check(seed, "seed", NonNegativeInt)
    wanted = np.asarray(wanted)
    values = checked_labels(labels, len(wanted), "labels")
    have = np.bincount(values, minlength=len(wanted))
    if np.issubdtype(wanted.dtype, np.integer):
        counts = wanted
        if (counts < 0).any():
            raise ValueError(f"wanted must be counts >= 0, but got {wanted!r}.")
    else:
        shares = checked_proportions(wanted, "wanted")
        used = shares > 0
        # The small slack keeps a product such as 5.999... from losing a row to rounding.
        counts = np.floor(shares * np.min(have[used] / shares[used]) + 1e-9).astype(np.int64)
    if len(short := np.flatnonzero(counts > have)):
        j = short[0]
        raise ValueError(
            f"wanted asks for {counts[j]} rows of class {j}, but labels has {have[j]}."
        )
    rng = np.random.default_rng([seed, _CHOICE])
    rows = [rng.permutation(np.flatnonzero(values == j))[:k] for j, k in enumerate(counts)]
    return rng.permutation(np.concatenate(rows))


@checked
def batches(
    n: Count, size: Count, seed: NonNegativeInt = 0, *, start: Count = 1
) -> Iterator[Array]:
    """Return endless batches of `size` indices of 0..n-1, shuffled again in every epoch.

    No index is dropped: where an epoch ends within a batch, the next one completes it, so that
    every index is drawn once in every n. `start` is the round to begin at.

    >>> [batch.shape for batch, _ in zip(batches(5, 2), range(3))]
    [(2,), (2,), (2,)]
    """
    if size > n:
        raise ValueError(f"size must be at most the number of rows, {n}, but got {size}.")
    deck = _Deck(np.arange(n), seed)
    return (deck.take(position, size) for position in itertools.count((start - 1) * size, size))


class _Deck:
    """An endless sequence of rows: permutation after permutation, each drawn by its number."""

    def __init__(self, rows: Array, *seed: int):
        self.rows, self.seed = rows, seed
        # Kept, because consecutive rounds read from the same one.
        self._permutation = functools.lru_cache(1)(self._shuffled)

    def take(self, position: int, count: int) -> Array:
        parts = []
        while count > 0:
            epoch, offset = divmod(position, len(self.rows))
            part = self._permutation(epoch)[offset : offset + count]
            parts.append(part)
            position, count = position + len(part), count - len(part)
        return np.concatenate(parts) if parts else self.rows[:0]

    def _shuffled(self, epoch: int) -> Array:
        return np.random.default_rng([*self.seed, _EPOCH, epoch]).permutation(self.rows)


def class_mix(
    labels: ArrayLike, proportions: ArrayLike, size: int, seed: int = 0, *, start: int = 1
) -> Iterator[Array]:
    """Return endless batches of indices whose classes have the given proportions.

    The number of rows of each class in a batch is random (multinomial); the rows are drawn from a
    shuffled pool of the class. A row is drawn again only when its class has run out, and the pool
    is then shuffled again. `start` costs about 50 microseconds for each round before it.

    >>> labels = np.repeat([0, 1], 50)
    >>> next(class_mix(labels, [3, 1], 40)).shape
    (40,)
    """
    shares = checked_proportions(proportions, "proportions")
    mix = _Mix(labels, len(shares), size, seed, start)
    mix.check(shares, "proportions")
    return (rows for rows, _ in mix.stream(lambda t: shares))


def phases(
    plan: Plan,
    labels: ArrayLike,
    size: int,
    seed: int = 0,
    *,
    classes: int | None = None,
    start: int = 1,
) -> Iterator[tuple[Array, Array]]:
    """Return a stream whose class proportions change from phase to phase; it ends with the plan.

    `plan` holds pairs (rounds, base) for proportions base^i, or (rounds, proportions). Each round
    is the indices and the current proportions; rows are drawn as in `class_mix`.

    >>> labels = np.repeat([0, 1], 50)
    >>> [p.round(2).tolist() for _, p in phases([(1, 0.5), (2, 1.0)], labels, 10)]
    [[0.67, 0.33], [0.5, 0.5], [0.5, 0.5]]
    """
    array = np.asarray(labels)
    if classes is None:
        classes = int(array.max(initial=0)) + 1
    schedule = _schedule(plan, classes)
    mix = _Mix(array, classes, size, seed, start)
    for _, shares in schedule:
        mix.check(shares, "plan")
    return mix.stream(lambda t: next((shares for end, shares in schedule if t <= end), None))


def _schedule(plan: Plan, classes: int) -> list[tuple[int, Array]]:
    """Return (last round of the phase, its proportions) for each phase."""
    if not plan:
        raise ValueError("plan must have at least one phase (rounds, base), but is empty.")
    schedule, end = [], 0
    for number, phase in enumerate(plan):
        if not isinstance(phase, tuple | list) or len(phase) != 2:
            raise ValueError(f"plan[{number}] must be a pair (rounds, base), but got {phase!r}.")
        length, base = phase
        end += check(length, f"the rounds of plan[{number}]", Count)
        name = f"plan[{number}]"
        one = np.ndim(base) == 0
        shares = profile(base, classes) if one else checked_proportions(base, name)
        if len(shares) != classes:
            raise ValueError(f"{name} must have {classes} proportions, but has {len(shares)}.")
        schedule.append((end, shares))
    return schedule


class _Mix:
    """Batches with random numbers of each class, whose rows are drawn from one deck per class."""

    def __init__(self, labels: ArrayLike, classes: int, size: int, seed: int, start: int):
        values = checked_labels(labels, classes, "labels")
        self.size, self.start = check(size, "size", Count), check(start, "start", Count)
        self.seed = check(seed, "seed", NonNegativeInt)
        if self.size > len(values):
            raise ValueError(
                f"size must be at most the number of rows, {len(values)}, but got {size}."
            )
        self.decks = [_Deck(np.flatnonzero(values == j), seed, _POOL, j) for j in range(classes)]

    def check(self, shares: Array, name: str) -> None:
        absent = [j for j, deck in enumerate(self.decks) if shares[j] > 0 and not len(deck.rows)]
        if absent:
            raise ValueError(
                f"{name} asks for class {', '.join(map(str, absent))}, but labels has none of it."
            )

    def stream(self, shares_at: Callable[[int], Array | None]) -> Iterator[tuple[Array, Array]]:
        """Return rows and shares from round `start` on, until `shares_at` returns `None`."""
        taken = np.zeros(len(self.decks), np.int64)
        t = 1
        while (shares := shares_at(t)) is not None:
            rng = np.random.default_rng([self.seed, _MIX, t])
            counts = rng.multinomial(self.size, shares)
            if t >= self.start:
                rows = [
                    deck.take(int(position), int(count))
                    for deck, position, count in zip(self.decks, taken, counts, strict=True)
                ]
                yield rng.permutation(np.concatenate(rows)), shares
            taken += counts
            t += 1


@checked
def rounds(
    data: Split,
    *,
    size: Count = 128,
    valid_size: Count | None = None,
    plan: Plan | None = None,
    seed: NonNegativeInt = 0,
    start: Count = 1,
) -> Iterator[dict[str, Any]]:
    """Return the rounds of loss tuning, each a training and a validation batch.

    A round is `{"train": (inputs, labels), "valid": (inputs, labels), "class_weights": float32 [J],
    "key": uint32 [2]}`. The weights are 1 / the proportion of each class in the validation data, or
    with a `plan` (see `phases`) in the current phase, which then holds for both batches. Without a
    plan the stream is endless. The key is for dropout.

    **Arguments:**

    - `size`, `valid_size`: rows of a training and a validation batch; the latter like the former
      by default.
    - `seed`, `start`: round t depends on the seed and t only; `start` is the round to begin at.
    """
    valid_size = size if valid_size is None else valid_size
    checked_labels(data.train_labels, data.classes, "train_labels")
    valid = checked_labels(data.valid_labels, data.classes, "valid_labels")
    seeds = [int(s) for s in np.random.SeedSequence([seed, _MIX]).generate_state(2)]
    halves = ((data.train_labels, size, seeds[0]), (valid, valid_size, seeds[1]))
    drawn: list[Iterator[tuple[Array, Array]]] = []
    if plan is None:
        here = np.bincount(valid, minlength=data.classes)
        _no_class_absent(here, "the validation data")
        for labels, rows, own in halves:
            steady = itertools.repeat(here / here.sum())
            drawn.append(zip(batches(len(labels), rows, own, start=start), steady, strict=False))
    else:
        for end, shares in _schedule(plan, data.classes):
            _no_class_absent(shares, f"the phase of the plan that ends with round {end}")
        for labels, rows, own in halves:
            drawn.append(phases(plan, labels, rows, own, classes=data.classes, start=start))
    return (
        {
            "train": (data.train_inputs[rows], data.train_labels[rows]),
            "valid": (data.valid_inputs[others], data.valid_labels[others]),
            "class_weights": (1.0 / shares).astype(np.float32),
            "key": np.random.SeedSequence([seed, _KEY, t]).generate_state(2, np.uint32),
        }
        for t, ((rows, shares), (others, _)) in enumerate(zip(*drawn, strict=True), start)
    )


def _no_class_absent(amounts: Array, where: str) -> None:
    if len(absent := np.flatnonzero(amounts == 0)):
        raise ValueError(
            f"class {', '.join(map(str, absent))} never appears in {where}: its weight, 1 / its "
            f"proportion, would be infinite. Leave the class out of the data, or add rows of it."
        )
