"""A model that grows: the engine, columns of words and dates, rows that are kept or rejected."""

import copy
import dataclasses
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any, Self

import numpy as np

from .._support import native
from . import budget, locks
from .inputs.columns import Columns
from .inputs.sparse import Sparse
from .inputs.table import Features, Table
from .inputs.targets import with_opposites
from .options import Options
from .pending import Pending
from .rejected import Rejected, warn_caller
from .serialise import Arrays, require, tagged, unique, untagged, whole

FIRST_CHECK = 16
"""Rows learned one at a time after which warnings of the engine are looked for."""


class GrowingModel(budget.Bounded):
    """The engine with its options, the columns of words and dates, and rows kept or rejected.

    The engine owns the names of features, the labels of classes and all numbers. Threads may use a
    model at the same time: its lock is held around every call.
    """

    lock: Any

    def __init__(self, options: Options):
        budget.check(options)
        self._prepare(options, native.loaded().Model(options.spec(0, 0)))
        self.columns = Columns(options.max_categories)
        self.pending = Pending(options.max_pending)
        self.rejected = Rejected()
        self.ignored = 0
        """Values of features beyond `max_features` in rows that were learned."""
        self.warned: set[str] = set()
        locks.add_lock(self)

    def _prepare(self, options: Options, engine: Any) -> None:
        self.options, self.engine = options, engine
        by_class = options.class_weight
        engine.label_weights = dict(by_class) if isinstance(by_class, Mapping) else None
        self._until_check = FIRST_CHECK

    @property
    def sparse(self) -> bool:
        """Whether rows are read by their keys, with a diagonal curvature."""
        return bool(self.engine.spec.sparse)

    @property
    def names(self) -> Mapping[Hashable, int]:
        """The columns of the features."""
        columns: Mapping[Hashable, int] = self.engine.columns
        return columns

    @property
    def labels(self) -> Mapping[Hashable, int]:
        """The positions of the classes."""
        labels: Mapping[Hashable, int] = self.engine.label_index
        return labels

    # ---- growth ----------------------------------------------------------------------------

    def add_classes(self, labels: Sequence[Hashable]) -> None:
        """Add classes, in this order, before any row of them has arrived."""
        with self.lock:
            known = self.labels
            new = [label for label in with_opposites(labels) if label not in known]
            budget.check(self.options, len(self.names), len(known) + len(new), self.sparse)
            self.grow([], new)

    def add_features(self, new: Sequence[Hashable], sparse: bool = False) -> None:
        """Add as many of these features as there is room for."""
        fitting = new[: max(0, self.most_features - len(self.names))]
        self.grow(fitting, [], sparse)
        if len(fitting) < len(new):
            self.warn_surplus()

    def add_features_of(self, piece: Table | Sparse) -> None:
        """Add the features of a piece, as many as there is room for."""
        if len(piece.rejected) == len(piece):
            return
        names, sparse = self.names, isinstance(piece, Sparse)
        brought = piece.brought if isinstance(piece, Sparse) else piece.names
        new = [name for name in brought if name not in names]
        if isinstance(piece, Sparse):
            piece.hide(names)
        if new or (sparse and not self.sparse):
            self.add_features(new, sparse)
        surplus = set(new) - self.names.keys()
        if surplus:
            self.ignored += piece.count(surplus)

    def grow(
        self, names: Sequence[Hashable], labels: Sequence[Hashable], sparse: bool = False
    ) -> None:
        """Add features and classes; make the model sparse if asked to or if it has many features.

        The engine builds the larger state beside its own and puts it in place in one move: an
        exception or an interrupt leaves the model as it was.
        """
        if not (names or labels or sparse):
            return
        features, classes = len(self.names) + len(names), len(self.labels) + len(labels)
        sparse = sparse or self.sparse or self.options.sparse(features)
        spec = self.options.spec(features, classes, sparse)
        siblings = self.columns.siblings(names, self.names)
        self.engine.grow(list(names), list(labels), sparse=sparse, spec=spec, siblings=siblings)

    def turns_sparse(self, piece: Table | Sparse) -> bool:
        """Return whether the first row of a piece makes the model sparse, or too large for full
        curvature."""
        if len(piece.rejected) == len(piece):
            return False
        names = self.names
        new = sum(name not in names for name in piece.names)
        features, most = min(len(names) + new, self.most_features), native.loaded().MOST_FULL
        if self.sparse:
            return len(names) <= most < features
        return isinstance(piece, Sparse) or self.options.sparse(features)

    # ---- warnings --------------------------------------------------------------------------

    def reject(self, row: int, reason: str, values: Features) -> None:
        """Count and keep a rejected row; warn once if all rows are rejected."""
        self.rejected.add(row, reason, values)
        self._warn_once("rejected", self.rejected.alarm(bool(self.engine.learned)))

    def warn_surplus(self) -> None:
        """Warn once if `max_memory`, and not `max_features`, keeps features out."""
        count = len(self.names)
        if "surplus" not in self.warned and self.most_features < self.options.most_features:
            too_much = budget.too_much(self.options, count + 1, len(self.labels), self.sparse)
            words = f"features beyond the first {count:,} are ignored: {too_much}."
            self._warn_once("surplus", words)

    def warn_underflow(self) -> None:
        """Warn once about a feature or target whose values are too small for the engine."""
        if "underflow" in self.warned or (index := self.engine.underflow) == -1:
            return
        what = "the target" if index < 0 else f"feature {list(self.names)[index]!r}"
        self._warn_once(
            "underflow",
            f"the values of {what} are so small that their squares are 0 in double precision: "
            f"nothing can be learned from them. Give them in other units, for example multiplied "
            f"by 1e100.",
        )

    def _warn_once(self, kind: str, words: str | None) -> None:
        if words is not None and kind not in self.warned:
            self.warned.add(kind)
            warn_caller(words)

    # ---- options ---------------------------------------------------------------------------

    def take(self, options: Options, asked: Iterable[str]) -> dict[str, object]:
        """Change to other options; return those of the `asked` ones that cannot change once a model
        has begun, with the values that they keep."""
        with self.lock:
            new, waiting = self.options.followed_by(options, asked)
            if self.sparse and new.learn != self.options.learn:
                waiting["learn"] = self.options.learn
                new = dataclasses.replace(new, learn=self.options.learn)
            engine = self.engine.copy()
            engine.change(new.spec(len(self.names), len(self.labels), self.sparse))
            # Changed beside this one and put in place at once, which no interrupt can cut in two.
            other = object.__new__(type(self))
            other.__dict__.update(self.__dict__)
            other._prepare(new, engine)
            other.columns, other.pending = copy.deepcopy((self.columns, self.pending))
            other.columns.most = new.max_categories
            other.pending.bound(new.max_pending)
            self.__dict__.update(other.__dict__)
        return waiting

    # ---- copies ----------------------------------------------------------------------------

    def __getstate__(self) -> dict[str, Any]:
        """Return a copy of the state, which other threads that go on learning do not change."""
        with self.lock:
            return {
                "options": self.options,
                "engine": (self.engine.names, self.engine.labels, self.engine.state(), self.sparse),
                "columns": copy.deepcopy(self.columns),
                "pending": copy.deepcopy(self.pending),
                "rejected": copy.deepcopy(self.rejected),
                "ignored": self.ignored,
                "warned": set(self.warned),
            }

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.options = state.pop("options")
        self.put(*state.pop("engine"))
        self.__dict__.update(state)
        locks.add_lock(self)

    def put(
        self,
        names: list[Hashable],
        labels: list[Hashable],
        state: Mapping[str, Any],
        sparse: bool = False,
    ) -> None:
        """Replace the engine by one with this state, which the engine checks."""
        spec = self.options.spec(len(names), len(labels), sparse)
        # A checkpoint has arrays that cannot be written, and numbers as Python's own.
        numbers: dict[str, Any] = {name: np.array(array) for name, array in state.items()}
        numbers["given"] = state["given"]
        engine = native.loaded().Model.restore(spec, names, labels, numbers)
        self._prepare(self.options, engine)

    def to_plain(self) -> tuple[Arrays, dict[str, Any]]:
        """Return the model as it is between two rows: the engine's arrays, and the rest as JSON can
        hold it."""
        with self.lock:
            arrays = self.engine.state()
            return arrays, {
                "names": [tagged(name) for name in self.names],
                "classes": [tagged(label) for label in self.labels],
                "rows": int(arrays.pop("given")),
                "sparse": self.sparse,
                "ignored": self.ignored,
                "rejected": self.rejected.to_plain(),
                "columns": self.columns.to_plain(),
                "pending": self.pending.to_plain(),
            }

    @classmethod
    def from_plain(cls, options: Options, arrays: Arrays, plain: dict[str, Any]) -> Self:
        """Return the model that `to_plain` was called on."""
        names, labels = (
            unique(part, [untagged(one) for one in plain[part]]) for part in ("names", "classes")
        )
        sparse, rows = plain["sparse"], whole("rows", plain["rows"])
        fits = type(sparse) is bool and not (sparse and options.dense)
        require(fits, "sparse", "as the options have it")
        model = cls(options)
        model.put(names, labels, arrays | {"given": rows}, sparse)
        model.ignored = whole("ignored values", plain["ignored"])
        model.rejected = Rejected.from_plain(plain["rejected"])
        model.columns = Columns.from_plain(options.max_categories, plain["columns"])
        model.pending = Pending.from_plain(options.max_pending, plain["pending"])
        return model
