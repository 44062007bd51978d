"""Models that were trained apart, on other rows of the same stream, as one model.

A member with full curvature keeps, in standardised columns a = T (x, 1), its weights y and the
curvature A = sum of h a a' over its weighted window of rows. In the units of the rows these are

    B = T^-1 A T^-T,    w = T' y    (for numbers, times the target's deviation, plus its mean),

so that B w is the sum of h (x, 1) target: the sufficient statistics of least squares. Those of
several models are added, and the merged weights solve sum(B) w = sum(B w).

That is exact for squared loss where nothing but the rows formed the statistics: memory is not
learned and long beside the rows, penalty and inertia vanish, and mean and deviation of the columns
have settled. Otherwise it is an approximation: each model's window counts as it stands, whatever
its forgetting was, and log loss is taken as a quadratic around each model's weights.
"""

from collections.abc import Sequence
from typing import TypeVar

import numpy as np

from .classifier import StreamingClassifier
from .regressor import StreamingRegressor

Model = TypeVar("Model", StreamingClassifier, StreamingRegressor)
Arrays = dict[str, np.ndarray]
SUMMED = ("rows", "history.learned", "history.total", "last_target.total_loss")
"""Numbers of a state that count rows or losses."""
COUNT, MEAN, VARIANCE = 0, 1, 2
"""Columns of the running moments."""


def merge(models: Sequence[Model]) -> Model:
    """Return a new model with what all of them have learned; they are not changed.

    They must have the same options, the same features and classes, and be dense and linear, without
    lags or waves. Weights, curvature, moments and counts are merged. The rest is that of the model
    with the most rows: learned hyperparameters, members' shares, intervals, history, and rows that
    wait for labels.

    >>> rows = [[float(i % 7), float(i % 5)] for i in range(60)]
    >>> parts = [StreamingRegressor(), StreamingRegressor()]
    >>> for part, begin in zip(parts, (0, 30), strict=True):
    ...     part.learn_many(rows[begin:begin + 30], [a - b for a, b in rows[begin:begin + 30]])
    >>> merged = merge(parts)
    >>> merged.learned_, round(merged.predict_one({0: 6.0, 1: 1.0}))
    (60, 5)
    """
    kinds = StreamingClassifier, StreamingRegressor
    listed = isinstance(models, Sequence) and len(models) > 0
    if not (listed and all(isinstance(model, kinds) for model in models)):
        raise ValueError(f"models must be a list of streaming models, but is {models!r}.")
    saved = [model.__obax_save__() for model in models]
    first = saved[0][1]
    for _, extra in saved[1:]:
        for name, label in (("options", "options"), ("names", "features"), ("classes", "classes")):
            ours, theirs = (one if name == "options" else one["model"] for one in (first, extra))
            if ours[name] != theirs[name]:
                raise ValueError(f"models must have the same {label}, in the same order.")
    if first["model"]["sparse"] or len({len(arrays) for arrays, _ in saved}) > 1:
        raise ValueError("models must be dense: one of them is sparse.")
    most = int(np.argmax([model.learned_ for model in models]))
    arrays, extra = saved[most]
    states = [state for state, _ in saved]
    extra["model"]["rows"] = sum(one["model"]["rows"] for _, one in saved)
    numbers = isinstance(models[most], StreamingRegressor)
    return type(models[most])().__obax_load__(arrays | _merged(states, most, numbers), extra)


def _merged(states: Sequence[Arrays], most: int, numbers: bool) -> Arrays:
    """Return the arrays of a state that are not those of the model with the most rows."""
    key = "state.moments"
    merged = {key: _pooled([state[key] for state in states], states[most][key])}
    for name in (f"state.{name}" for name in SUMMED):
        merged[name] = np.asarray(sum(state[name] for state in states))
    frequencies = [state["state.frequencies"] for state in states]
    merged["state.frequencies"] = np.sum(frequencies, axis=0)
    scales = [_Scale(state[key], numbers) for state in states]
    scale = _Scale(merged[key], numbers)
    size = len(scale.columns)
    rows = [float(state["state.rows"]) for state in states]
    for name in [name for name in states[most] if name.endswith(".weights")]:
        if states[most][name].shape[1] != size:
            raise ValueError("models must be linear, without lags, waves or interactions.")
        weights = [one.raw(state[name]) for one, state in zip(scales, states, strict=True)]
        curvature = name.replace(".weights", ".curvature")
        if curvature in states[most]:
            parts = [
                one.inverse @ state[curvature] @ one.inverse.T
                for one, state in zip(scales, states, strict=True)
            ]
            total = np.sum(parts, axis=0)
            right = sum(part @ w.T for part, w in zip(parts, weights, strict=True))
            joint = np.linalg.lstsq(total, right, rcond=None)[0].T
            merged[curvature] = scale.columns @ total @ scale.columns.T
        else:
            joint = np.average(weights, axis=0, weights=rows)
        merged[name] = scale.standardised(joint)
    return merged


def _pooled(tables: Sequence[np.ndarray], base: np.ndarray) -> np.ndarray:
    """Return the moments of all values, with what else `base` has."""
    counts, means, variances = (
        np.array([table[:, column] for table in tables]) for column in (COUNT, MEAN, VARIANCE)
    )
    total, pooled = counts.sum(axis=0), base.copy()
    share = counts / np.maximum(total, 1.0)
    pooled[:, COUNT], pooled[:, MEAN] = total, (share * means).sum(axis=0)
    pooled[:, VARIANCE] = (share * (variances + (means - pooled[:, MEAN]) ** 2)).sum(axis=0)
    return pooled


class _Scale:
    """How rows and targets are standardised: `columns` is T."""

    def __init__(self, moments: np.ndarray, numbers: bool):
        # The last line is that of the target. A constant is standardised to 0 whatever its scale.
        deviations = np.where(moments[:, VARIANCE] > 0, np.sqrt(moments[:, VARIANCE]), 1.0)
        self.columns = np.diag(np.append(1.0 / deviations[:-1], 1.0))
        self.columns[:-1, -1] = -moments[:-1, MEAN] / deviations[:-1]
        self.inverse = np.linalg.inv(self.columns)
        self.mean = float(moments[-1, MEAN]) if numbers else 0.0
        self.deviation = float(deviations[-1]) if numbers else 1.0

    def raw(self, weights: np.ndarray) -> np.ndarray:
        """Return weights in the units of rows and targets."""
        raw = self.deviation * weights @ self.columns
        raw[:, -1] += self.mean
        return raw

    def standardised(self, raw: np.ndarray) -> np.ndarray:
        """Return the weights of standardised columns."""
        shifted = raw.copy()
        shifted[:, -1] -= self.mean
        standardised: np.ndarray = shifted @ self.inverse / self.deviation
        return standardised
