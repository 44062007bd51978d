"""Members of the first order: weights that step down the gradient, at a fixed rate.

They cost as much as a product of weights and row, and learn it as it looks to running statistics
that have it in them. For log loss they are plain steps; for squared and Huber loss steps to where
the gradient *after* the step is the one taken, which no rate can make diverge:

    y <- y + rate * pull a / (1 + rate |a|^2).
"""

import math

import numpy as np

from .algebra import dot
from .layout import FEATURES, LOSS, OUTPUTS, SOFTMAX
from .views import Plain, inlined


@inlined
def outputs_of(i: int, sizes: np.ndarray, plain: Plain, a: np.ndarray, outputs: np.ndarray) -> bool:
    """The outputs that member i predicts with; whether they are finite."""
    finite = True
    for k in range(sizes[OUTPUTS]):
        outputs[k] = dot(plain.weights[i, k], a)
        finite = finite and math.isfinite(outputs[k])
    return finite


@inlined
def descend(
    i: int,
    sizes: np.ndarray,
    plain: Plain,
    a: np.ndarray,
    slope: np.ndarray,
    length: float,
    weight: float,
) -> None:
    """One step of member i; `slope` = -d loss / dz, `length` = |a|^2, `weight` that of the row."""
    rate = weight * plain.rates[i]
    if sizes[LOSS] > SOFTMAX:
        rate /= 1.0 + rate * length
    for k in range(sizes[OUTPUTS]):
        step, weights = rate * slope[k], plain.weights[i, k]
        for j in range(sizes[FEATURES] + 1):
            weights[j] += step * a[j]
