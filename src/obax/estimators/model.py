"""What a model is: names, classes, rejections and record around the kernel, and how it grows."""

import dataclasses
import functools
import math
import operator
import struct
import threading
import warnings
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from . import budget, forks
from .columns import Columns
from .history import Record, Rejected
from .kernel import (
    ACCEPTED,
    CENTRE,
    LOSS,
    OUTCOME,
    REACH,
    SAID,
    grown,
    kernel,
    retaught,
    trail_places,
)
from .late import Pending
from .options import Options
from .outcome import Hyperparameters, Outcome, named
from .sparse import Sparse
from .table import Features, Table
from .wide import Placed, Wide

NOT_FINITE = "learning it would have made the model NaN or Inf"


class Model:
    """All that there is to a model but how it gets its rows: see `many` and `core`."""

    _lock: threading.RLock

    def __init__(self, options: Options):
        self.options = options
        self.names: dict[Hashable, int] = {}
        self.classes: list[Hashable] = []
        self.index: dict[Hashable, int] = {}
        self.rejected = Rejected()
        self.pending = Pending(options.max_pending)
        self.columns = Columns(options.max_categories)
        self.ignored = 0
        """Values of features beyond `max_features` in rows that were learned."""
        self.rows = 0
        self.warned = self.tight = False
        budget.check(options)
        self.plan = options.plan(0, 0)
        self.vector = self.plan.start(options.starts)
        self.record = Record(self.plan.trail)
        self.wide: Wide | None = None
        """In place of the vector, once there are many features."""
        forks.lock(self)
        self.ready()

    def ready(self) -> None:
        """What follows from the rest: the kernel, its room to work in, and how a row is read."""
        self._limits: dict[Callable[..., int], tuple[tuple[int, bool], int]] = {}
        self._out = np.zeros((1, SAID + max(1, self.plan.slots)))
        self._worded = self.columns.busy
        by_class = self.options.class_weight
        self._class_weights = by_class if isinstance(by_class, Mapping) else None
        if self.wide is not None:
            self.wide.ready(self.options.settings)
            return
        self._play = kernel()
        self._work = self.plan.work(self.options.settings)
        self._row = np.zeros((1, self.plan.features + 2))
        pack = struct.Struct(f"{self.plan.features + 2}d").pack_into
        self._pack = functools.partial(pack, self._row.data, 0)
        self._values = _reader(list(self.names))

    def __getstate__(self) -> dict[str, Any]:
        derived = {"_play", "_lock", "_work", "_row", "_out", "_pack", "_values"}
        derived |= {"_worded", "_class_weights", "_limits"}
        return {name: value for name, value in self.__dict__.items() if name not in derived}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        # Arrays that come from another process may be views of a file that cannot be written.
        self.vector, self.record.data = self.vector.copy(), self.record.data.copy()
        self.plan = dataclasses.replace(self.plan)
        forks.lock(self)
        self.ready()

    # ---- the kernel ------------------------------------------------------------------------

    def _run(
        self,
        rows: np.ndarray | Placed,
        targets: np.ndarray | float = 0.0,
        weights: np.ndarray | float = 0.0,
        trace: bool = False,
    ) -> Outcome:
        """The kernel on rows in which no class is new. `rows` has room for target and weight."""
        said_end, record = self._out.shape[1], self.record.data
        out = np.empty((len(rows), said_end + trace * self.plan.trail))
        if isinstance(rows, Placed):
            assert self.wide is not None
            goals = np.empty((len(rows), 2))
            goals[:, 0], goals[:, 1] = targets, weights
            self.wide.run(record, rows, goals, out)
        else:
            rows[:, -2], rows[:, -1] = targets, weights
            self._play(self.vector, record, self._work, self.plan.sizes, rows, out)
        lost = np.flatnonzero((np.asarray(weights) > 0) & (out[:, OUTCOME] != ACCEPTED)).tolist()
        said = out[:, SAID:said_end]
        if not self.options.classify:
            said = said[:, 0]
        elif len(self.classes) < 2:
            said = np.ones((len(rows), len(self.classes)))
        x = out[:, said_end:] if trace else np.zeros((0, self.plan.trail))
        rejected = dict.fromkeys(lost, NOT_FINITE)
        return Outcome(said, out[:, LOSS], out[:, REACH], x, rejected, self.plan)

    def _reject(self, row: int, reason: str, values: Features) -> None:
        """Count and keep a rejected row; a warning, once, if nothing else comes."""
        self.rejected.add(row, reason, values)
        if not self.warned and (words := self.rejected.alarm(bool(self.record.seen))):
            self.warned = True
            warnings.warn(words, stacklevel=5)

    # ---- growth ----------------------------------------------------------------------------

    def add_classes(self, labels: Sequence[Hashable]) -> None:
        """Know these classes, in this order, before any row of them has come."""
        more = len({*labels} - self.index.keys())
        budget.check(self.options, len(self.names), len(self.classes) + more, self.wide is not None)
        for label in labels:
            if label not in self.index:
                self.index[label] = len(self.classes)
                self.classes.append(label)
        self._fit_plan()

    def _make_room(self, table: Table | Sparse) -> None:
        """Columns for features that are new, as many as there is room for."""
        if len(table.rejected) == len(table):
            return
        brought = table.brought if isinstance(table, Sparse) else table.names
        new = [name for name in brought if name not in self.names]
        for name in new[: max(0, self.most_features - len(self.names))]:
            self.names[name] = len(self.names)
        if new or (isinstance(table, Sparse) and self.wide is None):
            self._fit_plan(isinstance(table, Sparse))
        surplus = set(new) - self.names.keys()
        if surplus:
            self.ignored += table.count(surplus)
            self._tell_surplus()

    @property
    def most_features(self) -> int:
        """Features that there is room for, with the classes that there are."""
        return max(self._fitting(budget.most_features, len(self.classes)), len(self.names))

    @property
    def most_classes(self) -> int:
        """Classes that there is room for, with the features that there are."""
        return max(self._fitting(budget.most_classes, len(self.names)), len(self.classes))

    def _fitting(self, most: Callable[[Options, int, bool], int], beside: int) -> int:
        """What fits into the budget beside so many of the other; asked again when that changes."""
        now, known = (beside, self.wide is not None), self._limits.get(most)
        if known is None or known[0] != now:
            known = self._limits[most] = (now, most(self.options, *now))
        return known[1]

    def _tell_surplus(self) -> None:
        """A warning, once, if it is the budget that keeps features out."""
        if self.tight or len(self.names) >= self.options.most_features:
            return
        self.tight = True
        size = len(self.names) + 1, len(self.classes), self.wide is not None
        warnings.warn(
            f"features beyond the first {len(self.names):,} are ignored: "
            f"{budget.too_much(self.options, *size)}.",
            stacklevel=5,
        )

    def _surplus(self, classes: int) -> str:
        """Why there cannot be so many."""
        if classes > self.options.max_classes:
            return "one too many"
        return budget.too_much(self.options, len(self.names), classes, self.wide is not None)

    def _fit_plan(self, wide: bool = False) -> None:
        """A larger plan where the names or classes have outgrown this one. It has the very size
        that is needed: to copy the state costs no more than to learn a row. A `wide` one where that
        is asked for, or needed."""
        features, old = len(self.names), self.plan
        wide = wide or self.wide is not None or self.options.wide(features)
        plan = self.options.plan(0 if wide else features, len(self.classes), wide)
        if wide and self.wide is not None:
            self.wide.make_room(features)
            self._worded = self.columns.busy
        if plan == old and wide == (self.wide is not None):
            return
        starts = self.options.starts
        if not wide:
            self.vector = grown(plan, old, self.vector, starts)
        elif self.wide is None:
            self.wide = Wide.after(plan, old, self.vector, starts)
            self.wide.make_room(features)
            self.vector = np.zeros(0)
        else:
            self.wide.add_classes(plan, starts)
        self.plan = plan
        if plan.trail > old.trail:
            self.record = self.record.widened(plan.trail, trail_places(plan, old))
        self.ready()

    def take(self, options: Options, asked: Iterable[str]) -> dict[str, object]:
        """Go on with other options; of the `asked` ones those that a model which has begun cannot
        take over, with the values that they keep."""
        with self._lock:
            before, is_wide = self.options, self.wide is not None
            self.options, waiting = before.followed_by(options, asked)
            if is_wide and self.options.learn != before.learn:
                waiting["learn"] = before.learn
                self.options = dataclasses.replace(self.options, learn=before.learn)
            features = 0 if is_wide else len(self.names)
            old, self.plan = self.plan, self.options.plan(features, len(self.classes), is_wide)
            if self.plan.learned != old.learned:
                self.vector = retaught(self.plan, old, self.vector)
            self.columns.most = self.options.max_categories
            self.pending.bound(self.options.max_pending)
            self.ready()
        return waiting

    # ---- to look at ------------------------------------------------------------------------

    @property
    def centre(self) -> np.ndarray:
        """The weights that the tuned member's next prediction is made with, a line for each output,
        the intercept last."""
        with self._lock:
            if self.wide is not None:
                return self.wide.centre(len(self.names))
            # An average row, for what it leaves behind.
            self._run(np.full((1, self.plan.features + 2), np.nan))
            begin, shape = self.plan.sizes[CENTRE], (self.plan.outputs, self.plan.inputs)
            return self._work[begin : begin + math.prod(shape)].reshape(shape).copy()

    def hyperparameters(self, x: np.ndarray | None = None) -> Hyperparameters:
        """As people read them. `x`, with the members' shares behind it, defaults to now."""
        if x is None and self.wide is not None:
            x = self.wide.x
        elif x is None:
            part = self.plan.parts(self.vector)
            x = np.append(part["x"], part["shares"])
        return named(self.options, self.plan, x, self.names, self.index)


def _reader(names: list[Hashable]) -> Callable[[Features], tuple[object, ...]]:
    """The values of a row in the order of the names."""
    if len(names) > 1:
        return operator.itemgetter(*names)
    # An item getter of one name would give a value, not a tuple.
    return lambda row: tuple(row[name] for name in names)
