"""Parts of the flat vectors, and the hyperparameters that the follower knows."""

import math

import numpy as np
from numba import njit

from .layout import (
    FEATURES,
    OUTPUTS,
    PENALTIES,
    X,
)
from .losses import sigmoid


@njit
def part(flat: np.ndarray, sizes: np.ndarray, at: int) -> np.ndarray:
    """A part of `vector` or `work`."""
    return flat[sizes[at] : sizes[at + 1]]


@njit
def lines(flat: np.ndarray, sizes: np.ndarray, at: int) -> np.ndarray:
    """A part that has a line for each output."""
    return part(flat, sizes, at).reshape(sizes[OUTPUTS], sizes[FEATURES] + 1)


@njit
def squares(flat: np.ndarray, sizes: np.ndarray, at: int) -> np.ndarray:
    """A part that has a square matrix for each output."""
    d = sizes[FEATURES] + 1
    return part(flat, sizes, at).reshape(sizes[OUTPUTS], d, d)


@njit
def hyperparameters(vector: np.ndarray, sizes: np.ndarray) -> tuple[float, float]:
    """Inertia and forgetting. A memory of m rows: weights 1, m/(m+1), ... whose sum is m + 1."""
    at = sizes[X] + sizes[PENALTIES]
    return math.exp(vector[at]), sigmoid(vector[at + 1])
