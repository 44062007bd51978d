"""Logistic regression that keeps its own penalty, memory and inertia in tune."""

from collections.abc import Hashable, Iterable, Sequence
from typing import Any, Self, cast

import numpy as np

from . import compat
from .estimator import StreamingEstimator
from .inputs.table import Features, Rows, as_dict, to_frame, to_series
from .inputs.targets import Targets, Weights
from .model import Outcome
from .options import ClassifierOptions


class StreamingClassifier(
    ClassifierOptions,
    StreamingEstimator,
    *compat.bases("Classifier"),  # type: ignore[misc]
):
    """Logistic regression, two classes or many, for rows that arrive one at a time.

    The model (the follower) fits a weighted window of recent rows; the hyperparameters (the
    leader) move with every row, along the derivative of the loss of predicting that row before it
    was learned. Predictions are a mixture of this model, the same frozen at its start, and a few
    plain ones, weighted by likelihood, so that tuning cannot make it worse. Features are
    standardised on the way in.

    **Arguments:**

    - `penalty`, `memory`, `inertia`: where the hyperparameters start. `penalty` is the weight of
      the L2 penalty; `memory` is the number of rows m that the window goes back, the same as a
      forgetting factor m / (m + 1); `inertia` is the weight of the squared distance to the last
      weights.
    - `learn`: which of `"penalty"`, `"forgetting"` (or `"memory"`, which is the same),
      `"inertia"` and `"bandwidth"` are learned; the others stay as they start.
    - `members`: the models of the mixture: `"auto"`, `"tuned"` alone, or a tuple of `"tuned"` and
      some of `"start"`, `"short"`, `"long"` (models with fixed hyperparameters: those of the
      start, a memory of 30 rows, of 3,000 rows) and `"sgd"` (gradient descent at four rates).
      `share`: the part of the members' weights that is redistributed after each row, so that
      members can recover.
    - `per_feature`: one penalty for each feature.
    - `features`: `"linear"`; `"fourier"`, for random Fourier features beside them, whose bandwidth
      is learned; `"interactions"`, for products of pairs and squares (of the first 19 features).
    - `lags`: the number of last labels (in regression: targets) that are used as features.
    - `imbalance`: `None`, or what is learned so that rare classes count as much as frequent ones:
      `"weights"` of classes, or `"logits"`, an adjustment of each class's logit while training.
      The leader's loss is then the class-balanced one.
    - `class_weight`: the weight of rows by their class: a dict (1 for a class not in it), or
      `"balanced"`: rows so far / (classes * rows of this class so far), at most 100.
    - `step_size`: the step size of the leader, in logarithms per row. `horizon`: how many rows of
      past effects of a hyperparameter it takes into account.
    - `scale_memory`: how many rows the running mean and deviation of a feature go back.
    - `max_memory`: the bytes that the model may take, 1 GiB by default. A feature or class that
      would exceed it is refused, with a message that says how much it would take and what to
      lower: the feature is ignored, with a warning; rows of the class are rejected.
    - `max_features`: features beyond it are ignored, and counted in `ignored_`. `max_classes`: rows
      of further classes are rejected. `max_categories`: how many words of a feature get a column of
      their own; further ones share 16 columns. `max_pending`: how many rows may wait for their
      labels, see `learn_one`.

    - `shuffle`, `passes`: for `fit` alone, whether it learns the rows in a random order (the same
      in each call), and how many times.

    It is a River classifier (`learn_one`, `predict_proba_one`, `learn_many` ...) and a scikit-learn
    classifier (`partial_fit`, `fit`, `predict_proba` ...).

    >>> model = StreamingClassifier()
    >>> for i in range(60):
    ...     model.learn_one({"size": float(i % 7)}, "large" if i % 7 > 3 else "small")
    >>> model.predict_one({"size": 6.0}), model.predict_one({"size": 0.0})
    ('large', 'small')
    >>> sorted(model.hyperparameters_)
    ['forgetting', 'inertia', 'members', 'memory', 'penalty']
    """

    @property
    def classes_(self) -> np.ndarray:
        """The classes seen so far, sorted."""
        return sorted_labels(self._fitted.engine.labels)

    def predict_proba_one(
        self, x: Features, *, id: Hashable | None = None, **_: object
    ) -> dict[Hashable, float]:
        """Return the probability of each class seen so far; an empty dict before the first row.

        While only one class is known, `None` stands for any other class. (A boolean label implies
        the opposite one.) With `id`, the row is kept for `learn_one(id=..., y=...)`.
        """
        if id is not None:
            self._made.keep(id, as_dict(x))
        model = self.__dict__.get("model_")
        row = x if type(x) is dict else as_dict(x)
        return {} if model is None else model.predict_proba_one(row)

    def predict_one(
        self, x: Features, *, id: Hashable | None = None, **_: object
    ) -> Hashable | None:
        """Return the most probable class; `None` before the first row. `id` is as in
        `predict_proba_one`."""
        probability = self.predict_proba_one(x, id=id)
        probability.pop(None, None)
        return max(probability, key=probability.__getitem__) if probability else None

    def predict_proba_many(self, X: Rows) -> Any:
        """Return probabilities as a frame with one column for each class, of polars for rows of
        polars and of pandas for others."""
        model = self._made
        with model.lock:
            probabilities, labels = model.predict(X), list(model.labels)
        return to_frame(probabilities, labels, X)

    def predict_many(self, X: Rows) -> Any:
        """Return the most probable class of each row, as a series."""
        model = self._made
        with model.lock:
            probabilities, labels = model.predict(X), list(model.labels)
        if not labels:
            return to_series([None] * len(probabilities), X)
        return to_series(as_array(labels)[np.argmax(probabilities, axis=1)], X)

    def predict_set_one(self, x: Features, coverage: float = 0.9) -> set[Hashable]:
        """Return a set of classes that contains the right one for a share `coverage` of the rows,
        also under drift; see `coverage_`. If the model is right more often than `coverage`, the
        sets of uncertain rows are empty."""
        model = self._made
        with model.lock:
            reach = model.reach(coverage)
            return likely(model.predict_one(as_dict(x)), reach, model.labels)

    def predict_set_many(self, X: Rows, coverage: float = 0.9) -> list[set[Hashable]]:
        """Return the set of classes of each row, as in `predict_set_one`."""
        model = self._made
        with model.lock:
            reach, labels = model.reach(coverage), list(model.labels)
            return [likely(line, reach, labels) for line in model.predict(X).tolist()]

    def progressive_set(self, X: Rows, y: Targets, coverage: float = 0.9) -> list[set[Hashable]]:
        """Learn rows in their order and return the set of each row, predicted before it was
        learned."""
        return cast(list[set[Hashable]], self._progressive_ranges(X, y, coverage))

    def _ranges(self, found: Outcome) -> list[set[Hashable]]:
        labels = list(self._fitted.labels)
        rows = zip(found.predictions.tolist(), found.reach.tolist(), strict=True)
        return [likely(line, reach, labels) for line, reach in rows]

    def partial_fit(
        self,
        X: Rows,
        y: Targets,
        classes: Sequence[Hashable] | None = None,
        sample_weight: Weights = None,
    ) -> Self:
        """Learn rows of an array or frame in their order. `classes` may name classes in advance;
        `sample_weight` is as in `fit`."""
        return self._learn_array(X, y, classes, sample_weight, first="model_" not in self.__dict__)

    def predict_proba(self, X: Rows) -> np.ndarray:
        """Return probabilities, one column for each of `classes_`."""
        model = self._trained
        rows, _ = self._validated(X)
        with model.lock:
            return model.predict(rows)[:, self._order()]

    def decision_function(self, X: Rows) -> np.ndarray:
        """Return log-odds, one column for each of `classes_`; for two classes, a vector with the
        log-odds of the second. They are finite, because odds are cut off at 1e300."""
        found = np.clip(self.predict_proba(X), 1e-300, None)
        rest = np.clip(1 - found, 1e-300, None)
        if found.shape[1] > 2:
            return np.log(found) - np.log(rest)
        others = found[:, 1] if found.shape[1] == 2 else rest[:, 0]
        return np.log(others) - np.log(found[:, 0])

    def predict(self, X: Rows) -> np.ndarray:
        """Return the most probable class of each row."""
        return self.classes_[np.argmax(self.predict_proba(X), axis=1)]

    def progressive(
        self, X: Rows, y: Targets, classes: Sequence[Hashable] | None = None
    ) -> np.ndarray:
        """Learn rows in their order and return their probabilities, predicted before each row was
        learned, one column for each of `classes_`. `classes` may name classes in advance; one that
        is not known yet has probability 0."""
        if classes is not None:
            self._made.add_classes(list(classes))
        return super().progressive(X, y)

    def _ordered(self, predictions: np.ndarray) -> np.ndarray:
        return predictions[:, self._order()]

    def _order(self) -> list[int]:
        """Return the classes in their sorted order, as positions in the order of appearance."""
        return ranked(self._fitted.engine.labels)

    def _validated_targets(self, y: Targets) -> np.ndarray:
        from sklearn.utils.multiclass import check_classification_targets
        from sklearn.utils.validation import _check_y, column_or_1d

        targets: np.ndarray = column_or_1d(y, warn=True)
        if targets.dtype.kind in "fc":
            targets = _check_y(targets)
        check_classification_targets(targets)
        return targets

    @property
    def _multiclass(self) -> bool:
        return True


def likely(said: Sequence[float], reach: float, labels: Iterable[Hashable]) -> set[Hashable]:
    """Return the classes of a row that are probable enough: 1 - p is at most `reach`."""
    # A class without any chance was not known when the row was predicted.
    return {label for label, p in zip(labels, said, strict=False) if 1.0 - p <= reach and p > 0.0}


def ranked(labels: Sequence[Hashable]) -> list[int]:
    """Return the positions of labels in their sorted order."""
    try:
        return sorted(range(len(labels)), key=labels.__getitem__)  # type: ignore[arg-type]
    except TypeError:
        return sorted(range(len(labels)), key=lambda i: (str(type(labels[i])), str(labels[i])))


def sorted_labels(labels: Sequence[Hashable]) -> np.ndarray:
    """Return labels in their sorted order."""
    return as_array([labels[i] for i in ranked(labels)])


def as_array(labels: Sequence[Hashable]) -> np.ndarray:
    """Return labels of one type as NumPy has them, others as they are."""
    array = np.array(labels)
    if array.ndim == 1 and len({type(label) for label in labels}) <= 1:
        return array
    mixed = np.empty(len(labels), object)
    mixed[:] = labels
    return mixed


compat.register("Classifier", StreamingClassifier)
