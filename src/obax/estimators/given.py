"""What is handed to a method, as the model takes it."""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from .table import Features, Rows

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
