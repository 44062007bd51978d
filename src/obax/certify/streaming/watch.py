"""Runs of a real estimator, row by row, with a record of everything that the theorems use."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from ..._support import native
from ...estimators import StreamingClassifier, StreamingRegressor
from ..families.ingredients import Numbers
from ..measure.claims import share
from ..verify import Check
from .streams import Stream

FROZEN = 1
"""The member that stays at the start in a default model, and its weights in the state of one."""
FROZEN_WEIGHTS = "member.start.weights"
CLIP = 10.0
"""Deviations at which the engine cuts features and targets off."""


class Watched(NamedTuple):
    """Record of a run, one line for each row. Without another remark an entry is that *before*
    the row."""

    shares: Numbers
    residuals: Numbers
    averages: Numbers
    variances: Numbers
    target_average: Numbers
    target_variance: Numbers
    weights: Numbers
    """Of the frozen member; one line more, for after the last row."""
    next_shares: Numbers
    """After the row."""
    by_member: Numbers
    """Prediction of each member: the probability of the target, or a number in its deviations."""
    predicted: Numbers
    """Prediction of the model's own `predict_one`, in the units of the targets; of a classifier the
    probability of the target, by `predict_proba_one`."""
    played: Numbers
    """1 for a row that every member has learned."""


Predict = Callable[[Any, dict[Any, float]], Any]
"""A prediction from a model and a row: a number, or a dict of probabilities."""


def predict(model: Any, row: dict[Any, float]) -> Any:
    """Return what a user reads: `predict_one`, or `predict_proba_one` of a classifier."""
    if isinstance(model, StreamingClassifier):
        return model.predict_proba_one(row)
    return model.predict_one(row)


def watch(stream: Stream, predict: Predict = predict, **options: Any) -> Watched:
    """Play the default estimator of the stream's kind, with the stream's hyperparameters as its
    start; `options` replace some of them, and a mutant has its own `predict`."""
    classes = 0 if len(stream.weights) else int(stream.targets.max()) + 1
    given = {name: getattr(stream, name) for name in ("memory", "penalty", "inertia", "share")}
    kind: Any = StreamingClassifier if classes else StreamingRegressor
    model = kind(**given | options)
    inner = model.prepare().model_
    features, count = stream.rows.shape[1], len(stream.rows)
    # Known before the first row, so that nothing grows in between.
    inner.grow(list(range(features)), list(range(classes)))
    played, lines = np.zeros(count), []
    predicted, by_member = np.zeros(count), []
    for i in range(count):
        row = dict(enumerate(stream.rows[i].tolist()))
        lines.append(inner.engine.state())
        prediction = predict(model, row)
        label = int(stream.targets[i]) if classes else 0
        predicted[i] = prediction[label] if classes else prediction
        by_member.append(inner.engine.predict_members(row)[:, label])
        status = inner.engine.learn(row, label if classes else float(stream.targets[i]), 1.0)
        played[i] = status == native.loaded().LEARNED
    lines.append(inner.engine.state())
    moments = np.array([line["moments"] for line in lines])
    target_average, target_variance = moments[:-1, -1, 1], moments[:-1, -1, 2]
    shares = np.array([line["shares"] for line in lines])
    played *= np.array([line["sat_out"].sum() for line in lines[1:]]) == 0
    return Watched(
        shares[:-1],
        np.array([line["residuals"] for line in lines[:-1]]),
        moments[:-1, :-1, 1],
        moments[:-1, :-1, 2],
        target_average,
        target_variance,
        np.array([line[FROZEN_WEIGHTS][0] for line in lines]),
        shares[1:],
        np.array(by_member),
        predicted,
        played,
    )


def check_mean(seen: Watched) -> Check:
    """Test that a regressor predicts the mean of its members under their shares."""
    spread = np.sqrt(np.where(seen.target_variance > 0.0, seen.target_variance, 1.0))
    mean = seen.target_average + spread * np.sum(seen.shares * seen.by_member, axis=1)
    return share(
        "mean of the members", "the distance to the mean under the shares / rounding",
        np.abs(seen.predicted - mean), 0.0, 1.0 + np.abs(mean) + spread,
    )  # fmt: skip
