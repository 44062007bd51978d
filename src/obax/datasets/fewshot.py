"""Streams of few-shot tasks, for online meta-learning."""

import hashlib
import itertools
import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from .._support.checks import Count, NonNegativeInt, check, checked
from .containers import Array
from .image_sets import (
    FewShot as FewShot,
    Labelled as Labelled,
    fc100 as fc100,
    tiny_fewshot as tiny_fewshot,
)
from .miniimagenet_data import miniimagenet as miniimagenet

Task = dict[str, tuple[Array, Array]]


class TaskStream:
    """An endless stream of N-way K-shot tasks; task t depends on the seed and t only.

    A task is `{"support": (inputs, labels), "query": (inputs, labels)}`: `ways` classes drawn at
    random and numbered 0..ways-1, with `shots` images of each in the support and `queries` others
    in the query, ordered by class. Inputs are `float32` in [0, 1].

    **Arguments:**

    - `images`, `labels`: bytes `[n, ...]`, or an object that returns such an array for an array of
      indices; and an integer for each.
    - `unique`: no two tasks have the same images. No task is remembered for this: for each class,
      task numbers are mapped one-to-one to sets of shots + queries of its images, and the lowest
      class of a task takes the set of the task's number. Two tasks with the same lowest class then
      differ in its images. A class of n images allows C(n, shots + queries) tasks, and the stream
      ends with the smallest of these numbers.
    - `pool`, `every`: a drifting mix of classes. Classes are drawn from `pool` neighbours on a
      shuffled circle, which move on by one after every `every` tasks.
    - `names`: names of the classes by label, for messages.

    >>> from obax.datasets import fewshot
    >>> data = fewshot.tiny_fewshot().train
    >>> stream = fewshot.TaskStream(data.images, data.labels, ways=3, shots=2, queries=4)
    >>> inputs, labels = stream.task(1)["support"]
    >>> inputs.shape, labels.tolist()
    ((6, 8, 8, 3), [0, 0, 1, 1, 2, 2])
    """

    @checked
    def __init__(
        self,
        images: Any,
        labels: Any,
        *,
        ways: Count = 5,
        shots: Count = 5,
        queries: Count = 5,
        seed: NonNegativeInt = 0,
        unique: bool = False,
        pool: Count | None = None,
        every: Count = 1,
        names: Mapping[int, str] | None = None,
    ):
        self.ways, self.shots, self.queries = ways, shots, queries
        self.seed, self.every, self.images, self.unique = seed, every, images, unique
        values = np.asarray(labels)
        if values.shape != (len(images),) or not np.issubdtype(values.dtype, np.integer):
            raise ValueError(
                f"labels must be an integer for each of the {len(images)} images, but are "
                f"{values.dtype}{list(values.shape)}."
            )
        classes = np.unique(values)
        if self.ways > len(classes):
            raise ValueError(f"ways must be at most the {len(classes)} classes, but got {ways}.")
        self._rows = [np.flatnonzero(values == j) for j in classes]
        need = self.shots + self.queries
        for j, rows in zip(classes, self._rows, strict=True):
            if len(rows) < need:
                name = (names or {}).get(int(j), j)
                raise ValueError(
                    f"shots + queries need {need} images of each class, but class {name} has "
                    f"{len(rows)}."
                )
        self.pool = len(classes) if pool is None else pool
        if not self.ways <= self.pool <= len(classes):
            raise ValueError(
                f"pool must be from ways = {ways} to the {len(classes)} classes, but got {pool}."
            )
        self._circle = np.random.default_rng([self.seed, 0]).permutation(len(classes))
        self.length = min(math.comb(len(rows), need) for rows in self._rows) if unique else None

    def task(self, t: int) -> Task:
        """Return task t = 1, 2, ..."""
        t = check(t, "t", Count)
        if self.length is not None and t > self.length:
            raise ValueError(
                f"t must be at most {self.length}: unique=True allows no more tasks with "
                f"shots + queries = {self.shots + self.queries} images of the smallest class. Use "
                f"fewer shots and queries, or more images."
            )
        rng = np.random.default_rng([self.seed, 1, t])
        first = (t - 1) // self.every if self.pool < len(self._rows) else 0
        here = self._circle[(first + np.arange(self.pool)) % len(self._rows)]
        classes = rng.permutation(here)[: self.ways]
        rows = np.stack([self._draw(int(j), t, rng, lowest=j == classes.min()) for j in classes])
        return {
            "support": self._batch(rows[:, : self.shots]),
            "query": self._batch(rows[:, self.shots :]),
        }

    def tasks(self, start: int = 1) -> Iterator[Task]:
        """Return the tasks from number `start` on."""
        first = check(start, "start", Count)
        numbers = itertools.count(first) if self.length is None else range(first, self.length + 1)
        return (self.task(t) for t in numbers)

    def __iter__(self) -> Iterator[Task]:
        return self.tasks()

    def _draw(self, j: int, t: int, rng: np.random.Generator, *, lowest: bool) -> Array:
        rows, need = self._rows[j], self.shots + self.queries
        if self.unique and lowest:
            rank = permuted(t - 1, math.comb(len(rows), need), f"{self.seed} {j}".encode())
            rows = rows[subset(rank, len(rows), need)]
        return rng.permutation(rows)[:need]

    def _batch(self, rows: Array) -> tuple[Array, Array]:
        inputs = np.asarray(self.images[rows.reshape(-1)]).astype(np.float32) / np.float32(255)
        return inputs, np.repeat(np.arange(self.ways, dtype=np.int32), rows.shape[1])


def subset(rank: int, n: int, size: int) -> list[int]:
    """Return the subset of 0..n-1 with the given number, 0 <= rank < C(n, size).

    >>> [subset(rank, 4, 2) for rank in range(6)]
    [[1, 0], [2, 0], [2, 1], [3, 0], [3, 1], [3, 2]]
    """
    chosen = []
    largest = n - 1
    for k in range(size, 0, -1):
        while math.comb(largest, k) > rank:
            largest -= 1
        chosen.append(largest)
        rank -= math.comb(largest, k)
    return chosen


def permuted(number: int, n: int, key: bytes) -> int:
    """Return the image of a number under a keyed permutation of 0..n-1.

    It is a Feistel network on a power of 4, applied until the result is below n.

    >>> sorted(permuted(number, 10, b"key") for number in range(10))
    [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]
    """
    half = max(1, ((n - 1).bit_length() + 1) // 2)
    mask = (1 << half) - 1
    while True:
        left, right = number >> half, number & mask
        for turn in range(4):
            digest = hashlib.blake2b(b"%d %d " % (turn, right) + key).digest()
            left, right = right, left ^ (int.from_bytes(digest, "big") & mask)
        number = left << half | right
        if number < n:
            return number
