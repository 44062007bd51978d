"""Eager checks that are the same in several files of this room."""

import operator

import numpy as np
from numpy.typing import ArrayLike

from .containers import Array


def at_least(value: object, least: int, name: str) -> int:
    """An integer no smaller than `least`."""
    try:
        number = operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        number = least - 1
    if isinstance(value, bool) or number < least:
        raise ValueError(f"{name} must be an integer >= {least}, but got {value!r}.")
    return number


def labels(values: ArrayLike, classes: int, name: str) -> Array:
    """Integer labels in 0..classes-1."""
    array = np.asarray(values)
    if array.ndim != 1 or not np.issubdtype(array.dtype, np.integer):
        raise ValueError(
            f"{name} must be a vector of integers, but is {array.dtype}{list(array.shape)}."
        )
    outside = np.unique(array[(array < 0) | (array >= classes)])
    if len(outside):
        raise ValueError(
            f"{name} must be in 0..{classes - 1}, but holds {', '.join(map(str, outside[:5]))}."
        )
    return array


def proportions(values: ArrayLike, name: str) -> Array:
    """Numbers >= 0, not all 0, scaled to sum to 1."""
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != 1 or not np.isfinite(array).all() or (array < 0).any() or not array.sum() > 0:
        raise ValueError(f"{name} must be a vector of numbers >= 0, not all 0, but got {values!r}.")
    return array / array.sum()
