"""States of one size side by side: what a row of a key needs is one line of each array."""

import numpy as np

from ..kernel import Plan, grown, trail_places
from ..kernel.record import HEAD, LAST, POINTS, RING, STRIDE
from ..options import Options
from .entry import pool_kernel

NOTED = 32
"""Points of the history of a key. A model on its own has 1,024, which for ten thousand keys would
be a gigabyte."""
LEAST = 16


class Stack:
    """The models of all keys that know equally many classes."""

    def __init__(self, options: Options, features: int, classes: int):
        self.plan = options.plan(features, classes)
        self.vectors = np.zeros((0, len(self.plan.start({}))))
        self.notes = np.zeros((0, RING + NOTED * (2 + self.plan.trail)))
        self._free: list[int] = []
        self._play = pool_kernel()
        self._work = self.plan.work(options.settings)
        self._record = np.zeros(HEAD + NOTED * (2 + self.plan.trail))
        self._record[POINTS] = NOTED

    def take(self, count: int) -> np.ndarray:
        """Slots for so many more models; where there are too few, there will be twice as many."""
        before = len(self.vectors)
        if len(self._free) < count:
            room = max(LEAST, before)
            while room < before - len(self._free) + count:
                room *= 2
            self.vectors, self.notes = longer(self.vectors, room), longer(self.notes, room)
            self._free += range(room - 1, before - 1, -1)
        return np.array([self._free.pop() for _ in range(count)], np.int64)

    def give(self, slots: np.ndarray) -> None:
        """Slots that nobody needs any more."""
        self._free += slots.tolist()

    def begin(self, slots: np.ndarray, starts: dict[str, float]) -> None:
        """Models that have learned nothing yet."""
        self.vectors[slots] = self.plan.start(starts)
        self.notes[slots] = 0.0
        self.notes[slots, POINTS], self.notes[slots, STRIDE] = NOTED, 1.0
        self.notes[slots, LAST] = np.nan

    def play(self, slots: np.ndarray, rows: np.ndarray, out: np.ndarray) -> None:
        """Row i, with its target and weight, by the model in slot i; those of one slot in their
        order, and together, while the state is at hand."""
        order = np.argsort(slots, kind="stable")
        self._play(
            self.vectors, self.notes, self._record, self._work, self.plan.sizes, slots, order,
            rows, out,
        )  # fmt: skip

    @property
    def bytes_per_key(self) -> int:
        """Of the state and the notes of a model."""
        return 8 * (self.vectors.shape[1] + self.notes.shape[1])


def refitted(
    plan: Plan, old: Plan, vector: np.ndarray, notes: np.ndarray, starts: dict[str, float]
) -> tuple[np.ndarray, np.ndarray]:
    """State and notes of a model that gets more features or classes."""
    vector = grown(plan, old, vector, starts)
    if plan.trail == old.trail:
        return vector, notes
    x = notes[RING + 2 * NOTED :].reshape(NOTED, old.trail)
    wide = np.full((NOTED, plan.trail), np.nan)
    wide[:, trail_places(plan, old)] = x
    return vector, np.append(notes[: RING + 2 * NOTED], wide.ravel())


def longer(array: np.ndarray, room: int) -> np.ndarray:
    """With zeros behind it."""
    found = np.zeros((room, *array.shape[1:]), array.dtype)
    found[: len(array)] = array
    return found
