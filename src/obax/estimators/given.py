"""What is handed to a method, as the model takes it."""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from .sparse import Sparse, from_matrix
from .table import Features, Rows, Table, tables

Targets = Iterable[object]
"""One target per row: a list, a series, an array."""


def as_dict(row: Features | None) -> Features:
    """The row itself; an error for what is not a dict."""
    if type(row) is dict or isinstance(row, Mapping):
        return row
    raise ValueError(
        f"x must be a dict of features, but is {type(row).__name__}; use learn_many or partial_fit "
        f"for arrays and frames."
    )


def index_of(X: Rows) -> Any:
    """That of a pandas frame. Lists have an `index` too, a method."""
    index = getattr(X, "index", None)
    return None if callable(index) else index


def targets_of(y: Targets) -> list[object] | np.ndarray:
    """One target per row: an array as it is, anything else as Python's own types."""
    if isinstance(y, np.ndarray):
        return y.ravel()
    if hasattr(y, "to_list"):
        return y.to_list()
    if isinstance(y, Iterable) and not isinstance(y, str | bytes | Mapping):
        return list(y)
    raise ValueError(f"y must be one target per row, but is {type(y).__name__}.")


def checked_rows(model: Any, X: Rows, first: bool) -> Rows | Sparse:
    """Rows by scikit-learn's conventions: errors for what is malformed as a whole; single NaN and
    Inf are left to the rule of `table`."""
    from sklearn.utils.validation import validate_data

    named = next(tables(X)) if hasattr(X, "columns") else None
    if named is not None and (named.words or named.days):
        # Words and dates, which an array of numbers cannot hold: names and widths are checked.
        validate_data(model, X, reset=first, skip_check_array=True)
        return named
    checks = {"ensure_all_finite": False, "dtype": "numeric", "accept_sparse": "csr"}
    array = validate_data(model, X, reset=first, **checks)
    names = list(getattr(model, "feature_names_in_", range(array.shape[1])))
    if hasattr(array, "tocsr") and model.wide(array.shape[1]):
        return from_matrix(array, names)
    full = array.toarray() if hasattr(array, "tocsr") else array
    return Table(names, np.asarray(full, np.float64))
