"""A member of the wide engine: what it says of a row and how it learns it. See `wide`."""

import math

import numpy as np
from numba import njit

from .algebra import dot
from .layout import SIGMOID, SOFTMAX
from .losses import proximal, pull_slope, sigmoid, suffered
from .wide_layout import (
    CELL_AT,
    CLASSES,
    DELTA,
    FADING,
    HEAD_AT,
    KIND,
    LEARNED,
    LOSS,
    MEMBER,
    OUTPUTS,
    PER_MEMBER,
    ROOT,
    TUNED,
)

SANE = 1e100
"""A slope beyond it is on its way to Inf."""
PENALTY, INERTIA, MEMORY, CLASS_WEIGHTS = range(4)
# Lines of `short`.
SLOPE, SHIFT, P, PULL, DSHIFT, DPULL, DZ0 = range(7)


@njit
def own(sizes: np.ndarray, m: int, what: int) -> int:
    """A number of member m."""
    return sizes[MEMBER + PER_MEMBER * m + what]


@njit
def stiffness(root: bool, inertia: float, past: float) -> float:
    """How firmly a weight stays where it is, of what the past has left."""
    return inertia * math.sqrt(1.0 + past) if root else inertia + past


@njit
def say(
    head: np.ndarray,
    cells: np.ndarray,
    sizes: np.ndarray,
    m: int,
    places: np.ndarray,
    a: np.ndarray,
    inverse: np.ndarray,
    z0: np.ndarray,
) -> float:
    """Outputs z0 of a row; v is returned, 1 / L is left in `inverse`."""
    x, at = own(sizes, m, HEAD_AT), own(sizes, m, CELL_AT)
    root, outs = own(sizes, m, KIND) == ROOT, sizes[OUTPUTS]
    weights_at = at + 1 + own(sizes, m, TUNED)
    penalty, inertia = math.exp(head[x + PENALTY]), math.exp(head[x + INERTIA])
    forgetting, v = sigmoid(head[x + MEMORY]), 0.0
    for k in range(outs):
        z0[k] = 0.0
    for i in range(places.shape[0]):
        cell, ridge = places[i], penalty if i > 0 else 0.0
        inverse[i] = 1.0 / (stiffness(root, inertia, forgetting * cells[cell, at]) + ridge)
        v += a[i] * a[i] * inverse[i]
        by = a[i] * (1.0 - ridge * inverse[i])
        for k in range(outs):
            z0[k] += by * cells[cell, weights_at + k]
    return v


@njit
def lift_of(
    kind: int, root: bool, weight: float, p: np.ndarray, pull: np.ndarray, bend: float
) -> float:
    """What the row adds to the past of a feature of size 1: the curvature at z*, for many classes
    the mean of the Hessian's eigenvalues; or the square of the gradient."""
    if root:
        return weight * weight * dot(pull, pull)
    return weight * (1.0 - dot(p, p)) / (p.shape[0] - 1.0) if kind == SOFTMAX else bend


@njit
def lift_slope(kind: int, weight: float, dweight: float, p: np.ndarray, dpull: np.ndarray) -> float:
    """How `lift_of` moves, but by the root, where the weight moves by dweight and the pull, 1 - p
    or -p, by dpull."""
    if kind == SOFTMAX:
        size, along = 1.0 - dot(p, p), 2.0 * dot(p, dpull)
        return (dweight * size + weight * along) / (p.shape[0] - 1.0)
    if kind == SIGMOID:
        return dweight * p[0] * (1.0 - p[0]) - weight * (1.0 - 2.0 * p[0]) * dpull[0]
    return 0.0


