"""The base classes of River and scikit-learn, where they are installed.

One object has both faces: `isinstance(model, river.base.Classifier)` and
`isinstance(model, sklearn.base.ClassifierMixin)` both hold, so pipelines, selectors and metrics of
either library take it. Without a library its face works all the same, as plain methods.
"""

import inspect
from typing import Any, Self

import numpy as np

from .table import Rows

try:
    from river import base as river_base
except ImportError:  # pragma: no cover - depends on what is installed
    river_base = None  # type: ignore[assignment]

try:
    from sklearn import base as sklearn_base
except ImportError:  # pragma: no cover - depends on what is installed
    sklearn_base = None


class _Plain:
    """Parameters without either library."""

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        return {name: getattr(self, name) for name in inspect.signature(type(self)).parameters}

    def set_params(self, **params: object) -> Self:
        for name, value in params.items():
            if name not in self.get_params():
                raise ValueError(f"{type(self).__name__} has no parameter {name!r}.")
            setattr(self, name, value)
        return self

    def score(self, X: Rows, y: object) -> float:
        """Accuracy for classes, R^2 for numbers."""
        truth, found = np.asarray(y), np.asarray(self.predict(X))  # type: ignore[attr-defined]
        if hasattr(self, "predict_proba"):
            return float(np.mean(found == truth))
        return float(1 - np.sum((truth - found) ** 2) / np.sum((truth - truth.mean()) ** 2))

    def clone(self, new_params: dict[str, Any] | None = None, **_: object) -> Self:
        return type(self)(**(self.get_params() | (new_params or {})))


# What River's own base classes give an estimator. They are borrowed, not inherited: scikit-learn's
# checks reject a class that has River's `_more_tags` among its ancestors.
_OF_RIVER = (
    "__or__",
    "__ror__",
    "__repr__",
    "__str__",
    "_get_params",
    "clone",
    "mutate",
    "_mutable_attributes",
    "_is_stochastic",
    "_raw_memory_usage",
    "_memory_usage",
    "_more_tags",
    "_tags",
    "_unit_test_params",
    "_unit_test_skips",
    "_supervised",
)


def _river_face() -> type:
    class RiverFace:
        def __sklearn_tags__(self) -> Any:
            return super().__sklearn_tags__()  # type: ignore[misc]

    for name in _OF_RIVER:
        if hasattr(river_base.Estimator, name):
            setattr(RiverFace, name, inspect.getattr_static(river_base.Estimator, name))
    return RiverFace


def bases(kind: str) -> tuple[type, ...]:
    """For a "Classifier" or a "Regressor". River's `repr` and `clone` come first."""
    found: list[type] = []
    if sklearn_base is not None:
        found.append(getattr(sklearn_base, f"{kind}Mixin"))
    if river_base is not None:
        found.append(_river_face())
    return (*found, _Plain if sklearn_base is None else sklearn_base.BaseEstimator)


def register(kind: str, estimator: type) -> None:
    """Make `isinstance(model, river.base.Classifier)` and the like hold."""
    if river_base is not None:
        getattr(river_base, f"MiniBatch{kind}").register(estimator)
