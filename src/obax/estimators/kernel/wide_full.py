"""The member with full curvature, while a wide model has few enough features for it.

Its weights are a random walk that is drawn to zero, of which the rows tell something (a Kalman
filter): with the covariance P of the weights, the same for every class,

    s = P a,   v = a . s,   y_new = keep (y + s k),
    P_new = keep^2 (P - h / (1 + h v) s s') + drift I,

k = weight pull(z*) as always, h the curvature at z*, keep = 1 - 1 / (2 memory), and drift so that a
weight of which nothing is told goes back to the variance 1 / inertia. d^2 numbers are touched in a
row, where factors of a curvature with inertia and penalty in it would take d^3.
"""

import math

import numpy as np
from numba import njit

from .losses import proximal
from .wide_layout import CELL_AT, DELTA, HEAD_AT, LOSS, OUTPUTS, SEEN
from .wide_member import INERTIA, MEMORY, SANE, lift_of, own


@njit
def say_full(
    cells: np.ndarray, sizes: np.ndarray, m: int, places: np.ndarray, a: np.ndarray, z0: np.ndarray
) -> None:
    """Outputs z0 of a row."""
    at = own(sizes, m, CELL_AT) + 1
    for k in range(sizes[OUTPUTS]):
        z0[k] = 0.0
        for i in range(places.shape[0]):
            z0[k] += a[i] * cells[places[i], at + k]


@njit
def learn_full(
    head: np.ndarray,
    cells: np.ndarray,
    sizes: np.ndarray,
    settings: np.ndarray,
    square: np.ndarray,
    m: int,
    places: np.ndarray,
    a: np.ndarray,
    z0: np.ndarray,
    target: float,
    weight: float,
) -> bool:
    """Train on a row of which `say_full` has left z0. False, and nothing is written, where
    something is not finite."""
    side, outs, kind = square.shape[0], sizes[OUTPUTS], sizes[LOSS]
    x, at = own(sizes, m, HEAD_AT), own(sizes, m, CELL_AT) + 1
    spread, short = np.zeros(side), np.zeros((3, outs))
    for i in range(places.shape[0]):
        line, by = square[places[i]], a[i]
        for j in range(side):
            spread[j] += by * line[j]
    v = 0.0
    for i in range(places.shape[0]):
        v += a[i] * spread[places[i]]
    p, pull = short[0], short[1]
    bend = proximal(kind, z0, v, target, weight, short[2], settings[DELTA], p, pull)
    h = lift_of(kind, False, weight, p, pull, bend)
    check = abs(v) + abs(h)
    for k in range(outs):
        check += abs(pull[k])
    for j in range(side):
        check += abs(spread[j])
    if not (check <= SANE and v >= 0.0):
        return False
    keep = 1.0 - 0.5 * math.exp(-head[x + MEMORY])
    drift, by = (1.0 - keep * keep) * math.exp(-head[x + INERTIA]), h / (1.0 + h * v)
    for i in range(side):
        # A feature that has not come yet is as it was, whenever there was room for it.
        if i > 0 and spread[i] == 0.0 and cells[i, SEEN] == 0.0:
            continue
        line, scale = square[i], by * spread[i]
        for j in range(side):
            line[j] = keep * keep * (line[j] - scale * spread[j])
        line[i] += drift
        kept = keep if i > 0 else 1.0
        for k in range(outs):
            cells[i, at + k] = kept * (cells[i, at + k] + weight * pull[k] * spread[i])
    return True
