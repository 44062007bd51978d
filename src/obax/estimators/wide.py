"""The state of a wide model, and how its rows are read: see `kernel.wide`."""

import contextlib
import functools
import itertools
import operator
import struct
from collections.abc import Callable, Hashable, Mapping
from typing import Any

import numpy as np

from .kernel import Plan
from .kernel.wide_entry import wide_kernel
from .kernel.wide_growth import enough, fit_square, from_dense, widened
from .kernel.wide_layout import WidePlan
from .sparse import PLAIN, Sparse
from .table import Features, Table

UNKNOWN = itertools.repeat(-1)
Pack = Callable[..., None]


class Placed:
    """Rows where the model has their features: -1 for one that it does not know."""

    def __init__(self, begins: np.ndarray, index: np.ndarray, values: np.ndarray):
        self.begins, self.index, self.values = begins, index, values

    def __len__(self) -> int:
        return len(self.begins) - 1

    def __getitem__(self, rows: slice) -> "Placed":
        begin, end, _ = rows.indices(len(self))
        span = slice(self.begins[begin], self.begins[end])
        begins = self.begins[begin : end + 1] - self.begins[begin]
        return Placed(begins, self.index[span], self.values[span])

    def __setitem__(self, rows: list[int], value: float) -> None:
        for i in rows:
            self.values[self.begins[i] : self.begins[i + 1]] = value


class Wide:
    """Head and cells of a wide model, and the kernel that works on them."""

    def __init__(self, plan: Plan, head: np.ndarray, cells: np.ndarray, square: np.ndarray):
        self.plan, self.head, self.cells, self.square = WidePlan(plan), head, cells, square

    @classmethod
    def at_start(cls, plan: Plan, starts: Mapping[str, float], features: int) -> "Wide":
        """One that has learned nothing yet."""
        wide = cls(plan, *WidePlan(plan).start(starts), WidePlan(plan).square(features))
        wide.cells = enough(wide.cells, features)
        return wide

    @classmethod
    def after(
        cls, plan: Plan, old: Plan, vector: np.ndarray, starts: Mapping[str, float]
    ) -> "Wide":
        """One that goes on where a model with full curvature has stopped."""
        return cls(plan, *from_dense(WidePlan(plan), old, vector, starts))

    def ready(self, settings: tuple[float, ...]) -> None:
        """What follows from the rest."""
        self._play = wide_kernel()
        self._settings = self.plan.settings(settings)
        self._goal = np.zeros((1, 2))
        self._begins = np.zeros(2, np.int64)
        self._all = np.zeros(0, np.int64)
        self._values: Any = None
        self._numbers, self._places = np.zeros(64), np.zeros(64, np.int64)
        self._packers: dict[int, tuple[Pack, Pack]] = {}
        self._index, self._size, self._known = self._places, 0, True
        self._last: tuple[tuple[Hashable, ...], tuple[object, ...], int] | None = None

    def __getstate__(self) -> dict[str, Any]:
        arrays = (self.head, self.cells, self.square)
        return {"plan": self.plan.plan, "arrays": [array.copy() for array in arrays]}

    def __setstate__(self, state: dict[str, Any]) -> None:
        # Arrays that come from another process may be views of a file that cannot be written.
        self.__init__(state["plan"], *(array.copy() for array in state["arrays"]))  # type: ignore[misc]

    def make_room(self, features: int) -> None:
        """For so many features."""
        self.cells = enough(self.cells, features)
        self.square = fit_square(self.plan, self.head, self.cells, self.square, features)

    def add_classes(self, plan: Plan, starts: Mapping[str, float]) -> None:
        """A plan with more classes."""
        new, old = WidePlan(plan), self.plan
        self.head, self.cells = widened(new, old, self.head, self.cells, starts)
        self.plan = new

    def place(self, table: Table | Sparse, names: Mapping[Hashable, int]) -> Placed:
        """Rows where the model has their features."""
        if isinstance(table, Table):
            index = np.array([names.get(name, -1) for name in table.names], np.int64)
            begins = np.arange(len(table) + 1) * len(index)
            return Placed(begins, np.tile(index, len(table)), table.values.flatten())
        return Placed(table.begins, table.placed(names), table.values)

    def run(self, record: np.ndarray, rows: Placed, goals: np.ndarray, out: np.ndarray) -> None:
        """Play rows: see `kernel.wide_entry`."""
        fixed = (self.head, record, self.cells, self.square, self.plan.sizes, self._settings)
        self._play(*fixed, rows.begins, rows.index, rows.values, goals, out)

    def read(self, row: Features, names: dict[Hashable, int]) -> bool | None:
        """Have a row that is a dict of plain numbers ready for `run_one`; whether all its names are
        known, and `None` if there is anything else in it. The row that was read last, as is one
        that was predicted before it is learned, is not read again."""
        keys, told, size = tuple(row), tuple(row.values()), len(row)
        try:
            if (keys, told, len(names)) == self._last:
                return self._known
        except (TypeError, ValueError):  # Values that cannot be compared.
            return None
        self._last, self._known, self._size = None, True, size
        values, index = told, None
        if size == len(names) > 1:
            if len(self._all) != size:
                self._all, self._values = np.arange(size), operator.itemgetter(*names)
            with contextlib.suppress(KeyError):
                values, index = self._values(row), self._all
        if not PLAIN.issuperset(map(type, values)):
            return None
        pack_values, pack_places = self._packers.get(size) or self._packer(size)
        try:
            pack_values(*values)
        except (struct.error, OverflowError):  # An integer beyond all floats.
            return None
        if index is None:
            index = self._places
            try:
                pack_places(*map(names.__getitem__, keys))
            except KeyError:
                pack_places(*map(names.get, keys, UNKNOWN))
                self._known = False
        self._index = index
        self._last = keys, told, len(names)
        return self._known

    def _packer(self, size: int) -> tuple[Pack, Pack]:
        """What writes so many values and places where the kernel reads them."""
        if size > len(self._numbers):
            self._numbers, self._places = np.zeros(2 * size), np.zeros(2 * size, np.int64)
            self._packers.clear()
        values, places = (struct.Struct(f"{size}{code}").pack_into for code in "dq")
        self._packers[size] = found = (
            functools.partial(values, self._numbers.data, 0),
            functools.partial(places, self._places.data, 0),
        )
        return found

    def run_one(self, record: np.ndarray, target: float, weight: float, out: np.ndarray) -> None:
        """Play the row that was read last."""
        self._begins[1] = self._size
        self._goal[0, 0], self._goal[0, 1] = target, weight
        fixed = (self.head, record, self.cells, self.square, self.plan.sizes, self._settings)
        self._play(*fixed, self._begins, self._index, self._numbers, self._goal, out)

    @property
    def x(self) -> np.ndarray:
        """Of the tuned member, with the shares of all behind it."""
        part = self.plan.parts(self.head, self.cells)
        return np.append(part["0.x"], part["shares"])

    def centre(self, features: int) -> np.ndarray:
        """The weights that the tuned member's next prediction is made with, a line for each output,
        the intercept last."""
        part = self.plan.parts(self.head, self.cells[: features + 1])
        penalty, inertia, memory = np.exp(part["0.x"][:3])
        stiff = inertia + memory / (1 + memory) * part["0.curvature"]
        kept = stiff / (stiff + penalty)
        kept[0] = 1.0
        return np.roll(kept[:, None] * part["0.weights"], -1, axis=0).T
