"""Logistic regression that keeps its own penalty, memory and inertia in tune."""

from collections.abc import Hashable, Iterable, Sequence
from typing import TYPE_CHECKING, Self, cast

import numpy as np

from . import compat
from .estimator import StreamingEstimator
from .inputs.table import Features, Rows, as_dict, index_of
from .inputs.targets import Targets, Weights
from .model import Outcome
from .options import ClassifierOptions

if TYPE_CHECKING:
    import pandas as pd


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
      the L2 penalty; `memory` the number of rows that the window goes back, m, the same as a
      forgetting factor m / (m + 1); `inertia` how firmly the weights stay where they were.
    - `learn`: which of `"penalty"`, `"forgetting"`, `"inertia"`, `"bandwidth"` are learned; the
      others stay.
    - `members`: the models of the mixture: `"auto"`, `"tuned"` alone, or a tuple of `"tuned"` and
      some of `"start"`, `"short"`, `"long"` (frozen models: the start, a memory of 30, of 3,000
      rows) and `"sgd"` (steps down the gradient at four rates). `share`: what part of their weights
      is shared out anew after each row, so that members can come back.
    - `per_feature`: one penalty for each feature.
    - `features`: `"linear"`; `"fourier"`, for random Fourier features beside them, whose bandwidth
      is learned; `"interactions"`, for products of pairs and squares (of the first 19 features).
    - `lags`: how many of the last labels (in regression: targets) are features too.
    - `imbalance`: `None`, or what to learn so that rare classes count as much as frequent ones:
      class `"weights"`, or `"logits"`, an adjustment of each class's logit while training. The
      leader's loss is then the class-balanced one.
    - `class_weight`: what rows count by their class: a dict of weights (1 for a class that it does
      not have), or `"balanced"`, as many rows as there are over classes times rows of this class,
      counted along the stream, at most 100.
    - `step_size`: of the leader, in logarithms per row. `horizon`: how many rows back it looks for
      the effects of a hyperparameter.
    - `scale_memory`: how many rows the running mean and deviation of a feature go back.
    - `max_memory`: bytes that the model may take, 1 GiB by default. Before a feature or a class
      would make it more, that one is refused, with what it would take and what to lower: the
      feature is ignored, with a warning, and rows of the class are rejected.
    - `max_features`: features beyond it are ignored, and counted in `ignored_`. `max_classes`: rows
      that would need more are rejected. `max_categories`: words of a feature with a column of
      their own; others share 16. `max_pending`: how many rows wait for their labels, see
      `learn_one`.

    Both a River classifier (`learn_one`, `predict_proba_one`, `learn_many` ...) and a scikit-learn
    one (`partial_fit`, `fit`, `predict_proba` ...).

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
        """The probability of each class seen so far; empty before the first. While there is one
        class alone, `None` has the probability of another one (a boolean implies the other one).
        With `id`, the row is kept for `learn_one(id=..., y=...)`."""
        if id is not None:
            self._made.keep(id, as_dict(x))
        model = self.__dict__.get("model_")
        row = x if type(x) is dict else as_dict(x)
        return {} if model is None else model.predict_proba_one(row)

    def predict_one(
        self, x: Features, *, id: Hashable | None = None, **_: object
    ) -> Hashable | None:
        """The most probable class; `None` before the first. `id` as in `predict_proba_one`."""
        probability = self.predict_proba_one(x, id=id)
        probability.pop(None, None)
        return max(probability, key=probability.__getitem__) if probability else None

    def predict_proba_many(self, X: Rows) -> "pd.DataFrame":
        """Probabilities as a pandas frame with one column for each class."""
        import pandas as pd

        model = self._made
        with model.lock:
            said, labels = model.predict(X), list(model.labels)
        return pd.DataFrame(said, columns=labels, index=index_of(X))

    def predict_many(self, X: Rows) -> "pd.Series | pd.DataFrame":
        """The most probable class of each row, as a pandas series."""
        found = self.predict_proba_many(X)
        return found if found.empty else found.idxmax(axis="columns")

    def predict_set_one(self, x: Features, coverage: float = 0.9) -> set[Hashable]:
        """The classes that are probable enough for the right one to be among them in a share
        `coverage` of the rows, drift or not: see `coverage_`. Where the model is right more often
        than that, the set of a row that it is less sure of is empty."""
        model = self._made
        with model.lock:
            reach = model.reach(coverage)
            return likely(model.predict_one(as_dict(x)), reach, model.labels)

    def predict_set_many(self, X: Rows, coverage: float = 0.9) -> list[set[Hashable]]:
        """The same for rows."""
        model = self._made
        with model.lock:
            reach, labels = model.reach(coverage), list(model.labels)
            return [likely(line, reach, labels) for line in model.predict(X).tolist()]

    def progressive_set(self, X: Rows, y: Targets, coverage: float = 0.9) -> list[set[Hashable]]:
        """Learn rows in their order and return the set of each as said *before* it was learned."""
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
        `sample_weight` as in `fit`."""
        return self._learn_array(X, y, classes, sample_weight, first="model_" not in self.__dict__)

    def predict_proba(self, X: Rows) -> np.ndarray:
        """Probabilities, one column for each of `classes_`."""
        model = self._fitted
        rows, _ = self._validated(X)
        with model.lock:
            return model.predict(rows)[:, self._order()]

    def decision_function(self, X: Rows) -> np.ndarray:
        """The log-odds of each of `classes_`, a column each; of two classes those of the second
        alone, in one dimension. They are finite: odds end at 1e300."""
        found = np.clip(self.predict_proba(X), 1e-300, None)
        rest = np.clip(1 - found, 1e-300, None)
        if found.shape[1] > 2:
            return np.log(found) - np.log(rest)
        others = found[:, 1] if found.shape[1] == 2 else rest[:, 0]
        return np.log(others) - np.log(found[:, 0])

    def predict(self, X: Rows) -> np.ndarray:
        """The most probable class of each row."""
        return self.classes_[np.argmax(self.predict_proba(X), axis=1)]

    def progressive(
        self, X: Rows, y: Targets, classes: Sequence[Hashable] | None = None
    ) -> np.ndarray:
        """Learn rows in their order and return the probabilities, one column for each of
        `classes_`, that each row was given *before* it was learned. `classes` may name classes in
        advance; one that is not known yet has probability 0."""
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
