"""The base classes of River and scikit-learn, where they are installed.

One object has both faces: `isinstance(model, river.base.Classifier)` and
`isinstance(model, sklearn.base.ClassifierMixin)` both hold, so pipelines, selectors and metrics of
either library take it. Without a library its face works all the same, as plain methods.

scikit-learn takes a second to import, and pandas with it, so it is left to whoever uses it: the
classes get its base classes when it has been imported and a model is made, or its face is used.
"""

import inspect
import sys
from types import ModuleType
from typing import Any, Self

import numpy as np

from .table import Rows

try:
    from river import base as river_base
except ImportError:  # pragma: no cover - depends on what is installed
    river_base = None  # type: ignore[assignment]

_WAITING: dict[type, str] = {}
"""Estimators without the base classes of scikit-learn yet, and of what kind they are."""


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


def scikit_learn() -> ModuleType | None:
    """`sklearn.base`, imported now if it can be."""
    try:
        from sklearn import base
    except ImportError:
        return None
    meet()
    return base


def bases(kind: str) -> tuple[type, ...]:
    """For a "Classifier" or a "Regressor". River's `repr` and `clone` come first."""
    river = () if river_base is None else (_river_face(),)
    sklearn = sys.modules.get("sklearn.base")
    if sklearn is None or not hasattr(sklearn, f"{kind}Mixin"):
        return (*river, _Plain)
    return (getattr(sklearn, f"{kind}Mixin"), *river, sklearn.BaseEstimator)


def meet() -> None:
    """Give waiting estimators the base classes of scikit-learn, if it is there by now."""
    if not _WAITING or "sklearn.base" not in sys.modules:
        return
    for estimator, kind in list(_WAITING.items()):
        del _WAITING[estimator]
        own = [base for base in estimator.__bases__ if base.__module__ != __name__]
        estimator.__bases__ = (*own, *bases(kind))
        estimator.__init_subclass__()


def register(kind: str, estimator: type) -> None:
    """Make `isinstance(model, river.base.Classifier)` and the like hold."""
    if river_base is not None:
        getattr(river_base, f"MiniBatch{kind}").register(estimator)
    if not any(base.__module__ == "sklearn.base" for base in estimator.__bases__):
        _WAITING[estimator] = kind
