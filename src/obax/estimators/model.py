"""A model of a stream: how rows reach the engine, one at a time or many in a call."""

import dataclasses
import math
from collections.abc import Hashable, Iterator, Sequence
from typing import Any

import numpy as np

from .._support import native
from .growth import GrowingModel
from .inputs.sparse import Sparse, check_matrix, from_dicts, from_matrix
from .inputs.table import LARGEST, NUMBERS, Features, Rows, Table, blocks, order_of, runs, tables
from .report import Hyperparameters, joined, named

REJECTED, LEARNED, EXTREME, UNREADABLE = range(4)
"""The results of learning a row."""
NOT_FINITE = "learning it would have made the model NaN or Inf"
CHUNK = 1024
"""Dicts that are read together."""
MOST_ENTRIES = 2**22
"""Numbers in a part of a sparse matrix that is made dense."""
NEXT_CHECK = 1024
"""Rows learned one at a time between two looks for warnings of the engine."""

Targets = Sequence[object] | np.ndarray | None


@dataclasses.dataclass
class Outcome:
    """Predictions for rows before they were learned, and what became of the rows."""

    predictions: np.ndarray
    """Regression: one number per row. Classes: probabilities, a column for each known class."""
    loss: np.ndarray
    reach: np.ndarray
    """How far off the prediction of each row may be, if a coverage was asked for."""
    hyperparameters: Hyperparameters
    """As they were after each row, if they were asked for."""
    rejected: dict[int, str]
    """Reasons, by the position of the row."""