@njit
def learn(
    head: np.ndarray,
    cells: np.ndarray,
    sizes: np.ndarray,
    settings: np.ndarray,
    m: int,
    places: np.ndarray,
    a: np.ndarray,
    inverse: np.ndarray,
    z0: np.ndarray,
    v: float,
    target: float,
    weight: float,
    balance: float,
    slopes: np.ndarray,
) -> bool:
    """Train the member on a row of which `say` has left z0, v and 1 / L; the slopes of the loss in
    the learned entries of x. False, and nothing is written, where something is not finite."""
    x, at, n = own(sizes, m, HEAD_AT), own(sizes, m, CELL_AT), own(sizes, m, TUNED)
    root, outs, kind = own(sizes, m, KIND) == ROOT, sizes[OUTPUTS], sizes[LOSS]
    classify, label = kind <= SOFTMAX, int(target) if kind <= SOFTMAX else 0
    short = np.zeros((DZ0 + n, outs))
    p, pull, shift, dpull = short[P], short[PULL], short[SHIFT], short[DPULL]
    weights_at, shifts_at = CLASS_WEIGHTS, CLASS_WEIGHTS + sizes[CLASSES]
    if classify:
        weight *= math.exp(head[x + weights_at + label])
        if kind == SIGMOID:
            shift[0] = head[x + shifts_at + 1] - head[x + shifts_at]
        else:
            for k in range(outs):
                shift[k] = head[x + shifts_at + k]
    bend = proximal(kind, z0, v, target, weight, shift, settings[DELTA], p, pull)
    lift = lift_of(kind, root, weight, p, pull, bend)
    check = abs(v) + abs(lift)
    for k in range(outs):
        check += abs(z0[k]) + abs(pull[k])

    penalty, inertia = math.exp(head[x + PENALTY]), math.exp(head[x + INERTIA])
    forgetting = sigmoid(head[x + MEMORY])
    fading, faster = settings[FADING], forgetting * (1.0 - forgetting)
    entries = sizes[sizes.shape[0] - sizes[LEARNED] :]
    y_at = at + 1 + n
    s_at = y_at + outs
    # Along each learned entry of x: the slopes of z0 and v, so of the loss and the pull.
    lifts, pushes = np.zeros(n), np.zeros((n, outs))
    if n > 0:
        suffered(kind, z0, target, settings[DELTA], short[SLOPE])
    for j in range(n):
        entry, dz0, dv = entries[j], short[DZ0 + j], 0.0
        for i in range(places.shape[0]):
            cell, ridge = places[i], penalty if i > 0 else 0.0
            past, tilt = cells[cell, at], cells[cell, at + 1 + j]
            change = _stiffer(inertia, forgetting, faster, ridge, past, tilt, entry)
            dv -= change * (a[i] * inverse[i]) ** 2
            keep, drawn = _drawn(ridge, inverse[i], change, entry)
            for k in range(outs):
                moved = keep * cells[cell, s_at + j * outs + k] - drawn * cells[cell, y_at + k]
                dz0[k] += a[i] * moved
        slopes[j] = 0.0
        for k in range(outs):
            slopes[j] -= balance * short[SLOPE, k] * dz0[k]
            short[DSHIFT, k] = 1.0 if classify and entry == shifts_at + k else 0.0
        if kind == SIGMOID:
            short[DSHIFT, 0] = (1.0 if entry == shifts_at + 1 else 0.0) - short[DSHIFT, 0]
        dweight = weight if classify and entry == weights_at + label else 0.0
        pull_slope(kind, p, v, pull, bend, weight, dz0, dv, dweight, short[DSHIFT], dpull)
        lifts[j] = lift_slope(kind, weight, dweight, p, dpull)
        check += abs(slopes[j]) + abs(dv) + abs(lifts[j])
        for k in range(outs):
            pushes[j, k] = dweight * pull[k] + weight * dpull[k]
            check += abs(dz0[k]) + abs(pushes[j, k])
    # The guard: dz0 has every new slope of a weight in it, so that what is written is finite.
    if not check <= SANE:
        return False

    for i in range(places.shape[0]):
        cell, ridge = places[i], penalty if i > 0 else 0.0
        spread = a[i] * inverse[i]
        for j in range(n):
            past, tilt = cells[cell, at], cells[cell, at + 1 + j]
            change = _stiffer(inertia, forgetting, faster, ridge, past, tilt, entries[j])
            keep, drawn = _drawn(ridge, inverse[i], change, entries[j])
            pushed = weight * change * spread * inverse[i]
            begin = s_at + j * outs
            for k in range(outs):
                moved = keep * cells[cell, begin + k] - drawn * cells[cell, y_at + k]
                moved += spread * pushes[j, k] - pushed * pull[k]
                cells[cell, begin + k] = fading * moved
            longer = faster * past if entries[j] == MEMORY else 0.0
            cells[cell, at + 1 + j] = forgetting * tilt + longer + lifts[j] * a[i] * a[i]
        for k in range(outs):
            kept = (1.0 - ridge * inverse[i]) * cells[cell, y_at + k]
            cells[cell, y_at + k] = kept + spread * weight * pull[k]
        cells[cell, at] = forgetting * cells[cell, at] + lift * a[i] * a[i]
    return True


@njit
def _stiffer(
    inertia: float,
    forgetting: float,
    faster: float,
    ridge: float,
    past: float,
    tilt: float,
    entry: int,
) -> float:
    """dL of a feature along an entry of x."""
    change = forgetting * tilt
    if entry == PENALTY:
        change += ridge
    elif entry == INERTIA:
        change += inertia
    elif entry == MEMORY:
        change += faster * past
    return change


@njit
def _drawn(ridge: float, inverse: float, change: float, entry: int) -> tuple[float, float]:
    """What the penalty leaves of a weight, 1 - ridge / L, and how its share ridge / L moves."""
    dridge = ridge if entry == PENALTY else 0.0
    return 1.0 - ridge * inverse, inverse * (dridge - change * ridge * inverse)
