"""Weights of rows, as people give them and as their classes have them."""

import math
from collections.abc import Hashable, Mapping, Sequence

import numpy as np
import numpy.typing as npt

Weights = npt.ArrayLike | None
"""One for all rows, or one for each; `None` is 1."""


def one_weight(weight: object) -> float:
    """The weight of a row; an error for what cannot be one."""
    try:
        value = float(weight)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        value = math.nan
    if not 0 <= value < math.inf:
        raise ValueError(f"w must be a finite number >= 0, but is {weight!r}.")
    return value


def many_weights(weights: Weights, size: int, name: str = "w") -> np.ndarray | None:
    """One for each row; `None` where all are 1."""
    if weights is None:
        return None
    try:
        found = np.asarray(weights, np.float64)
    except (TypeError, ValueError):
        raise ValueError(f"{name} must be numbers, but is {type(weights).__name__}.") from None
    if found.shape not in ((), (size,)):
        raise ValueError(
            f"{name} must be a number or one for each of {size} rows, but has shape {found.shape}."
        )
    wrong = found[~((found >= 0) & (found < math.inf))]
    if wrong.size:
        raise ValueError(f"{name} must be finite numbers >= 0, but one is {wrong.flat[0]}.")
    return np.broadcast_to(found, (size,))


def of_classes(
    by_class: Mapping[Hashable, float], classes: Sequence[Hashable], codes: np.ndarray
) -> np.ndarray:
    """The weight of the class of each row; 1 for one that `by_class` does not have."""
    weights = np.array([by_class.get(label, 1.0) for label in classes] or [1.0])
    return weights[codes.astype(np.int64)]
