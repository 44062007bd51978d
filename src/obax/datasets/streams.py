"""Streams of index batches: shuffled, imbalanced, shifting; and the rounds of loss tuning.

Everything is a function of the seed and the round t, which counts from 1: `start=` takes a stream
up at any round, and a resumed run sees the batches that the uninterrupted one would have seen.
"""

import functools
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from . import argument_checks
from .containers import Array, Split

# What a random draw is for: one seed, many independent streams.
_EPOCH, _CHOICE, _KEY, _MIX, _POOL = range(1, 6)

Plan = Sequence[tuple[int, Any]]


def profile(base: float, classes: int) -> Array:
    """The proportions base^i of classes i = 0, 1, ..., scaled to sum to 1.

    >>> profile(0.5, 3).round(3).tolist()
    [0.571, 0.286, 0.143]
    """
    if isinstance(base, bool) or not (np.isfinite(base) and base > 0):
        raise ValueError(f"base must be a number > 0, but got {base!r}.")
    return argument_checks.proportions(
        base ** np.arange(argument_checks.at_least(classes, 1, "classes")), "base"
    )


def imbalanced(labels: ArrayLike, wanted: ArrayLike, seed: int = 0) -> Array:
    """Indices of a random part of the data with the wanted numbers or proportions of the classes.

    `wanted` has an entry for each class. Integers are counts; anything else are proportions, such
    as `profile` gives, and then as many rows are taken as the proportions allow.

    >>> labels = np.repeat([0, 1], [6, 6])
    >>> labels[imbalanced(labels, [3, 1])].sum(), len(imbalanced(labels, profile(0.5, 2)))
    (np.int64(1), 9)
    """
    argument_checks.at_least(seed, 0, "seed")
    wanted = np.asarray(wanted)
    values = argument_checks.labels(labels, len(wanted), "labels")
    have = np.bincount(values, minlength=len(wanted))
    if np.issubdtype(wanted.dtype, np.integer):
        counts = wanted
        if (counts < 0).any():
            raise ValueError(f"wanted must be counts >= 0, but got {wanted!r}.")
    else:
        shares = argument_checks.proportions(wanted, "wanted")
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


def batches(n: int, size: int, seed: int = 0, *, start: int = 1) -> Iterator[Array]:
    """Endless batches of `size` indices of 0..n-1, shuffled anew in every epoch.

    None is dropped: where an epoch ends within a batch, the next one fills it up, so every index
    comes once in every n. `start` is the round to begin at.

    >>> [batch.shape for batch, _ in zip(batches(5, 2), range(3))]
    [(2,), (2,), (2,)]
    """
    n, size = argument_checks.at_least(n, 1, "n"), argument_checks.at_least(size, 1, "size")
    argument_checks.at_least(seed, 0, "seed")
    if size > n:
        raise ValueError(f"size must be at most the number of rows, {n}, but got {size}.")
    first, deck = argument_checks.at_least(start, 1, "start"), _Deck(np.arange(n), seed)
    return (deck.take(position, size) for position in itertools.count((first - 1) * size, size))


class _Deck:
    """An endless sequence of rows: one permutation after the other, each known by its number."""

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
    """Endless batches of indices whose classes come with the given proportions.

    How many of a batch are of each class is drawn at random (multinomial), which rows they are
    comes from a shuffled pool of the class: a row comes again only when its class has run out, and
    the pool is then shuffled anew. Finding the place of `start` costs about 50 microseconds for
    each round before it.

    >>> labels = np.repeat([0, 1], 50)
    >>> next(class_mix(labels, [3, 1], 40)).shape
    (40,)
    """
    shares = argument_checks.proportions(proportions, "proportions")
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
    """A stream whose class proportions change from phase to phase, and that ends with the plan.

    `plan` holds pairs (rounds, base) for proportions base^i, or (rounds, proportions). Each round
    gives the indices and the proportions now in force; rows are drawn as in `class_mix`.

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
    """(last round of the phase, its proportions) for each phase."""
    if not plan:
        raise ValueError("plan must have at least one phase (rounds, base), but is empty.")
    schedule, end = [], 0
    for number, phase in enumerate(plan):
        if not isinstance(phase, tuple | list) or len(phase) != 2:
            raise ValueError(f"plan[{number}] must be a pair (rounds, base), but got {phase!r}.")
        length, base = phase
        end += argument_checks.at_least(length, 1, f"the rounds of plan[{number}]")
        name = f"plan[{number}]"
        one = np.ndim(base) == 0
        shares = profile(base, classes) if one else argument_checks.proportions(base, name)
        if len(shares) != classes:
            raise ValueError(f"{name} must have {classes} proportions, but has {len(shares)}.")
        schedule.append((end, shares))
    return schedule


class _Mix:
    """Batches whose classes are drawn, and whose rows come from one deck for each class."""

    def __init__(self, labels: ArrayLike, classes: int, size: int, seed: int, start: int):
        values = argument_checks.labels(labels, classes, "labels")
        self.size = argument_checks.at_least(size, 1, "size")
        self.seed = argument_checks.at_least(seed, 0, "seed")
        self.start = argument_checks.at_least(start, 1, "start")
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
        """Rows and shares from round `start` on, until there are no shares."""
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


def rounds(
    data: Split,
    *,
    size: int = 128,
    valid_size: int | None = None,
    plan: Plan | None = None,
    seed: int = 0,
    start: int = 1,
) -> Iterator[dict[str, Any]]:
    """The rounds of loss tuning, each a training and a validation batch.

    A round is `{"train": (inputs, labels), "valid": (inputs, labels), "class_weights": float32 [J],
    "key": uint32 [2]}`. The weights are 1 / the proportion of each class in the validation data, or
    with a `plan` (see `phases`) in the phase now in force, which then governs both batches. Without
    a plan the stream is endless. The key is for dropout.

    **Arguments:**

    - `size`, `valid_size`: rows of a training and a validation batch; the latter like the former
      by default.
    - `seed`, `start`: round t depends on the seed and t only; `start` is the round to begin at.
    """
    valid_size = size if valid_size is None else valid_size
    start = argument_checks.at_least(start, 1, "start")
    argument_checks.at_least(seed, 0, "seed")
    argument_checks.labels(data.train_labels, data.classes, "train_labels")
    valid = argument_checks.labels(data.valid_labels, data.classes, "valid_labels")
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
