"""A model of a stream: the engine, how rows reach it, how it grows, and what it rejected."""

import dataclasses
import itertools
import warnings
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from .._support import native
from . import budget, locks
from .inputs.columns import Columns
from .inputs.sparse import Sparse, check_matrix, from_dicts, from_matrix, places
from .inputs.table import LARGEST, NUMBERS, Features, Rows, Table, blocks, order_of, runs, tables
from .inputs.targets import coded, with_opposites
from .options import Options
from .pending import Pending
from .rejected import Rejected

REJECTED, LEARNED, EXTREME, UNREADABLE = range(4)
"""What the engine says of a row."""
NOT_FINITE = "learning it would have made the model NaN or Inf"
CHUNK = 1024
"""Dicts that are read together for a sparse model."""
MOST_ENTRIES = 2**22
"""Numbers in a part of a sparse matrix that is made dense."""
FIRST_CHECK, NEXT_CHECK = 16, 1024
"""Rows learned one at a time after which warnings of the engine are looked for."""

Targets = Sequence[object] | np.ndarray | None


@dataclasses.dataclass
class Outcome:
    """Predictions for rows before they were learned, and what became of the rows."""

    predictions: np.ndarray
    """Regression: one number per row. Classes: probabilities, a column for each known class."""
    loss: np.ndarray
    reach: np.ndarray
    """How far off the prediction of each row may be, if a coverage was asked for."""
    x: np.ndarray
    """Hyperparameters and the members' shares after each row, if they were asked for."""
    rejected: dict[int, str]
    """Reasons, by the position of the row."""
    spec: Any
    """The layout of x."""


