"""Logistic regression that keeps its own penalty, memory and inertia in tune."""

from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, Self

import numpy as np

from . import faces
from .estimator import StreamingEstimator, Targets, as_dict
from .options import ClassifierOptions
from .table import Features, Rows

if TYPE_CHECKING:
    import pandas as pd


class StreamingClassifier(ClassifierOptions, StreamingEstimator, *faces.bases("Classifier")):  # type: ignore[misc]
    """Logistic regression, two classes or many, for rows that arrive one at a time.

    The model (the follower) fits a weighted window of recent rows; the hyperparameters (the
    leader) move with every row, along the derivative of the loss of predicting that row before it
    was learned. What is said is said by a mixture of this model, the same frozen at its start, and
    a few plain ones, weighted by likelihood, so that tuning cannot make it worse. Features are
    standardised on the way in.

    **Arguments:**

    - `penalty`, `memory`, `inertia`: where the hyperparameters start. `penalty` is the weight of
      the L2 penalty; `memory` the number of rows that the window goes back, m, the same as a
      forgetting factor m / (m + 1); `inertia` how firmly the weights stay where they were.
    - `learn`: which of `"penalty"`, `"forgetting"`, `"inertia"` are learned; the others stay.
    - `members`: who predicts: `"auto"`, `"tuned"` alone, or a tuple of `"tuned"` and some of
      `"start"`, `"short"`, `"long"` (frozen models: the start, a memory of 30, of 3,000 rows) and
      `"sgd"` (steps down the gradient at four rates). `share`: what part of their weights is shared
      out anew after each row, so that members can come back.
    - `per_feature`: one penalty for each feature.
    - `imbalance`: `None`, or what to learn so that rare classes count as much as frequent ones:
      class `"weights"`, or `"logits"`, an adjustment of each class's logit while training. The
      leader's loss is then the class-balanced one.
    - `step_size`: of the leader, in logarithms per row. `horizon`: how many rows back it looks for
      the effects of a hyperparameter.
    - `scale_memory`: how many rows the running mean and deviation of a feature go back.
    - `max_features`: features beyond it are ignored, and counted in `ignored_`. `max_classes`: rows
      that would need more are rejected.

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
        core = self._fitted
        labels = [core.classes[i] for i in self._order()]
        array = np.array(labels)
        if array.ndim == 1 and len({type(label) for label in labels}) <= 1:
            return array
        mixed = np.empty(len(labels), object)
        mixed[:] = labels
        return mixed

    def predict_proba_one(self, x: Features, **_: object) -> dict[Hashable, float]:
        """The probability of each class seen so far; empty before the first."""
        if not self.__sklearn_is_fitted__():
            return {}
        core = self._core
        return dict(zip(core.classes, core.predict_one(as_dict(x)), strict=True))

    def predict_one(self, x: Features, **_: object) -> Hashable | None:
        """The most probable class; `None` before the first."""
        found = self.predict_proba_one(x)
        return max(found, key=found.__getitem__) if found else None

    def predict_proba_many(self, X: Rows) -> "pd.DataFrame":
        """Probabilities as a pandas frame with one column for each class."""
        import pandas as pd

        core = self._core if self.__sklearn_is_fitted__() else self._made
        return pd.DataFrame(core.predict(X), columns=core.classes, index=getattr(X, "index", None))

    def predict_many(self, X: Rows) -> "pd.Series | pd.DataFrame":
        """The most probable class of each row, as a pandas series."""
        found = self.predict_proba_many(X)
        return found if found.empty else found.idxmax(axis="columns")

    def partial_fit(self, X: Rows, y: Targets, classes: Sequence[Hashable] | None = None) -> Self:
        """Learn rows of an array or frame in their order. `classes` may name classes in advance."""
        return self._learn_array(X, y, classes, first="_core" not in self.__dict__)

    def predict_proba(self, X: Rows) -> np.ndarray:
        """Probabilities, one column for each of `classes_`."""
        core = self._fitted
        table, _ = self._validated(X)
        return core.predict(table)[:, self._order()]

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
        """The classes by their rank, as indices into the order of their appearance."""
        labels = self._fitted.classes
        try:
            return sorted(range(len(labels)), key=labels.__getitem__)  # type: ignore[arg-type]
        except TypeError:
            return sorted(range(len(labels)), key=lambda i: (str(type(labels[i])), str(labels[i])))

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


faces.register("Classifier", StreamingClassifier)
