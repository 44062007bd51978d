"""Many rows for a model: tables, in stretches between which it grows."""

from collections.abc import Iterator, Sequence

import numpy as np

from .kernel import MOST_FULL
from .model import Model
from .outcome import Outcome, joined
from .sparse import Sparse, parts_of
from .table import Rows, Table
from .targets import coded
from .weights import of_classes
from .wide import Placed


class Many(Model):
    """A model that takes rows by the table."""

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
        room = self.most_features - len(self.names)
        for piece in self.columns.pieces(table, self.names, room):
            surplus, self.columns.ignored = self.columns.ignored, 0
            self.ignored += surplus
            yield piece
            if surplus:
                self._tell_surplus()

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
        goals = coded(
            self.options, targets, size, rejected, self.index, unlabelled, unread,
            most=self.most_classes, surplus=self._surplus,
        )  # fmt: skip
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

    def _turns(self, table: Table | Sparse) -> bool:
        """Whether the first row of this table makes the model wide, or too wide for full
        curvature."""
        if len(table.rejected) == len(table):
            return False
        features = len(self.names.keys() | set(table.names))
        features = min(features, self.most_features)
        if self.wide is not None:
            return len(self.wide.square) > 0 and features > MOST_FULL
        return isinstance(table, Sparse) or self.options.wide(features)

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


def _say(part: Outcome, said: np.ndarray) -> None:
    """What was said of the first row, by a model that may have known fewer classes."""
    first = part.predictions[:1].reshape(-1)
    first[:] = 0
    first[: np.size(said)] = said