class Model:
    """A model that learns from rows and keeps its hyperparameters in tune.

    The engine owns the names of features, the labels of classes and all numbers. Threads may use a
    model at the same time: one lock is held around every call.
    """

    _lock: Any

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
        self._limits: dict[Any, tuple[Any, int]] = {}
        self._until_check = FIRST_CHECK

    def __getstate__(self) -> dict[str, Any]:
        """Return a copy that other threads, which may go on learning, cannot change."""
        with self._lock:
            return {
                "options": self.options,
                "engine": (self.engine.names, self.engine.labels, self.engine.state(), self.sparse),
                "columns": self.columns.copy(),
                "pending": self.pending.copy(),
                "rejected": self.rejected.copy(),
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
        """Go on from the state of an engine, which the engine checks."""
        spec = self.options.spec(len(names), len(labels), sparse)
        # A checkpoint has arrays that cannot be written, and numbers as Python's own.
        numbers: dict[str, Any] = {name: np.array(array) for name, array in state.items()}
        numbers["given"] = state["given"]
        engine = native.loaded().Model.restore(spec, names, labels, numbers)
        self._prepare(self.options, engine)

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

    # ---- one row ---------------------------------------------------------------------------

    def learn_one(self, row: Features, target: object, weight: float = 1.0) -> None:
        """Predict a row, then learn it."""
        # `with` takes nearly twice as long as these two calls, which would be noticed in a row.
        lock = self._lock
        lock.acquire()
        try:
            plain = self.columns.plain(row) if self.columns.busy else row
            status = self.engine.learn(plain, target, weight) if weight > 0.0 else UNREADABLE
            if status == LEARNED:
                self._until_check -= 1
                if not self._until_check:
                    self._until_check = NEXT_CHECK
                    self._check_underflow()
                return
            if status == UNREADABLE and weight > 0.0 and type(plain) is dict:
                status = self._grow_and_learn(plain, target, weight)
            if status == REJECTED:
                self._reject(self.engine.given, NOT_FINITE, next(tables(row)).row(0))
            elif status != LEARNED:
                self.play(row, [target], weights=np.array([weight]))
        finally:
            lock.release()

    def _grow_and_learn(self, row: dict[Any, Any], target: object, weight: float) -> int:
        """Learn a row of plain numbers, some of them of new features; `UNREADABLE` for others."""
        names = self.names
        new = [name for name in row if name not in names]
        if not new or not NUMBERS.issuperset(map(type, row.values())):
            return UNREADABLE
        if not self._can_learn(target) or any(
            value is not None and abs(value) > LARGEST for value in row.values()
        ):
            return UNREADABLE
        # A feature without a value is not known yet.
        new = [name for name in new if row[name] is not None and row[name] == row[name]]
        if new:
            self._add_features(sorted(new, key=order_of))
            names = self.names
        surplus = [name for name in new if name not in names]
        known = {name: value for name, value in row.items() if name in names}
        status = int(self.engine.learn(known, target, weight))
        if status == LEARNED:
            self.ignored += len(surplus)
            self._check_underflow()
        return status

    def _can_learn(self, target: object) -> bool:
        """Return whether a target is a known class or a plain number."""
        if not self.options.classify:
            return type(target) in NUMBERS and target is not None and abs(target) <= LARGEST  # type: ignore[arg-type]
        try:
            return target in self.labels
        except TypeError:
            return False

    def learn_late(self, id: Hashable, target: object, weight: float = 1.0) -> None:
        """Learn a row that was kept, now that its label has come."""
        with self._lock:
            self.learn_one(self.pending.take(id), target, weight)

    def keep(self, id: Hashable, row: Features) -> None:
        """Keep a row until its label comes."""
        with self._lock:
            self.pending.keep(id, row)

    def predict_one(self, row: Features) -> list[float]:
        """Return the prediction for a row, or the probability of each known class."""
        with self._lock:
            return self._predict_row(row)

    def _predict_row(self, row: Features) -> list[float]:
        plain = self.columns.plain(row) if self.columns.busy else row
        prediction: list[float] | None = self.engine.predict(plain)
        if prediction is None and type(plain) is dict:
            names = self.names
            known = {name: value for name, value in plain.items() if name in names}
            prediction = self.engine.predict(known)
        if prediction is None:
            prediction = np.atleast_1d(self.predict(row)[0]).tolist()
        return prediction

    def predict_proba_one(self, row: Features) -> dict[Hashable, float]:
        """Return the probability of each known class; of a class that is not known yet, `None`,
        while there is one alone."""
        lock = self._lock
        lock.acquire()
        try:
            if not self.columns.busy:
                probabilities: dict[Hashable, float] | None = self.engine.predict_proba(row)
                if probabilities is not None:
                    return probabilities
            found = dict(zip(self.engine.label_index, self._predict_row(row), strict=True))
        finally:
            lock.release()
        if len(found) == 1:
            found[None] = 1.0 - sum(found.values())
        return found

    # ---- many rows -------------------------------------------------------------------------

    def play(
        self,
        rows: Rows,
        targets: Targets,
        *,
        weights: np.ndarray | None = None,
        reject_missing: bool = True,
        trace: bool = False,
        coverage: float = 0.0,
    ) -> Outcome:
        """Predict each row, then learn it.

        Without `targets`, or where the weight is 0, rows are only predicted; so are those without a
        target unless these are to be rejected. `trace` notes x and the members' shares after each
        row; `coverage` how far off each prediction may be.
        """
        parts = list(self._blocks(rows))
        total = sum(part.shape[0] if hasattr(part, "tocsr") else len(part) for part in parts)
        if targets is not None and len(targets) != total:
            raise ValueError(
                f"targets must be as many as rows, {total}, but there are {len(targets)}."
            )
        with self._lock:
            played: list[Outcome] = []
            begin = 0
            for part in parts:
                for piece in self._pieces(part):
                    span = slice(begin, begin + len(piece))
                    theirs = None if targets is None else targets[span]
                    heavy = None if weights is None else weights[span]
                    played.append(
                        self._play_piece(piece, theirs, heavy, reject_missing, trace, coverage)
                    )
                    begin += len(piece)
            self._check_underflow()
            return self._joined(played)

    def predict(self, rows: Rows) -> np.ndarray:
        """Return predictions as in `Outcome` for rows that are not learned. Values that would have
        a row rejected count as missing."""
        with self._lock:
            found = [
                self._predict_piece(
                    piece if isinstance(piece, Sparse) else self.columns.known(piece, self.names)
                )
                for part in self._blocks(rows)
                for piece in self._read(part)
            ]
            width = (len(self.labels),) if self.options.classify else ()
            return np.concatenate(found) if found else np.zeros((0, *width))

    def _blocks(self, rows: Any) -> Iterator[Any]:
        """Read rows of any kind: as tables, lists of dicts, `Sparse`, or parts of a matrix."""
        if not hasattr(rows, "tocsr"):
            yield from blocks(rows)
        elif self.sparse or self.options.sparse(rows.shape[1]):
            yield from_matrix(rows)
        else:
            check_matrix(rows)
            matrix, step = rows.tocsr(), max(1, MOST_ENTRIES // max(1, rows.shape[1]))
            yield from (matrix[i : i + step] for i in range(0, rows.shape[0], step))

    def _read(self, block: Any) -> Iterator[Table | Sparse]:
        """Read dicts as the model needs them by then: by their keys once it is sparse."""
        if hasattr(block, "tocsr"):
            yield from tables(block.toarray())
            return
        if not isinstance(block, list):
            yield block
            return
        begin = 0
        while begin < len(block):
            chunk = block[begin : begin + CHUNK]
            if self.sparse and (by_keys := from_dicts(chunk)) is not None:
                yield by_keys
                begin += len(chunk)
                continue
            for run in runs(chunk if self.sparse else block[begin:]):
                begin += len(run)
                yield next(tables(run))
                if self.sparse and len(chunk) > 1:
                    break

    def _pieces(self, block: Any) -> Iterator[Table | Sparse]:
        """Read rows in columns of numbers, cut where the model grows."""
        for part in self._read(block):
            names = self.names
            if isinstance(part, Sparse):
                yield from part.split(names, native.loaded().MOST_FULL - len(names))
                continue
            for piece in self.columns.pieces(part, names, self.most_features - len(names)):
                surplus, self.columns.ignored = self.columns.ignored, 0
                self.ignored += surplus
                yield piece
                if surplus:
                    self._warn_surplus()

    def _play_piece(
        self,
        piece: Table | Sparse,
        targets: Targets,
        weights: np.ndarray | None,
        reject_missing: bool,
        trace: bool,
        coverage: float,
    ) -> Outcome:
        """Play rows in columns of numbers; features that are new come with the first of them."""
        size, rejected = len(piece), dict(piece.rejected)
        # The first row was not known to have new features when it was to be predicted.
        before = self._predict_first(piece) if self._turns(piece) else None
        self._make_room(piece)
        index = self.labels if self.options.classify else None
        unread = [] if weights is None else np.flatnonzero(weights == 0).tolist()
        goals = coded(
            targets, rejected, index, size, reject_missing=reject_missing, unread=unread,
            most=self.most_classes, surplus=self._surplus,
        )  # fmt: skip
        learned = ~np.isnan(goals.values)
        heavy = learned.astype(np.float64) if weights is None else learned * weights
        parts, given = [], self.engine.given
        for span, labels, opposite in _stretches(size, goals.new):
            status, *arrays = self._run(
                piece, rejected, span, goals.values, heavy, labels, trace, coverage
            )
            lost = np.flatnonzero((heavy[span] > 0) & (status != LEARNED)).tolist()
            rejected |= {span.start + i: NOT_FINITE for i in lost}
            parts.append(self._outcome(arrays))
            self._grow([], opposite)
        if before is not None:
            _replace_first(parts[0].predictions, before)
        for i in sorted(rejected):
            self._reject(given + i + 1, rejected[i], piece.row(i))
        whole = self._joined(parts)
        whole.rejected = rejected
        return whole

    def _run(
        self,
        piece: Table | Sparse,
        rejected: Mapping[int, str],
        span: slice,
        targets: np.ndarray,
        weights: np.ndarray,
        new_labels: list[Hashable],
        trace: bool,
        coverage: float,
    ) -> tuple[np.ndarray, ...]:
        """Hand some rows of a piece to the engine."""
        options = {"new_labels": new_labels, "trace": trace, "coverage": coverage}
        goals = np.ascontiguousarray(targets[span]), np.ascontiguousarray(weights[span], np.float64)
        classes = len(self.labels) + len(new_labels)
        found: tuple[np.ndarray, ...]
        if self.sparse:
            found = self.engine.play_sparse(
                *self._by_keys(piece, rejected, span), *goals, **options
            )
        else:
            found = self.engine.play(self._by_columns(piece, rejected, span), *goals, **options)
        spec = self.engine.spec
        if trace and self.options.classify and spec.classes < classes:
            # Classes whose rows were all rejected are not known: their entries of x go.
            wide = spec.replace(classes=classes)
            starts = [
                (wide.spans[name][0], end - begin) for name, (begin, end) in spec.spans.items()
            ]
            kept = [begin + i for begin, size in starts for i in range(size)]
            kept += range(wide.width, wide.trail)
            found = (*found[:-1], found[-1][:, kept])
        return found

    def _predict_piece(self, piece: Table | Sparse, span: slice = slice(None)) -> np.ndarray:
        if self.sparse or isinstance(piece, Sparse):
            return self._predictions(self.engine.predict_sparse(*self._by_keys(piece, {}, span)))
        return self._predictions(self.engine.predict_many(self._by_columns(piece, {}, span)))

    def _predict_first(self, piece: Table | Sparse) -> np.ndarray:
        return self._predict_piece(piece, slice(0, 1))[0]

    def _predictions(self, predictions: np.ndarray) -> np.ndarray:
        return predictions if self.options.classify else predictions[:, 0]

    def _by_columns(self, piece: Any, rejected: Mapping[int, str], span: slice) -> np.ndarray:
        """Return values in the engine's columns, NaN for a missing one and in rejected rows."""
        names = self.names
        if not rejected and piece.names == list(names):
            values: np.ndarray = piece.values[span]
            return values
        where = places(piece.names, names)
        values = np.full((len(piece), len(names)), np.nan)
        values[:, where[where >= 0]] = piece.values[:, where >= 0]
        _drop(values, rejected)
        return values[span]

    def _by_keys(
        self, piece: Table | Sparse, rejected: Mapping[int, str], span: slice
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return rows as the engine takes them by their keys: begins, columns and values."""
        where = places(piece.names, self.names)
        first, last, _ = span.indices(len(piece))
        if isinstance(piece, Table):
            values = piece.values[span].copy()
            _drop(
                values, {i - first: reason for i, reason in rejected.items() if first <= i < last}
            )
            begins = np.arange(last - first + 1, dtype=np.int64) * len(where)
            return begins, np.tile(where, last - first), values.ravel()
        begins = piece.begins[first : last + 1]
        inside = slice(begins[0], begins[-1])
        values = piece.values[inside].copy()
        begins = (begins - begins[0]).astype(np.int64)
        for i in rejected:
            if first <= i < last:
                values[begins[i - first] : begins[i - first + 1]] = np.nan
        index = where[piece.columns[inside]]
        if piece.hidden is not None:
            index[piece.hidden[inside]] = -1
        return begins, index, values

    def _outcome(self, arrays: Sequence[np.ndarray]) -> Outcome:
        loss, reach, predictions, x = arrays
        spec = self.engine.spec
        x = x if len(x) else np.zeros((0, spec.trail))
        return Outcome(self._predictions(predictions), loss, reach, x, {}, spec)

    def _joined(self, parts: list[Outcome]) -> Outcome:
        """Join outcomes; earlier ones may know fewer classes and have a shorter x."""
        spec = self.engine.spec
        if len(parts) == 1 and same_layout(parts[0].spec, spec):
            one = parts[0]
            said = self._padded(one.predictions)
            return Outcome(said, one.loss, one.reach, one.x, one.rejected, spec)
        empty = self._padded(np.zeros((0, 0)) if self.options.classify else np.zeros(0))
        predictions, xs = [empty], [np.zeros((0, spec.trail))]
        rejected: dict[int, str] = {}
        begin = 0
        for part in parts:
            predictions.append(self._padded(part.predictions))
            xs.append(laid_out(part.x, part.spec, spec))
            rejected |= {begin + i: reason for i, reason in part.rejected.items()}
            begin += len(part.loss)
        loss = np.concatenate([np.zeros(0), *(part.loss for part in parts)])
        reach = np.concatenate([np.zeros(0), *(part.reach for part in parts)])
        return Outcome(np.concatenate(predictions), loss, reach, np.concatenate(xs), rejected, spec)

    def _padded(self, predictions: np.ndarray) -> np.ndarray:
        """Return predictions with a column for each class that is known by now."""
        if not self.options.classify:
            return predictions
        # A class whose rows were all rejected is not known.
        known = predictions[:, : len(self.labels)]
        missing = len(self.labels) - known.shape[1]
        return np.pad(known, ((0, 0), (0, missing))) if missing else known

    # ---- what is rejected, ignored or too small ----------------------------------------------

    def _reject(self, row: int, reason: str, values: Features) -> None:
        """Count and keep a rejected row; warn, once, if nothing else comes."""
        self.rejected.add(row, reason, values)
        if "rejected" not in self.warned and (
            words := self.rejected.alarm(bool(self.engine.learned))
        ):
            self._warn("rejected", words)

    def _warn_surplus(self) -> None:
        """Warn, once, if it is the budget that keeps features out."""
        count = len(self.names)
        if "surplus" in self.warned or self.most_features >= self.options.most_features:
            return
        too_much = budget.too_much(self.options, count + 1, len(self.labels), self.sparse)
        self._warn("surplus", f"features beyond the first {count:,} are ignored: {too_much}.")

    def _check_underflow(self) -> None:
        """Warn, once, of a feature or target whose size is too small for the engine."""
        if "underflow" in self.warned or (index := self.engine.underflow) == -1:
            return
        what = "the target" if index < 0 else f"feature {list(self.names)[index]!r}"
        self._warn(
            "underflow",
            f"the values of {what} are so small that their squares are 0 in double precision: "
            f"nothing can be learned from them. Give them in other units, for example multiplied "
            f"by 1e100.",
        )

    def _warn(self, kind: str, words: str) -> None:
        self.warned.add(kind)
        warnings.warn(words, stacklevel=6)

    # ---- growth ----------------------------------------------------------------------------

    def add_classes(self, labels: Sequence[Hashable]) -> None:
        """Know these classes, in this order, before any row of them has come."""
        with self._lock:
            known = self.labels
            new = [label for label in with_opposites(labels) if label not in known]
            budget.check(self.options, len(self.names), len(known) + len(new), self.sparse)
            self._grow([], new)

    def _turns(self, piece: Table | Sparse) -> bool:
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

    def _make_room(self, piece: Table | Sparse) -> None:
        """Know the features of a piece, as many as there is room for."""
        if len(piece.rejected) == len(piece):
            return
        names, sparse = self.names, isinstance(piece, Sparse)
        brought = piece.brought if isinstance(piece, Sparse) else piece.names
        new = [name for name in brought if name not in names]
        if isinstance(piece, Sparse):
            piece.hide(names)
        if new or (sparse and not self.sparse):
            self._add_features(new, sparse)
        surplus = set(new) - self.names.keys()
        if surplus:
            self.ignored += piece.count(surplus)

    def _add_features(self, new: Sequence[Hashable], sparse: bool = False) -> None:
        """Add as many of these features as there is room for."""
        fitting = new[: max(0, self.most_features - len(self.names))]
        self._grow(fitting, [], sparse)
        if len(fitting) < len(new):
            self._warn_surplus()

    def _grow(
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

    @property
    def most_features(self) -> int:
        """The number of features that there is room for, with the classes that there are."""
        return max(self._fitting(budget.most_features, len(self.labels)), len(self.names))

    @property
    def most_classes(self) -> int:
        """The number of classes that there is room for, with the features that there are."""
        return max(self._fitting(budget.most_classes, len(self.names)), len(self.labels))

    def _fitting(self, most: Any, beside: int) -> int:
        """Return what fits into the budget beside so many of the other; computed again when that
        changes."""
        now, known = (beside, self.sparse), self._limits.get(most)
        if known is None or known[0] != now:
            known = self._limits[most] = (now, most(self.options, *now))
        return known[1]

    def _surplus(self, classes: int) -> str:
        """Return why there cannot be so many classes."""
        if classes > self.options.max_classes:
            return "one too many"
        return budget.too_much(self.options, len(self.names), classes, self.sparse)

    # ---- options and intervals ---------------------------------------------------------------

    def take(self, options: Options, asked: Iterable[str]) -> dict[str, object]:
        """Go on with other options; return those of the `asked` ones that a model which has begun
        cannot take over, with the values that they keep."""
        with self._lock:
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
            other.columns, other.pending = self.columns.copy(), self.pending.copy()
            other.columns.most = new.max_categories
            other.pending.bound(new.max_pending)
            self.__dict__.update(other.__dict__)
        return waiting

    def checked_coverage(self, coverage: object) -> float:
        """Return a coverage that intervals can have; raise an error for others."""
        number = isinstance(coverage, int | float | np.number) and not isinstance(coverage, bool)
        if not (number and 0 < coverage < 1):  # type: ignore[operator]
            raise ValueError(f"coverage must be a number between 0 and 1, but got {coverage!r}.")
        kept, most = self.engine.coverages(), native.loaded().MOST_COVERAGES
        if coverage not in kept and len(kept) >= most:
            raise ValueError(
                f"coverage must be one of at most {most} that a model keeps in use, which are "
                f"{', '.join(f'{one:g}' for one in kept)}, but got {coverage!r}."
            )
        return float(coverage)  # type: ignore[arg-type]

    def reach(self, coverage: float) -> float:
        """Return how far off the next prediction may be."""
        return float(self.engine.reach(self.checked_coverage(coverage)))


def same_layout(a: Any, b: Any) -> bool:
    """Return whether x and the members' shares have the same places."""
    return a is b or (a.spans == b.spans and a.members == b.members)


def laid_out(x: np.ndarray, old: Any, spec: Any) -> np.ndarray:
    """Return x and shares of an older spec where the present one has them, NaN elsewhere."""
    if same_layout(old, spec):
        return x
    found = np.full((len(x), spec.trail), np.nan)
    for name, (begin, end) in old.spans.items():
        first = spec.spans[name][0]
        found[:, first : first + end - begin] = x[:, begin:end]
    members = list(spec.members)
    where = [spec.width + members.index(name) for name in old.members]
    found[:, where] = x[:, old.width :]
    return found


def _stretches(
    size: int, new: Sequence[tuple[int, Hashable]]
) -> Iterator[tuple[slice, list[Hashable], list[Hashable]]]:
    """Cut rows behind one with which two classes are new, which are False and True; yield the rows,
    their new classes, and the one that is known only after them."""
    rows = [row for row, _ in new]
    ends = sorted({row + 1 for row, after in itertools.pairwise(rows) if row == after})
    begin = 0
    for end in [*ends, size]:
        labels = [label for row, label in new if begin <= row < end]
        if begin < size:
            yield (
                slice(begin, end),
                labels[: -1 if end in ends else None],
                labels[-1:] if end in ends else [],
            )
        begin = end


def _drop(values: np.ndarray, rejected: Mapping[int, str]) -> None:
    if rejected:
        values[list(rejected)] = np.nan


def _replace_first(predictions: np.ndarray, before: np.ndarray) -> None:
    """Replace the first prediction by an earlier one, of a model that may know fewer classes."""
    first = predictions[:1].reshape(-1)
    first[:] = 0
    first[: np.size(before)] = before
