"""The model behind both faces: names, classes, growth, rejections and record, around the kernel."""

import dataclasses
import functools
import itertools
import math
import operator
import struct
import threading
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import numpy as np

from .history import Record, Rejected
from .kernel import (
    ABSURD,
    ACCEPTED,
    CENTRE,
    LOSS,
    OUTCOME,
    REJECTED,
    SAID,
    grown,
    kernel,
    trail_places,
)
from .options import Options
from .outcome import Hyperparameters, Outcome, joined, named
from .table import Features, Rows, Table, tables
from .targets import coded

NOT_FINITE = "learning it would have made the model NaN or Inf"
PLAIN = frozenset({float, int, bool, np.float64, np.float32, np.int64})
"""Types of values that are numbers without a second look."""
MISSING = itertools.repeat(float("nan"))


class Core:
    """A model that learns from rows and keeps its hyperparameters in tune."""

    def __init__(self, options: Options):
        self.options = options
        self.names: dict[Hashable, int] = {}
        self.classes: list[Hashable] = []
        self.index: dict[Hashable, int] = {}
        self.rejected = Rejected()
        self.rows = 0
        self.plan = options.plan(0, 0)
        self.vector = self.plan.start(options.starts)
        self.record = Record(self.plan.trail)
        self.ready()

    def ready(self) -> None:
        """What follows from the rest: the kernel, its room to work in, and how a row is read."""
        self._play = kernel()
        self._lock = threading.RLock()
        self._work = self.plan.work(self.options.settings)
        self._row = np.zeros((1, self.plan.features + 2))
        self._out = np.zeros((1, SAID + max(1, self.plan.slots)))
        pack = struct.Struct(f"{self.plan.features + 2}d").pack_into
        self._pack = functools.partial(pack, self._row.data, 0)
        self._values = _reader(list(self.names))

    def __getstate__(self) -> dict[str, Any]:
        derived = ("_play", "_lock", "_work", "_row", "_out", "_pack", "_values")
        return {name: value for name, value in self.__dict__.items() if name not in derived}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        # Arrays that come from another process may be views of a file that cannot be written.
        self.vector, self.record.data = self.vector.copy(), self.record.data.copy()
        self.plan = dataclasses.replace(self.plan)
        self.ready()

    # ---- one row ---------------------------------------------------------------------------

    def learn_one(self, row: Features, target: object) -> None:
        """Test on a row and train on it: `play` for one row, without a table where that is not
        needed, as for the rows of any stream that has settled."""
        with self._lock:
            value = self._known_target(target)
            if value is not None and self._played(row, value, 1.0):
                outcome = self._out[0, OUTCOME]
                if outcome != ABSURD:
                    self.rows += 1
                    if outcome == REJECTED:
                        shown = next(tables(row)).row(0)
                        self.rejected.add(self.rows, NOT_FINITE, shown)
                    return
            self.play(row, [target])

    def predict_one(self, row: Features) -> list[float]:
        """The prediction of a row, or the probability of each known class."""
        with self._lock:
            if not self._played(row, 0.0, 0.0):
                return np.atleast_1d(self.predict(row)[0]).tolist()
            found: list[float] = self._out[0].tolist()[SAID:]
        if self.options.classify and len(self.classes) < 2:
            return [1.0] * len(self.classes)
        return found

    def _known_target(self, target: object) -> float | None:
        """As the kernel has it; `None` for a class that is new and for what needs a second look."""
        if not self.options.classify:
            try:
                return float(target) if type(target) in PLAIN else None  # type: ignore[arg-type]
            except OverflowError:
                return None
        try:
            return self.index.get(target)
        except TypeError:
            return None

    def _played(self, row: Features, target: float, teach: float) -> bool:
        """Play a row if it is a dict of known names and plain numbers; whether it is."""
        if type(row) is not dict:
            return False
        try:
            if len(row) == len(self.names):
                values = self._values(row)
            elif row.keys() <= self.names.keys():
                values = tuple(map(row.get, self.names, MISSING))
            else:
                return False
            if not PLAIN.issuperset(map(type, values)):
                return False
            self._pack(*values, target, teach)
        except (KeyError, struct.error):  # A name that is not there; an integer beyond all floats.
            return False
        self._play(self.vector, self.record.data, self._work, self.plan.sizes, self._row, self._out)
        return True

    # ---- many rows -------------------------------------------------------------------------

    def play(
        self,
        rows: Rows,
        targets: Sequence[object] | np.ndarray | None,
        *,
        unlabelled: str = "reject",
        trace: bool = False,
    ) -> Outcome:
        """Test on every row, then train on it. Without `targets`, or where one is missing and
        `unlabelled` is `"predict"`, only test. With `trace`, note x and the
        members' shares after each row."""
        parts = list(tables(rows))
        total = sum(len(table) for table in parts)
        if targets is not None and len(targets) != total:
            raise ValueError(
                f"targets must be as many as rows, {total}, but there are {len(targets)}."
            )
        with self._lock:
            played: list[Outcome] = []
            begin = 0
            for table in parts:
                theirs = None if targets is None else targets[begin : begin + len(table)]
                played.append(self._play_table(table, theirs, unlabelled, trace))
                begin += len(table)
            return joined(played, self.plan, self._known)

    def predict(self, rows: Rows) -> np.ndarray:
        """Predictions as in `Outcome`, for rows that are not learned. Values that would have a row
        rejected count as missing."""
        with self._lock:
            found = [self._run(self._placed(table)).predictions for table in tables(rows)]
        width = (len(self.classes),) if self.options.classify else ()
        return np.concatenate(found) if found else np.zeros((0, *width))

    def _play_table(
        self,
        table: Table,
        targets: Sequence[object] | np.ndarray | None,
        unlabelled: str,
        trace: bool,
    ) -> Outcome:
        """A table, in stretches between which classes are added."""
        size = len(table)
        rejected = dict(table.rejected)
        if not self._make_room(table):
            most = self.options.max_features
            rejected = dict.fromkeys(range(size), f"more than max_features = {most} features")
        goals = coded(self.options, targets, size, rejected, self.index, unlabelled)
        parts = []
        rows = self._placed(table)
        rows[list(rejected)] = np.nan
        for begin, end, label in goals.stretches(size):
            said = None
            if label is not None:
                # That the class exists is news of the very row that is to be predicted.
                said = self._run(rows[begin : begin + 1]).predictions[0]
                self.add_classes([label[0]])
            part = self._run(
                rows[begin:end], goals.values[begin:end], goals.teach[begin:end], trace
            )
            if said is not None:
                part.predictions[0] = 0
                part.predictions[0, : len(said)] = said
            rejected |= {begin + i: reason for i, reason in part.rejected.items()}
            parts.append(part)
        for i in sorted(rejected):
            self.rejected.add(self.rows + i + 1, rejected[i], table.row(i))
        self.rows += size
        whole = joined(parts, self.plan, self._known)
        whole.rejected = rejected
        return whole

    def _run(
        self,
        rows: np.ndarray,
        targets: np.ndarray | float = 0.0,
        teach: np.ndarray | bool = False,
        trace: bool = False,
    ) -> Outcome:
        """The kernel on rows in which no class is new. `rows` has room for target and `teach`."""
        rows[:, -2], rows[:, -1] = targets, teach
        said_end = self._out.shape[1]
        out = np.empty((len(rows), said_end + trace * self.plan.trail))
        self._play(self.vector, self.record.data, self._work, self.plan.sizes, rows, out)
        lost = np.flatnonzero(teach & (out[:, OUTCOME] != ACCEPTED)).tolist()
        said = out[:, SAID:said_end]
        if not self.options.classify:
            said = said[:, 0]
        elif len(self.classes) < 2:
            said = np.ones((len(rows), len(self.classes)))
        x = out[:, said_end:] if trace else np.zeros((0, self.plan.trail))
        return Outcome(said, out[:, LOSS], x, dict.fromkeys(lost, NOT_FINITE), self.plan)

    @property
    def _known(self) -> int | None:
        return len(self.classes) if self.options.classify else None

    def _placed(self, table: Table) -> np.ndarray:
        """The values where the model has them, NaN for what it does not know or does not get; with
        room for target and `teach`."""
        if table.names == list(self.names):
            wide = np.empty((len(table), self.plan.features + 2))
            wide[:, :-2] = table.values
            return wide
        wide = np.full((len(table), self.plan.features + 2), np.nan)
        for j, name in enumerate(table.names):
            if name in self.names:
                wide[:, self.names[name]] = table.values[:, j]
        return wide

    # ---- growth ----------------------------------------------------------------------------

    def add_classes(self, labels: Sequence[Hashable]) -> None:
        """Know these classes, in this order, before any row of them has come."""
        for label in labels:
            if label not in self.index:
                self.index[label] = len(self.classes)
                self.classes.append(label)
        self._fit_plan()

    def _make_room(self, table: Table) -> bool:
        """Columns for features that are new; whether there is room."""
        if len(table.rejected) == len(table):
            return True
        new = [name for name in table.names if name not in self.names]
        if len(self.names) + len(new) > self.options.max_features:
            return False
        for name in new:
            self.names[name] = len(self.names)
        if new:
            self._fit_plan()
        return True

    def _fit_plan(self) -> None:
        """A larger plan where the names or classes have outgrown this one. It has the very size
        that is needed: to copy the state costs no more than to learn a row."""
        old, plan = self.plan, self.options.plan(len(self.names), len(self.classes))
        if plan == old:
            return
        self.vector = grown(plan, old, self.vector, self.options.starts)
        self.plan = plan
        if plan.width > old.width:
            self.record = self.record.widened(plan.trail, trail_places(plan, old))
        self.ready()

    # ---- to look at ------------------------------------------------------------------------

    @property
    def centre(self) -> np.ndarray:
        """The weights that the tuned member's next prediction is made with, a line for each output,
        the intercept last."""
        with self._lock:
            # An average row, for what it leaves behind.
            self._run(np.full((1, self.plan.features + 2), np.nan))
            begin, shape = self.plan.sizes[CENTRE], (self.plan.outputs, self.plan.inputs)
            return self._work[begin : begin + math.prod(shape)].reshape(shape).copy()

    def hyperparameters(self, x: np.ndarray | None = None) -> Hyperparameters:
        """As people read them. `x`, with the members' shares behind it, defaults to now."""
        if x is None:
            part = self.plan.parts(self.vector)
            x = np.append(part["x"], part["shares"])
        return named(self.options, self.plan, x, self.names, self.index)


def _reader(names: list[Hashable]) -> Callable[[Features], tuple[object, ...]]:
    """The values of a row in the order of the names."""
    if len(names) > 1:
        return operator.itemgetter(*names)
    # An item getter of one name would give a value, not a tuple.
    return lambda row: tuple(row[name] for name in names)
