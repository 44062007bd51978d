"""Linear regression that keeps its own penalty, memory and inertia in tune."""

import math
from collections.abc import Hashable, Sequence
from typing import Any, Self, cast

import numpy as np

from . import compat
from .estimator import StreamingEstimator
from .inputs.table import Features, Rows, as_dict, to_frame, to_series
from .inputs.targets import Targets, Weights
from .model import Outcome
from .options import RegressorOptions


class StreamingRegressor(RegressorOptions, StreamingEstimator, *compat.bases("Regressor")):  # type: ignore[misc]
    """Linear regression for rows that arrive one at a time, with squared or Huber loss.

    The model (the follower) fits a weighted window of recent rows; penalty, memory and inertia (the
    leader) move with every row, along the derivative of the loss of predicting that row before it
    was learned. Features and target are standardised on the way in.

    **Arguments** are those of `StreamingClassifier` (without the ones for classes), and

    - `loss`: `"squared"`, or `"huber"`, which is linear beyond `delta` deviations of the target, so
      that outliers have little effect.

    It is a River regressor and a scikit-learn regressor.

    >>> model = StreamingRegressor()
    >>> for i in range(80):
    ...     model.learn_one({"a": float(i % 5), "b": float(i % 3)}, 2.0 * (i % 5) - (i % 3))
    >>> round(model.predict_one({"a": 3.0, "b": 1.0}), 1)
    5.0
    """

    def predict_one(self, x: Features, *, id: Hashable | None = None, **_: object) -> float:
        """Return the prediction for one row; 0 before a row was learned. With `id`, the row is kept
        for `learn_one(id=..., y=...)`."""
        if id is not None:
            self._made.keep(id, as_dict(x))
        model = self.__dict__.get("model_")
        return 0.0 if model is None else model.predict_one(as_dict(x))[0]

    def predict_many(self, X: Rows) -> Any:
        """Return the predictions for rows as a series, of polars for rows of polars and of pandas
        for others."""
        return to_series(self._made.predict(X), X)

    def predict_interval_one(self, x: Features, coverage: float = 0.9) -> tuple[float, float]:
        """Return an interval (low, high) that contains the target for a share `coverage` of the
        rows, also under drift; see `coverage_`. It is infinite before a row was learned."""
        model = self._made
        with model.lock:
            reach = model.reach(coverage)
            prediction = model.predict_one(as_dict(x))[0]
        return prediction - reach, prediction + reach

    def predict_interval_many(self, X: Rows, coverage: float = 0.9) -> Any:
        """Return the interval of each row, as a frame with columns `low` and `high`."""
        model = self._made
        with model.lock:
            reach = model.reach(coverage)
            found = around(model.predict(X), reach)
        return to_frame(found, ["low", "high"], X)

    def predict_quantiles_one(
        self, x: Features, quantiles: Sequence[float] = (0.05, 0.5, 0.95)
    ) -> dict[float, float]:
        """Return quantiles of the target. They are the ends of intervals of coverage |2 q - 1|, so
        each is exact if errors are as often above as below the prediction."""
        model = self._made
        with model.lock:
            prediction = model.predict_one(as_dict(x))[0]
            reach = [model.reach(abs(2 * q - 1)) if q != 0.5 else 0.0 for q in quantiles]
        ends = zip(quantiles, reach, strict=True)
        return {q: prediction + math.copysign(end, q - 0.5) for q, end in ends}

    def progressive_interval(self, X: Rows, y: Targets, coverage: float = 0.9) -> np.ndarray:
        """Learn rows in their order and return the interval of each row, a line with low and high,
        predicted before it was learned."""
        return cast(np.ndarray, self._progressive_ranges(X, y, coverage))

    def _ranges(self, found: Outcome) -> np.ndarray:  # type: ignore[override]
        return around(found.predictions, found.reach)

    def partial_fit(self, X: Rows, y: Targets, sample_weight: Weights = None) -> Self:
        """Learn rows of an array or frame in their order; `sample_weight` is as in
        `fit`."""
        return self._learn_array(X, y, None, sample_weight, first="model_" not in self.__dict__)

    def predict(self, X: Rows) -> np.ndarray:
        """Return the predictions for rows of an array or frame."""
        model = self._trained
        rows, _ = self._validated(X)
        return model.predict(rows)

    def _validated_targets(self, y: Targets) -> np.ndarray:
        from sklearn.utils.validation import _check_y, column_or_1d

        return _check_y(column_or_1d(y, warn=True), y_numeric=True)


def around(predictions: np.ndarray, reach: np.ndarray | float) -> np.ndarray:
    """Return low and high, a line for each row."""
    return np.stack([predictions - reach, predictions + reach], axis=1)


compat.register("Regressor", StreamingRegressor)
