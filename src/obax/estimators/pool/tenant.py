"""The model of one key, to look at."""

from collections.abc import Hashable
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from ..columns import Columns
from ..core import Core
from ..estimator import StreamingEstimator
from ..history import MOST_POINTS, Record, Rejected
from ..kernel.record import HEAD, POINTS, RING, USED
from ..options import Options
from ..outcome import Hyperparameters
from .models import Models
from .reading import Reader
from .stack import NOTED

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class Owner(Protocol):
    """What of a pool is needed here."""

    model: Any
    key: str
    _reader: Reader
    _rejected: Rejected
    _options: Options


class Tenant:
    """What a pool has learned of one key: everything is as of the moment in which it is asked for.

    `model` is a copy that goes on alone, with all methods of an estimator.
    """

    def __init__(self, key: Hashable, pool: Owner, models: Models, number: int):
        self.key = key
        self._pool, self._models, self._number = pool, models, number

    @property
    def model(self) -> Any:
        """The same model as an estimator of its own; the pool's goes its own way."""
        pool = self._pool
        found: StreamingEstimator = type(pool.model)(**pool.model.get_params(deep=False))
        found._core = self._core()
        return found

    @property
    def rows_(self) -> int:
        """Rows that the key was given."""
        return int(self._models.table["given"][self._number])

    @property
    def hyperparameters_(self) -> Hyperparameters:
        """As an estimator has them."""
        return self._core().hyperparameters()

    @property
    def hyperparameter_history_(self) -> dict[str, Any]:
        """How they got there, at up to 32 points."""
        history: dict[str, Any] = self.model.hyperparameter_history_
        return history

    @property
    def mean_loss_(self) -> float:
        """The mean loss of predicting a row before it was learned, over all of them."""
        loss: float = self.model.mean_loss_
        return loss

    def explain(self) -> str:
        """What was learned, in words."""
        return f"{self.key}: {self.model.explain()}"

    def plot(self) -> "Figure":
        """Learning curve, drift, every hyperparameter and the members' shares over time."""
        figure = self.model.plot()
        figure.suptitle(str(self.key))
        return figure

    def __repr__(self) -> str:
        return f"Tenant({self.key!r}, rows={self.rows_:,})"

    def _core(self) -> Core:
        pool, reader = self._pool, self._pool._reader
        core = Core(pool._options)
        with self._models._lock:
            line = self._models.table[self._number].copy()
            state = self._models.state(self._number)
            known = self._models.order[self._number, : line["known"]].tolist()
        if state is None:
            return core
        core.names = dict(list(reader.names.items())[: state.features])
        core.classes = [reader.classes[code] for code in known]
        core.index = {label: i for i, label in enumerate(core.classes)}
        core.columns = Columns.from_plain(pool._options.max_categories, reader.columns.to_plain())
        core.rows = int(line["given"])
        core.plan = pool._options.plan(state.features, len(core.classes))
        core.vector, core.record = state.vector, record_of(state.notes, core.plan.trail)
        for one in pool._rejected:
            if one["values"].get(pool.key) == self.key:
                core.rejected.add(one["row"], one["reason"], one["values"])
        if len(core.rejected) < line["rejected"] and not len(core.rejected):
            core.rejected.add(0, "of reasons that are no longer kept", {})
        core.rejected.count = int(line["rejected"])
        core.ready()
        return core


def record_of(notes: np.ndarray, trail: int) -> Record:
    """The record of a model from its notes in a pool, with the room that a model alone has."""
    head = np.zeros(HEAD)
    head[:RING] = notes[:RING]
    head[POINTS] = MOST_POINTS
    used, points = int(notes[USED]), notes[RING:]
    x = points[2 * NOTED :].reshape(NOTED, trail)
    return Record.of(head, points[:used], points[NOTED : NOTED + used], x[:used])
