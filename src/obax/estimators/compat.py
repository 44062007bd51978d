"""Use with River and scikit-learn: their base classes, where they are installed.

`isinstance(model, river.base.Classifier)` and `isinstance(model, sklearn.base.ClassifierMixin)`
both hold, so pipelines, selectors and metrics of either library take an estimator. Without a
library the same methods work.

scikit-learn takes a second to import, and pandas with it, so it is not imported here: the
estimators get its base classes when it has been imported and a model is made, or when one of its
methods is called.
"""

import inspect
import sys
from types import FunctionType, ModuleType
from typing import Any, Self

import numpy as np

from .inputs.table import Rows, Table, tables

try:
    from river import base as river_base
except ImportError:  # pragma: no cover - depends on what is installed
    river_base = None  # type: ignore[assignment]

NOT_OF_RIVER = {"__repr__", "__str__", "_repr_html_"}
"""Methods of its base classes that the estimators do not take over."""
_WAITING: dict[type, str] = {}
"""Estimators that have no base class of scikit-learn yet, with their kind."""


class _Plain:
    """Parameters and score where neither library is installed."""

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        return {name: getattr(self, name) for name in inspect.signature(type(self)).parameters}

    def set_params(self, **params: object) -> Self:
        for name, value in params.items():
            if name not in self.get_params():
                raise ValueError(f"{type(self).__name__} has no parameter {name!r}.")
            setattr(self, name, value)
        return self

    def score(self, X: Rows, y: object) -> float:
        """Return the accuracy for classes, R^2 for numbers."""
        truth, found = np.asarray(y), np.asarray(self.predict(X))  # type: ignore[attr-defined]
        if hasattr(self, "predict_proba"):
            return float(np.mean(found == truth))
        return float(1 - np.sum((truth - found) ** 2) / np.sum((truth - truth.mean()) ** 2))

    def clone(self, new_params: dict[str, Any] | None = None, **_: object) -> Self:
        return type(self)(**(self.get_params() | (new_params or {})))


def _river_base() -> type:
    """Return a class with the methods of River's base classes.

    They are copied, not inherited: scikit-learn's checks reject a class that has River's
    `_more_tags` among its ancestors.
    """

    class RiverBase:
        def __sklearn_tags__(self) -> Any:
            return super().__sklearn_tags__()  # type: ignore[misc]

    for kind in (river_base.base.Base, river_base.Estimator):
        for name in vars(kind).keys() - NOT_OF_RIVER:
            member = vars(kind)[name]
            if isinstance(member, FunctionType | property | classmethod):
                setattr(RiverBase, name, member)
    return RiverBase


def scikit_learn() -> ModuleType | None:
    """Import `sklearn.base` if it is installed."""
    try:
        from sklearn import base
    except ImportError:
        return None
    add_bases()
    return base


def bases(kind: str) -> tuple[type, ...]:
    """Return base classes for a "Classifier" or a "Regressor", River's methods first."""
    river = () if river_base is None else (_river_base(),)
    sklearn = sys.modules.get("sklearn.base")
    if sklearn is None or not hasattr(sklearn, f"{kind}Mixin"):
        return (*river, _Plain)
    return (getattr(sklearn, f"{kind}Mixin"), *river, sklearn.BaseEstimator)


def add_bases() -> None:
    """Give waiting estimators the base classes of scikit-learn, if it was imported by now."""
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


def not_fitted(text: str) -> Exception:
    """Return scikit-learn's error for models that have not learned, if it is imported."""
    if "sklearn" not in sys.modules:
        return AttributeError(text)
    from sklearn.exceptions import NotFittedError

    return NotFittedError(text)


def validated(estimator: Any, X: Rows, first: bool) -> Any:
    """Return rows checked by scikit-learn's conventions: errors for what is malformed as a whole;
    single NaN and Inf are left to the rule of `inputs`."""
    from sklearn.utils.validation import validate_data

    table = next(tables(X)) if hasattr(X, "columns") else None
    if table is not None and (table.words or table.days):
        # Words and dates, which an array of numbers cannot hold: names and widths are checked.
        validate_data(estimator, X, reset=first, skip_check_array=True)
        return table
    checks = {"ensure_all_finite": False, "dtype": "numeric", "accept_sparse": "csr"}
    array = validate_data(estimator, X, reset=first, **checks)
    if hasattr(array, "tocsr"):
        return array
    names = list(getattr(estimator, "feature_names_in_", range(array.shape[1])))
    return Table(names, np.asarray(array, np.float64))
