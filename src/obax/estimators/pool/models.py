"""Where the models of some keys are: in slots of stacks, or, with those that were needed more
recently in their place, in a file."""

import threading
from typing import NamedTuple

import numpy as np

from .. import forks
from ..kernel.layout import VECTOR_END, X
from ..kernel.record import SEEN, TOTAL
from ..options import Options
from .cold import Cold, Place
from .stack import Stack, longer, refitted

KEY = np.dtype(
    [
        ("slot", np.int64),  # -1 for a model that is not in memory
        ("size", np.int64),  # of its stack: classes, two at least, 0 for regression
        ("known", np.int64),  # classes
        ("given", np.int64),  # rows
        ("rejected", np.int64),
        ("used", np.int64),  # the clock when it was last needed
        ("seen", np.float64),  # rows learned
        ("total", np.float64),  # of their losses
        ("penalty", np.float64),  # logarithms; of one penalty for each feature, the mean
        ("inertia", np.float64),
        ("memory", np.float64),
    ]
)
TUNED = ("penalty", "inertia", "memory")


class State(NamedTuple):
    """A model by itself."""

    vector: np.ndarray
    notes: np.ndarray
    size: int
    features: int


class Models:
    """Keys are counted from 0 here; the pool knows their names. What `table` says of a key is in
    memory wherever its model is."""

    _lock: threading.RLock

    def __init__(self, options: Options, limit: int | None = None, cold: Cold | None = None):
        self.options, self.limit, self._cold = options, limit, cold
        self.features, self.count, self.warm = 0, 0, 0
        self.table = np.zeros(0, KEY)
        self.order = np.zeros((0, 0), np.int16)
        """By key and its own number of a class, the pool's; `codes` is the other way round."""
        self.codes = np.zeros((0, 0), np.int16)
        self._stacks: dict[int, Stack] = {}
        self._places: dict[int, Place] = {}
        self._clock = 0
        forks.lock(self)

    def add(self, count: int) -> int:
        """Know so many keys more; the number of the first."""
        with self._lock:
            old, first = len(self.table), self.count
            self.count += count
            if self.count > old:
                room = max(16, 1 << (self.count - 1).bit_length())
                self.table, self.order = longer(self.table, room), longer(self.order, room)
                self.codes = longer(self.codes, room)
                self.table["slot"][old:] = self.codes[old:] = -1
            return first

    def state(self, key: int) -> State | None:
        """A copy of a model, which stays where it is; `None` before its first row."""
        with self._lock:
            size, slot = self.table["size"][key].item(), self.table["slot"][key]
            if key in self._places:
                return self._read(self._places[key])
            if slot < 0:
                return None
            stack = self._stacks[size]
            return State(
                stack.vectors[slot].copy(), stack.notes[slot].copy(), size, stack.plan.features
            )

    def fitted(self, key: int) -> State | None:
        """The same with as many features as there are now."""
        state = self.state(key)
        if state is None or state.features == self.features:
            return state
        plan, old = (self.options.plan(f, state.size) for f in (self.features, state.features))
        lines = refitted(plan, old, state.vector, state.notes, self.options.starts)
        return State(*lines, state.size, self.features)

    def restore(self, columns: dict[str, np.ndarray], order: np.ndarray) -> None:
        """What is known of all keys beside their models."""
        for name, column in columns.items():
            self.table[name][: self.count] = column
        self._clock = int(columns["used"].max(initial=0)) + 1
        self.order[: self.count, : order.shape[1]] = order
        for key, known in enumerate(columns["known"].tolist()):
            self.codes[key, order[key, :known]] = np.arange(known)

    def put(self, key: int, state: State) -> None:
        """A model from elsewhere, for a key that has none."""
        with self._lock:
            self._warm(key, state)
            self._note(np.array([key]))  # Its last use so far; `restore` knows better.
            if self.limit is not None and self.warm > self.limit:
                self._evict(1, np.array([key]))

    def fit(self, features: int, classes: int) -> None:
        """Room for so many features and classes of the pool."""
        with self._lock:
            missing = max(1, classes) - self.codes.shape[1]
            if missing > 0:
                wider = ((0, 0), (0, missing))
                self.codes = np.pad(self.codes, wider, constant_values=-1)
                self.order = np.pad(self.order, wider)
            if features <= self.features:
                return
            before, self.features, self._stacks, self.warm = self._stacks, features, {}, 0
            table = self.table[: self.count]
            for size, old in before.items():
                for key in np.flatnonzero((table["slot"] >= 0) & (table["size"] == size)).tolist():
                    slot = table["slot"][key]
                    lines = old.vectors[slot], old.notes[slot]
                    self._warm(key, State(*lines, size, old.plan.features))

    def bytes_per_key(self) -> int:
        """Of a model in memory, the largest of them, and of what is known of its key."""
        sizes = [stack.bytes_per_key for stack in self._stacks.values()]
        return max(sizes, default=0) + KEY.itemsize + 4 * self.codes.shape[1]

    def _stack(self, size: int) -> Stack:
        if size not in self._stacks:
            self._stacks[size] = Stack(self.options, self.features, size)
        return self._stacks[size]

    def _warm(self, key: int, state: State) -> None:
        """Into a slot."""
        stack = self._stack(state.size)
        old = self.options.plan(state.features, state.size)
        vector, notes = state.vector, state.notes
        if old != stack.plan:
            vector, notes = refitted(stack.plan, old, vector, notes, self.options.starts)
        (slot,) = stack.take(1)
        stack.vectors[slot], stack.notes[slot] = vector, notes
        self.table["slot"][key], self.table["size"][key] = slot, state.size
        self.warm += 1

    def _bring(self, keys: np.ndarray, starts: dict[str, float]) -> None:
        """Have the models of these keys in memory; new ones begin at `starts`."""
        absent = keys[self.table["slot"][keys] < 0]
        if not len(absent):
            return
        if self.limit is not None:
            self._evict(self.warm + len(absent) - self.limit, keys)
        asleep = [key in self._places for key in absent.tolist()]
        for key in absent[asleep].tolist():
            place = self._places.pop(key)
            self._warm(key, self._read(place))
            assert self._cold is not None
            self._cold.free(place)
        new = absent[~np.array(asleep)]
        size = 2 if self.options.classify else 0
        stack = self._stack(size)
        slots = stack.take(len(new))
        stack.begin(slots, starts)
        self.table["slot"][new], self.table["size"][new] = slots, size
        self.warm += len(new)

    def _evict(self, count: int, needed: np.ndarray) -> None:
        """Models that were not needed for the longest time, but not the `needed` ones, to disk."""
        if count <= 0:
            return
        assert self._cold is not None
        table = self.table[: self.count]
        there = table["slot"] >= 0
        there[needed] = False
        keys = np.flatnonzero(there)
        oldest = keys[np.argsort(table["used"][keys], kind="stable")[:count]]
        for key in oldest.tolist():
            size, slot = table["size"][key].item(), table["slot"][key]
            stack = self._stacks[size]
            state = np.append(stack.vectors[slot], stack.notes[slot])
            self._places[key] = self._cold.put(state, self.features, size)
            stack.give(table["slot"][[key]])
            table["slot"][key] = -1
        self.warm -= len(oldest)

    def _read(self, place: Place) -> State:
        assert self._cold is not None
        numbers = self._cold.get(place)
        cut = int(self.options.plan(place.features, place.classes).sizes[VECTOR_END])
        return State(numbers[:cut], numbers[cut:], place.classes, place.features)

    def _move(self, keys: np.ndarray, size: int) -> None:
        """Models that have met one more class into the stack for so many."""
        for key in keys.tolist():
            slots = self.table["slot"][[key]]
            old = self._stacks[self.table["size"][key].item()]
            lines = old.vectors[slots[0]], old.notes[slots[0]]
            plan = self._stack(size).plan
            lines = refitted(plan, old.plan, *lines, self.options.starts)
            self._warm(key, State(*lines, size, self.features))
            old.give(slots)
            self.warm -= 1

    def _note(self, keys: np.ndarray) -> None:
        """What is to be known of keys wherever their models are; these, in the order in which they
        were needed, are in memory now."""
        self.table["used"][keys] = self._clock + np.arange(len(keys))
        self._clock += len(keys)
        keys = np.unique(keys)
        sizes = self.table["size"][keys]
        for size in np.unique(sizes).tolist():
            some, stack = keys[sizes == size], self._stacks[size]
            slots, x = self.table["slot"][some], stack.plan.sizes[X]
            self.table["seen"][some] = stack.notes[slots, SEEN]
            self.table["total"][some] = stack.notes[slots, TOTAL]
            for name in TUNED:
                begin, end = (x + at for at in stack.plan.spans[name])
                self.table[name][some] = stack.vectors[slots, begin:end].mean(axis=1)
