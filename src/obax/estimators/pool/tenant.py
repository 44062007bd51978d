"""The model of one key, for inspection."""

import copy
from collections.abc import Hashable
from typing import TYPE_CHECKING, Any

from ..model import Model

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from .pool import Pool


class Tenant:
    """What a pool has learned of one key, at the time of each call.

    It has what an estimator has: `hyperparameters_`, `hyperparameter_history_` (at up to 24
    points), `mean_loss_`, `coef_` and the like, of a copy of the key's model.
    """

    def __init__(self, key: Hashable, pool: "Pool", number: int):
        self.key, self.pool, self.number = key, pool, number

    @property
    def model(self) -> Any:
        """A copy of the model, as an estimator that is independent of the pool."""
        pool = self.pool
        estimator = type(pool.model)(**pool.model.get_params(deep=False))
        estimator.model_ = self._copy()
        return estimator

    @property
    def rows_(self) -> int:
        """The number of rows that the key was given."""
        return int(self.pool.models.info(self.number)["given"])

    def explain(self) -> str:
        """Return a few sentences about what was learned."""
        return f"{self.key}: {self.model.explain()}"

    def plot(self) -> "Figure":
        """Return a figure of the learning curve, drift, hyperparameters and shares over time."""
        figure: Figure = self.model.plot()
        figure.suptitle(str(self.key))
        return figure

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or not name.endswith("_"):
            raise AttributeError(f"{type(self).__name__} has no attribute {name!r}.")
        return getattr(self.model, name)

    def __repr__(self) -> str:
        return f"Tenant({self.key!r}, rows={self.rows_:,})"

    def _copy(self) -> Model:
        pool, reader = self.pool, self.pool.reader
        with pool.lock:
            info, state = pool.models.info(self.number), pool.models.state(self.number)
            names, labels = list(reader.names), list(reader.labels)
            model = Model(reader.options)
            if state is None:
                return model
            model.put(
                [names[i] for i in info["features"]],
                [labels[i] for i in info["labels"]],
                state | {"given": info["given"]},
            )
            model.columns = copy.deepcopy(reader.columns)
            for one in pool.rejected_:
                if one["values"].get(pool.key) == self.key:
                    model.rejected.add(one["row"], one["reason"], one["values"])
            if len(model.rejected) < info["rejected"] and not len(model.rejected):
                model.rejected.add(0, "of reasons that are no longer kept", {})
            model.rejected.count = int(info["rejected"])
        return model