class Model(GrowingModel):
    """A model that learns from rows and keeps its hyperparameters in tune."""

    # ---- one row ---------------------------------------------------------------------------

    def learn_one(self, row: Features, target: object, weight: float = 1.0) -> None:
        """Learn a row."""
        # `with` takes nearly twice as long as these two calls, which would be noticed in a row.
        lock = self.lock
        lock.acquire()
        try:
            plain = self.columns.plain(row) if self.columns.busy else row
            status = self.engine.learn(plain, target, weight) if weight > 0.0 else UNREADABLE
            if status == LEARNED:
                self._until_check -= 1
                if not self._until_check:
                    self._until_check = NEXT_CHECK
                    self.warn_underflow()
                return
            if status == UNREADABLE and weight > 0.0 and type(plain) is dict:
                status = self._learn_new_features(plain, target, weight)
            if status == REJECTED:
                self.reject(self.engine.given, NOT_FINITE, next(tables(row)).row(0))
            elif status != LEARNED:
                self.play(row, [target], weights=np.array([weight]))
        finally:
            lock.release()

    def _learn_new_features(self, row: dict[Any, Any], target: object, weight: float) -> int:
        """Learn a row of plain numbers, some of them of new features; `UNREADABLE` for others."""
        names = self.names
        # A feature without a value is not known yet.
        new = [name for name in row if name not in names and row[name] == row[name]]
        if not new or not NUMBERS.issuperset(map(type, row.values())):
            return UNREADABLE
        if any(value is not None and abs(value) > LARGEST for value in row.values()):
            return UNREADABLE
        self.add_features(sorted((name for name in new if row[name] is not None), key=order_of))
        names = self.names
        known = {name: value for name, value in row.items() if name in names}
        status = int(self.engine.learn(known, target, weight))
        if status == LEARNED:
            self.ignored += sum(name not in names and row[name] is not None for name in new)
            self.warn_underflow()
        return status

    def learn_late(self, id: Hashable, target: object, weight: float = 1.0) -> None:
        """Learn a row that was kept, whose label has now arrived."""
        with self.lock:
            self.learn_one(self.pending.take(id), target, weight)

    def keep(self, id: Hashable, row: Features) -> None:
        """Keep a row until its label arrives."""
        with self.lock:
            self.pending.keep(id, row)

    def predict_one(self, row: Features) -> list[float]:
        """Return the prediction for a row, or the probability of each known class."""
        with self.lock:
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
        """Return the probability of each known class; while only one class is known, `None` stands
        for any other class."""
        lock = self.lock
        lock.acquire()
        try:
            if not self.columns.busy:
                probabilities: dict[Hashable, float] | None = self.engine.predict_proba(row)
                if probabilities is not None:
                    return probabilities
            found = dict(zip(self.labels, self.predict_one(row), strict=True))
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
        **asked: Any,
    ) -> Outcome:
        """Predict each row, then learn it.

        Without `targets`, or where the weight is 0, rows are only predicted; so are those without a
        target unless these are to be rejected. What may be asked for beside: `trace`, for the
        hyperparameters after each row; `coverage`, for how far off each prediction may be.
        """
        parts = list(self._blocks(rows))
        total = sum(part.shape[0] if hasattr(part, "tocsr") else len(part) for part in parts)
        if targets is not None and len(targets) != total:
            raise ValueError(
                f"targets must be as many as rows, {total}, but there are {len(targets)}."
            )
        with self.lock:
            played: list[Outcome] = []
            begin = 0
            for block in parts:
                for piece in self._pieces(block):
                    span = slice(begin, begin + len(piece))
                    own_targets = None if targets is None else targets[span]
                    own_weights = None if weights is None else weights[span]
                    played += self._play_piece(
                        piece, own_targets, own_weights, reject_missing, asked
                    )
                    begin += len(piece)
            self.warn_underflow()
            return self._joined(played, bool(asked.get("trace")))

    def predict(self, rows: Rows) -> np.ndarray:
        """Return predictions as in `Outcome` for rows that are not learned. Values that would have
        a row rejected count as missing."""
        with self.lock:
            names = self.names
            known = (
                piece if isinstance(piece, Sparse) else self.columns.known(piece, names)
                for block in self._blocks(rows)
                for piece in self._read(block)
            )
            predictions = [self._predict_piece(piece) for piece in known]
            return np.concatenate([self._padded(np.zeros((0, 0))), *predictions])

    def _blocks(self, rows: Any) -> Iterator[Any]:
        """Read rows of any kind: as tables, lists of dicts, `Sparse`, or parts of a matrix."""
        width = rows.shape[1] if isinstance(rows, np.ndarray) and rows.ndim == 2 else math.inf
        columns = sum(type(name) is int for name in self.names)
        if width < columns:
            raise ValueError(
                f"rows have {width} columns, but the model has learned from arrays of {columns}: "
                f"give all of them, with NaN for missing values, or rows with names."
            )
        if not hasattr(rows, "tocsr"):
            yield from blocks(rows)
        elif self.sparse or self.options.sparse(rows.shape[1]):
            yield from_matrix(rows)
        else:
            check_matrix(rows)
            matrix, step = rows.tocsr(), max(1, MOST_ENTRIES // max(1, rows.shape[1]))
            yield from (matrix[i : i + step] for i in range(0, rows.shape[0], step))

    def _read(self, block: Any) -> Iterator[Table | Sparse]:
        """Read a block; dicts are read by their keys once the model is sparse."""
        if hasattr(block, "tocsr"):
            yield from tables(block.toarray())
        elif not isinstance(block, list):
            yield block
        else:
            begin = 0
            while begin < len(block):
                chunk = block[begin : begin + CHUNK]
                by_keys = from_dicts(chunk) if self.sparse else None
                part = next(tables(next(runs(chunk)))) if by_keys is None else by_keys
                yield part
                begin += len(part)

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
                    self.warn_surplus()

    def _play_piece(
        self,
        piece: Table | Sparse,
        targets: Targets,
        weights: np.ndarray | None,
        reject_missing: bool,
        asked: dict[str, Any],
    ) -> list[Outcome]:
        """Play rows in columns of numbers. New features are added with the first of them."""
        size, rejected = len(piece), dict(piece.rejected)
        # The first row was not known to have new features when it was to be predicted.
        before = self._predict_piece(piece, 1) if self.turns_sparse(piece) else None
        self.add_features_of(piece)
        goals, weights = self.read_targets(targets, rejected, size, weights, reject_missing)
        given, labels, outcomes = self.engine.given, [label for _, label in goals.new], []
        read: Any = piece.by_keys if self.sparse else piece.in_columns  # type: ignore[union-attr]
        values = read(self.names, rejected)
        stretches = [(slice(0, size), labels, labels[:0])]
        if goals.implied is not None:
            # The class that a boolean implies is known only after its row.
            at, cut = goals.implied, goals.new[goals.implied][0] + 1
            stretches = [
                (slice(0, cut), labels[:at], labels[at : at + 1]),
                (slice(cut, size), labels[at + 1 :], []),
            ]
        for span, new, implied in stretches:
            own = {i - span.start: rejected[i] for i in rejected if span.start <= i < span.stop}
            outcome = self._run(values, span, goals.values[span], weights[span], new, asked)
            outcome.rejected = own | outcome.rejected
            rejected |= {span.start + i: reason for i, reason in outcome.rejected.items()}
            outcomes.append(outcome)
            self.grow([], implied)
        if before is not None:
            first = outcomes[0].predictions[:1].reshape(-1)
            first[:] = 0
            first[: before.size] = before.ravel()
        for i in sorted(rejected):
            self.reject(given + i + 1, rejected[i], piece.row(i))
        return outcomes

    def _run(
        self,
        values: Any,
        span: slice,
        targets: np.ndarray,
        weights: np.ndarray,
        new_labels: list[Hashable],
        asked: dict[str, Any],
    ) -> Outcome:
        """Let the engine play some rows of a piece."""
        options, trace = asked | {"new_labels": new_labels}, asked.get("trace")
        classes = len(self.labels) + len(new_labels)
        if self.sparse:
            begins, *entries = values
            rows = (begins[span.start : span.stop + 1], *entries)
            arrays = self.engine.play_sparse(*rows, targets, weights, **options)
        else:
            arrays = self.engine.play(values[span], targets, weights, **options)
        status, loss, reach, predictions, x = arrays
        lost = np.flatnonzero((weights > 0) & (status != LEARNED)).tolist()
        # x has places for all of the new classes, also for those whose rows were all rejected.
        spec = self.engine.spec.replace(classes=classes if self.options.classify else 0)
        found = named(self.options, spec, x, self.names, self.labels) if trace else {}
        return Outcome(predictions, loss, reach, found, dict.fromkeys(lost, NOT_FINITE))

    def _predict_piece(self, piece: Table | Sparse, count: int | None = None) -> np.ndarray:
        """Return predictions for the first rows of a piece, by default for all of them."""
        size = len(piece) if count is None else count
        if self.sparse or isinstance(piece, Sparse):
            begins, *entries = piece.by_keys(self.names)
            return self._padded(self.engine.predict_sparse(begins[: size + 1], *entries))
        return self._padded(self.engine.predict_many(piece.in_columns(self.names)[:size]))

    def _joined(self, parts: list[Outcome], trace: bool) -> Outcome:
        """Join outcomes; earlier ones may know fewer classes, features and members."""
        rejected: dict[int, str] = {}
        begin = 0
        for part in parts:
            rejected |= {begin + i: reason for i, reason in part.rejected.items()}
            begin += len(part.loss)
        predictions = [self._padded(part.predictions) for part in parts]
        hyperparameters: Hyperparameters = {}
        if trace:
            none = np.zeros((0, self.engine.spec.trail))
            whole = named(self.options, self.engine.spec, none, self.names, self.labels)
            sizes = [len(part.loss) for part in parts]
            hyperparameters = joined(whole, [part.hyperparameters for part in parts], sizes)
        return Outcome(
            np.concatenate([self._padded(np.zeros((0, 0))), *predictions]),
            np.concatenate([np.zeros(0), *(part.loss for part in parts)]),
            np.concatenate([np.zeros(0), *(part.reach for part in parts)]),
            hyperparameters,
            rejected,
        )

    def _padded(self, predictions: np.ndarray) -> np.ndarray:
        """Return predictions with a column for each class that is known by now; numbers in one
        dimension."""
        if not self.options.classify:
            return predictions.reshape(-1)
        # A class whose rows were all rejected is not known.
        known = predictions[:, : len(self.labels)]
        missing = len(self.labels) - known.shape[1]
        return np.pad(known, ((0, 0), (0, missing))) if missing else known

    # ---- intervals ---------------------------------------------------------------------------

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
