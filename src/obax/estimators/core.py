"""The model behind both faces: names, classes, growth, rejections and record, around the kernel."""

import dataclasses
import functools
import itertools
import math
import operator
import struct
import threading
import warnings
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from . import forks
from .columns import Columns
from .history import Record, Rejected
from .kernel import (
    ABSURD,
    ACCEPTED,
    CENTRE,
    LOSS,
    MOST_FULL,
    OUTCOME,
    REACH,
    REJECTED,
    SAID,
    grown,
    kernel,
    retaught,
    trail_places,
)
from .late import Pending
from .options import Options
from .outcome import Hyperparameters, Outcome, joined, named
from .sparse import PLAIN, Sparse, parts_of
from .table import LARGEST, Features, Rows, Table, order_of, tables
from .targets import coded
from .weights import of_classes
from .wide import Placed, Wide

NOT_FINITE = "learning it would have made the model NaN or Inf"
PATIENCE = 100
"""So many rows are rejected, and none learned, before there is a warning."""
MISSING = itertools.repeat(float("nan"))


class Core:
    """A model that learns from rows and keeps its hyperparameters in tune."""

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
        self.warned = False
        self.plan = options.plan(0, 0)
        self.vector = self.plan.start(options.starts)
        self.record = Record(self.plan.trail)
        self.wide: Wide | None = None
        """In place of the vector, once there are many features."""
        forks.lock(self)
        self.ready()

    def ready(self) -> None:
        """What follows from the rest: the kernel, its room to work in, and how a row is read."""
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
        derived |= {"_worded", "_class_weights"}
        return {name: value for name, value in self.__dict__.items() if name not in derived}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        # Arrays that come from another process may be views of a file that cannot be written.
        self.vector, self.record.data = self.vector.copy(), self.record.data.copy()
        self.plan = dataclasses.replace(self.plan)
        forks.lock(self)
        self.ready()

    # ---- one row ---------------------------------------------------------------------------

    def learn_one(self, row: Features, target: object, weight: float = 1.0) -> None:
        """Test on a row and train on it: `play` for one row, without a table where that is not
        needed, as for the rows of any stream that has settled."""
        with self._lock:
            value = self._known_target(target)
            by = weight
            if self._class_weights is not None and value is not None:
                by *= self._class_weights.get(target, 1.0)
            if value is not None and by > 0.0 and self._played(row, value, by):
                outcome = self._out[0, OUTCOME]
                if outcome != ABSURD:
                    self.rows += 1
                    if outcome == REJECTED:
                        shown = next(tables(row)).row(0)
                        self._reject(self.rows, NOT_FINITE, shown)
                    return
            self.play(row, [target], weights=np.array([weight]))

    def keep(self, id: Hashable, row: Features) -> None:
        """Keep a row until its label comes."""
        with self._lock:
            self.pending.keep(id, row)

    def learn_late(self, id: Hashable, target: object, weight: float = 1.0) -> None:
        """Learn a row that was kept, now that its label has come."""
        with self._lock:
            self.learn_one(self.pending.take(id), target, weight)

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

    def _played(self, row: Features, target: float, weight: float) -> bool:
        """Play a row if it is a dict of known names, plain numbers and known words; whether it
        is."""
        if type(row) is not dict:
            return False
        if self._worded:
            plain = self.columns.plain(row)
            if plain is None:
                return False
            row = plain
        if self.wide is not None:
            return self._played_wide(row, target, weight)
        try:
            if len(row) == len(self.names):
                values = self._values(row)
            elif row.keys() <= self.names.keys():
                values = tuple(map(row.get, self.names, MISSING))
            else:
                return False
            if not PLAIN.issuperset(map(type, values)):
                return False
            self._pack(*values, target, weight)
        except (KeyError, struct.error):  # A name that is not there; an integer beyond all floats.
            return False
        self._play(self.vector, self.record.data, self._work, self.plan.sizes, self._row, self._out)
        return True

    def _played_wide(self, row: Features, target: float, weight: float) -> bool:
        """The same for a wide model, to which a row may bring new features."""
        assert self.wide is not None
        known = not weight or row.keys() <= self.names.keys()
        if not known and not self._meet(row):
            return False
        if not self.wide.run_one(self.record.data, row, self.names, target, weight, self._out):
            return False
        if not known and self._out[0, OUTCOME] != ABSURD:
            self.ignored += sum(name not in self.names for name in row)
        return True

    def _meet(self, row: Features) -> bool:
        """Know the features of a row that is not going to be rejected; whether it is such a row."""
        assert self.wide is not None
        values: Any = row.values()
        if not PLAIN.issuperset(map(type, values)) or max(map(abs, values)) > LARGEST:
            return False
        new = sorted((name for name in row if name not in self.names), key=order_of)
        for name in new[: max(0, self.options.most_features - len(self.names))]:
            self.names[name] = len(self.names)
        self.wide.make_room(len(self.names))
        return True

    # ---- many rows -------------------------------------------------------------------------

    def play(
        self,
        rows: Rows | Sparse,
        targets: Sequence[object] | np.ndarray | None,
        *,
        weights: np.ndarray | None = None,
        unlabelled: str = "reject",
        trace: bool = False,
    ) -> Outcome:
        """Test on every row, then train on it. Without `targets`, or where one is missing and
        `unlabelled` is `"predict"`, or where the weight is 0, only test. With `trace`, note x and
        the members' shares after each row."""
        parts = self._parts(rows)
        total = sum(len(table) for table in parts)
        if targets is not None and len(targets) != total:
            raise ValueError(
                f"targets must be as many as rows, {total}, but there are {len(targets)}."
            )
        with self._lock:
            played: list[Outcome] = []
            begin = 0
            for table in parts:
                for piece in self._pieces(table):
                    theirs = None if targets is None else targets[begin : begin + len(piece)]
                    heavy = None if weights is None else weights[begin : begin + len(piece)]
                    played.append(self._play_table(piece, theirs, heavy, unlabelled, trace))
                    begin += len(piece)
            return joined(played, self.plan, self._known)

    def _pieces(self, table: Table | Sparse) -> Iterator[Table | Sparse]:
        """In columns of numbers; values that there is no room for are ignored, and counted."""
        if isinstance(table, Sparse):
            yield table
            return
        room = self.options.most_features - len(self.names)
        for piece in self.columns.pieces(table, self.names, room):
            self.ignored += self.columns.ignored
            self.columns.ignored = 0
            yield piece

    def _parts(self, rows: Rows | Sparse) -> list[Table | Sparse]:
        return parts_of(rows, self.options, self.names, self.wide is not None)

    def predict(self, rows: Rows | Sparse) -> np.ndarray:
        """Predictions as in `Outcome`, for rows that are not learned. Values that would have a row
        rejected count as missing."""
        with self._lock:
            parts = (
                table if isinstance(table, Sparse) else self.columns.known(table, self.names)
                for table in self._parts(rows)
            )
            found = [self._run(self._placed(table)).predictions for table in parts]
        width = (len(self.classes),) if self.options.classify else ()
        return np.concatenate(found) if found else np.zeros((0, *width))

    def _play_table(
        self,
        table: Table | Sparse,
        targets: Sequence[object] | np.ndarray | None,
        weights: np.ndarray | None,
        unlabelled: str,
        trace: bool,
    ) -> Outcome:
        """A table, in stretches between which classes are added."""
        size = len(table)
        rejected = dict(table.rejected)
        # That there are more features is news of the very row that is to be predicted.
        before = self._run(self._placed(table)[:1]).predictions if self._turns(table) else None
        self._make_room(table)
        unread = [] if weights is None else np.flatnonzero(weights == 0).tolist()
        goals = coded(self.options, targets, size, rejected, self.index, unlabelled, unread)
        taught = goals.teach if weights is None else goals.teach * weights
        if self._class_weights is not None:
            classes = [*self.classes, *(label for _, label in goals.new)]
            taught = taught * of_classes(self._class_weights, classes, goals.values)
        parts = []
        rows = self._placed(table)
        rows[list(rejected)] = np.nan
        for begin, end, label in goals.stretches(size):
            said = None
            if label is not None:
                # That the class exists is news of the very row that is to be predicted.
                said = self._run(rows[begin : begin + 1]).predictions[0]
                self.add_classes([label[0]])
            part = self._run(rows[begin:end], goals.values[begin:end], taught[begin:end], trace)
            if said is not None:
                _say(part, said)
            rejected |= {begin + i: reason for i, reason in part.rejected.items()}
            parts.append(part)
        if before is not None:
            _say(parts[0], before[0])
        for i in sorted(rejected):
            self._reject(self.rows + i + 1, rejected[i], table.row(i))
        self.rows += size
        whole = joined(parts, self.plan, self._known)
        whole.rejected = rejected
        return whole

    def _reject(self, row: int, reason: str, values: Features) -> None:
        """Count and keep a rejected row; a warning, once, if nothing else has come so far."""
        self.rejected.add(row, reason, values)
        if self.rejected.count >= PATIENCE and not self.record.seen and not self.warned:
            self.warned = True
            warnings.warn(
                f"{PATIENCE} rows were rejected and none was learned, "
                f"{self.rejected.most_often()}.",
                stacklevel=5,
            )

    def _turns(self, table: Table | Sparse) -> bool:
        """Whether the first row of this table makes the model wide, or too wide for full
        curvature."""
        if len(table.rejected) == len(table):
            return False
        features = len(self.names.keys() | set(table.names))
        features = min(features, self.options.most_features)
        if self.wide is not None:
            return len(self.wide.square) > 0 and features > MOST_FULL
        return isinstance(table, Sparse) or self.options.wide(features)

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

    @property
    def _known(self) -> int | None:
        return len(self.classes) if self.options.classify else None

    def _placed(self, table: Table | Sparse) -> np.ndarray | Placed:
        """The values where the model has them, NaN for what it does not know or does not get; with
        room for target and weight."""
        if self.wide is not None:
            return self.wide.place(table, self.names)
        if isinstance(table, Table) and table.names == list(self.names):
            wide = np.empty((len(table), self.plan.features + 2))
            wide[:, :-2] = table.values
            return wide
        wide = np.full((len(table), self.plan.features + 2), np.nan)
        if isinstance(table, Sparse):
            places = table.placed(self.names)
            known = places >= 0
            wide[table.rows[known], places[known]] = table.values[known]
            return wide
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

    def _make_room(self, table: Table | Sparse) -> None:
        """Columns for features that are new, as many as there is room for."""
        if len(table.rejected) == len(table):
            return
        brought = table.brought if isinstance(table, Sparse) else table.names
        new = [name for name in brought if name not in self.names]
        for name in new[: max(0, self.options.most_features - len(self.names))]:
            self.names[name] = len(self.names)
        if new or (isinstance(table, Sparse) and self.wide is None):
            self._fit_plan(isinstance(table, Sparse))
        surplus = set(new) - self.names.keys()
        if surplus:
            self.ignored += table.count(surplus)

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


def _say(part: Outcome, said: np.ndarray) -> None:
    """What was said of the first row, by a model that may have known fewer classes."""
    first = part.predictions[:1].reshape(-1)
    first[:] = 0
    first[: np.size(said)] = said


def _reader(names: list[Hashable]) -> Callable[[Features], tuple[object, ...]]:
    """The values of a row in the order of the names."""
    if len(names) > 1:
        return operator.itemgetter(*names)
    # An item getter of one name would give a value, not a tuple.
    return lambda row: tuple(row[name] for name in names)
