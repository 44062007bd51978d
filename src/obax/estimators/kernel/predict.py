"""What is said of a row before it is learned."""

import math

import numpy as np
from numba import njit

from .algebra import dot, factorise, solve
from .layout import (
    AVERAGES,
    CENTRE,
    CURVATURE,
    DRAWN,
    FEATURES,
    FIRST,
    FRESH,
    LOSS,
    OUTPUTS,
    PENALTIES,
    RIDGE,
    SECOND,
    SIGMOID,
    SOFTMAX,
    STEPS,
    TARGET_AVERAGE,
    TARGET_VARIANCE,
    VARIANCES,
    WEIGHTS,
    X,
)
from .losses import moderation, sigmoid, softmax
from .statistics import EPS, deviations
from .views import hyperparameters, lines, part, squares


@njit
def prepare(vector: np.ndarray, work: np.ndarray, sizes: np.ndarray) -> bool:
    """Factors of L and centres c of every output, if the state has moved since the last time;
    whether L is definite."""
    if work[sizes[FRESH]] == 1.0:
        return True
    f, d, steps = sizes[FEATURES], sizes[FEATURES] + 1, sizes[STEPS]
    weights, curvature = lines(vector, sizes, WEIGHTS), squares(vector, sizes, CURVATURE)
    first = squares(work, sizes, FIRST)
    second = first if steps > 0 else squares(work, sizes, SECOND)
    centre, drawn = lines(work, sizes, CENTRE), lines(work, sizes, DRAWN)
    ridge = part(work, sizes, RIDGE)
    inertia, forgetting = hyperparameters(vector, sizes)
    for i in range(f):
        ridge[i] = math.exp(vector[sizes[X] + (i if sizes[PENALTIES] > 1 else 0)])
    ridge[f] = 0.0
    for k in range(sizes[OUTPUTS]):
        matrix, trace = first[k], 0.0
        for i in range(d):
            for j in range(d):
                matrix[i, j] = forgetting * curvature[k, i, j]
            matrix[i, i] += inertia + ridge[i]
            trace += matrix[i, i]
        if steps == 0:
            # What rounding has taken from the smallest eigenvalue.
            for i in range(d):
                matrix[i, i] += 4.0 * EPS * trace
            if not factorise(matrix, second[k]):
                return False
        for i in range(d):
            drawn[k, i] = ridge[i] * weights[k, i]
        solve(first[k], second[k], drawn[k : k + 1], steps)
        for i in range(d):
            centre[k, i] = weights[k, i] - drawn[k, i]
    work[sizes[FRESH]] = 1.0
    return True


@njit
def predict(
    vector: np.ndarray,
    work: np.ndarray,
    sizes: np.ndarray,
    row: np.ndarray,
    said: np.ndarray,
    a: np.ndarray,
    spread: np.ndarray,
    z0: np.ndarray,
    v: np.ndarray,
    outputs: np.ndarray,
) -> bool:
    """Predict a row, NaN where a feature is missing; whether what is said is finite.

    `said` is a number for regression and a probability for each class. Leaves the standardised row,
    s = L^-1 a, z0, v and the outputs that are predicted with.
    """
    f, d, classify = sizes[FEATURES], sizes[FEATURES] + 1, sizes[LOSS] <= SOFTMAX
    ready = prepare(vector, work, sizes)
    averages, variances = part(vector, sizes, AVERAGES), part(vector, sizes, VARIANCES)
    for i in range(f):
        a[i] = deviations(row[i], averages[i], variances[i])
    a[f] = 1.0
    first, centre = squares(work, sizes, FIRST), lines(work, sizes, CENTRE)
    second = first if sizes[STEPS] > 0 else squares(work, sizes, SECOND)
    finite = ready
    for k in range(sizes[OUTPUTS]):
        for i in range(d):
            spread[k, i] = a[i]
        solve(first[k], second[k], spread[k : k + 1], sizes[STEPS])
        z0[k], v[k] = dot(centre[k], a), dot(spread[k], a)
        outputs[k] = z0[k] / moderation(v[k]) if classify else z0[k]
        finite = finite and math.isfinite(outputs[k])
    if not finite:
        for k in range(sizes[OUTPUTS]):
            outputs[k] = 0.0
    if sizes[LOSS] == SIGMOID:
        said[0], said[1] = sigmoid(-outputs[0]), sigmoid(outputs[0])
    elif sizes[LOSS] == SOFTMAX:
        softmax(outputs, np.zeros(outputs.shape[0]), said)
    else:
        deviation = math.sqrt(vector[sizes[TARGET_VARIANCE]])
        said[0] = vector[sizes[TARGET_AVERAGE]] + deviation * outputs[0]
    return finite
