"""The model of one key, to look at."""

from collections.abc import Hashable
from typing import TYPE_CHECKING, Any

from ..model import Model
from ..report import Hyperparameters

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from .pool import Pool


class Tenant:
    """What a pool has learned of one key: everything is as of the moment in which it is asked for.

    `model` is a copy that goes on alone, with all methods of an estimator.
    """

    def __init__(self, key: Hashable, pool: "Pool", number: int):
        self.key = key
        self._pool, self._number = pool, number

    @property
    def model(self) -> Any:
        """The same model as an estimator of its own; the pool's goes its own way."""
        pool = self._pool
        estimator = type(pool.model)(**pool.model.get_params(deep=False))
        estimator._model = self._copy()
        return estimator

    @property
    def rows_(self) -> int:
        """The number of rows that the key was given."""
        return int(self._pool._info(self._number)["given"])

    @property
    def hyperparameters_(self) -> Hyperparameters:
        """The hyperparameters as an estimator has them."""
        found: Hyperparameters = self.model.hyperparameters_
        return found

    @property
    def hyperparameter_history_(self) -> dict[str, Any]:
        """How they got there, at up to 24 points."""
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

    def _copy(self) -> Model:
        pool, reader = self._pool, self._pool._reader
        with pool._lock:
            info, state = pool._info(self._number), pool._state(self._number)
            names, labels = list(reader.names), reader.labels
            model = Model(pool._options)
            if state is None:
                return model
            model.put(
                [names[i] for i in info["features"]],
                [labels[i] for i in info["labels"]],
                state | {"given": info["given"]},
            )
            model.columns = reader.columns.copy()
            for one in pool._rejected:
                if one["values"].get(pool.key) == self.key:
                    model.rejected.add(one["row"], one["reason"], one["values"])
            if len(model.rejected) < info["rejected"] and not len(model.rejected):
                model.rejected.add(0, "of reasons that are no longer kept", {})
            model.rejected.count = int(info["rejected"])
        return model
