"""The model behind both faces, and its way for one row, which needs no table."""

import itertools
import struct
from collections.abc import Hashable
from typing import Any

import numpy as np

from .kernel import ABSURD, OUTCOME, REJECTED, SAID
from .many import Many
from .model import NOT_FINITE
from .sparse import PLAIN
from .table import LARGEST, Features, order_of, tables

MISSING = itertools.repeat(float("nan"))


class Core(Many):
    """A model that learns from rows and keeps its hyperparameters in tune."""

    def learn_one(self, row: Features, target: object, weight: float = 1.0) -> None:
        """Test on a row and train on it: `play` for one row, without a table where that is not
        needed, as for the rows of any stream that has settled."""
        # `with` takes nearly twice as long as these two calls, which would be 2% of a row.
        lock = self._lock
        lock.acquire()
        try:
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
        finally:
            lock.release()

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
        lock = self._lock
        lock.acquire()
        try:
            if not self._played(row, 0.0, 0.0):
                return np.atleast_1d(self.predict(row)[0]).tolist()
            found: list[float] = self._out[0].tolist()[SAID:]
        finally:
            lock.release()
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
        known = self.wide.read(row, self.names)
        if known is None:
            return False
        if weight and not known:
            if not self._meet(row):
                return False
            self.wide.read(row, self.names)
        self.wide.run_one(self.record.data, target, weight, self._out)
        if weight and not known and self._out[0, OUTCOME] != ABSURD:
            self.ignored += sum(name not in self.names for name in row)
        return True

    def _meet(self, row: Features) -> bool:
        """Know the features of a row that is not going to be rejected; whether it is such a row."""
        assert self.wide is not None
        values: Any = row.values()
        if not PLAIN.issuperset(map(type, values)) or max(map(abs, values)) > LARGEST:
            return False
        new = sorted((name for name in row if name not in self.names), key=order_of)
        for name in new[: max(0, self.most_features - len(self.names))]:
            self.names[name] = len(self.names)
        if new[-1] not in self.names:
            self._tell_surplus()
        self.wide.make_room(len(self.names))
        return True
