"""What a row costs, for each kind of target: the loss, its slope, the proximal step and how that
moves.

A model has K outputs z = (y_k . a)_k: one for two classes and for regression, C for C classes. In
`z` the follower's step on a row is small, whatever the number of features:

    z* = argmin_z  |z - z0|^2 / (2 v) + weight * loss(z + shift, target).

`shift` is the logit adjustment and `weight` that of the row times that of its class; both are
neutral unless asked for.
"""

import math

import numpy as np
from numba import njit

from .layout import HUBER, SIGMOID, SOFTMAX, SQUARED

MOST_STEPS, CONVERGED = 100, 1e-14
"""Newton steps to z*; a handful is enough for most rows."""
SMALL = 1e-7
"""Newton steps square the error: what one of this size leaves is rounding."""
LOGIT_VARIANCE = math.pi / 8
LEAST = 1e-300
"""The least probability that has a logarithm here."""


@njit
def sigmoid(z: float) -> float:
    """1 / (1 + exp(-z)), without overflow."""
    if z >= 0.0:
        return 1.0 / (1.0 + math.exp(-z))
    e = math.exp(z)
    return e / (1.0 + e)


@njit
def both_sides(z: float, out: np.ndarray) -> None:
    """The probabilities of the second class, with logit z, and of the first."""
    e = math.exp(-abs(z))
    large = 1.0 / (1.0 + e)
    first = 1 if z < 0.0 else 0
    out[1 - first], out[first] = large, e * large


@njit
def softmax(z: np.ndarray, shift: np.ndarray, out: np.ndarray) -> None:
    """Probabilities of logits z + shift."""
    for k in range(z.shape[0]):
        out[k] = z[k] + shift[k]
    normalise(out)


@njit
def normalise(logits: np.ndarray) -> None:
    """Probabilities in the place of their logits."""
    top = logits[0]
    for k in range(1, logits.shape[0]):
        top = max(top, logits[k])
    total = 0.0
    for k in range(logits.shape[0]):
        logits[k] = math.exp(logits[k] - top)
        total += logits[k]
    for k in range(logits.shape[0]):
        logits[k] /= total


@njit
def moderation(v: float) -> float:
    """A logit of variance v is divided by this, as if averaged over its Gaussian (MacKay 1992)."""
    return math.sqrt(1.0 + LOGIT_VARIANCE * v)


@njit
def descent(kind: int, z: np.ndarray, target: float, delta: float, slope: np.ndarray) -> None:
    """-d loss / dz, into `slope`."""
    if kind == SIGMOID:
        sign = 1.0 if target > 0.0 else -1.0
        slope[0] = sign * sigmoid(-sign * z[0])
    elif kind == SOFTMAX:
        for k in range(z.shape[0]):
            slope[k] = z[k]
        normalise(slope)
        for k in range(z.shape[0]):
            slope[k] = (1.0 if k == int(target) else 0.0) - slope[k]
    else:
        error = target - z[0]
        slope[0] = error if kind == SQUARED else min(max(error, -delta), delta)


@njit
def surprise(z: np.ndarray, label: int) -> float:
    """-ln of the probability that logits give a class."""
    top = z[0]
    for k in range(1, z.shape[0]):
        top = max(top, z[k])
    total = 0.0
    for k in range(z.shape[0]):
        total += math.exp(z[k] - top)
    return -math.log(max(math.exp(z[label] - top) / total, LEAST))


@njit
def suffered(kind: int, z: np.ndarray, target: float, delta: float, slope: np.ndarray) -> float:
    """The loss of outputs, and -d loss / dz. `slope` may stand where z does."""
    error = abs(target - z[0])
    if kind == SIGMOID:
        margin = -z[0] if target > 0.0 else z[0]
        loss = max(margin, 0.0) + math.log1p(math.exp(-abs(margin)))
    elif kind == SOFTMAX:
        loss = surprise(z, int(target))
    elif kind == SQUARED:
        loss = 0.5 * error * error
    else:
        inside = min(error, delta)
        loss = inside * (error - 0.5 * inside)
    descent(kind, z, target, delta, slope)
    return loss


@njit
def proximal(
    kind: int,
    z0: np.ndarray,
    v: float,
    target: float,
    weight: float,
    shift: np.ndarray,
    delta: float,
    p: np.ndarray,
    pull: np.ndarray,
) -> float:
    """At z*: probabilities `p`, `pull` = -d loss / dz, and the curvature weight d2 loss, one number
    for all outputs."""
    if kind == SIGMOID:
        label = 1.0 if target > 0.0 else 0.0
        p[0] = _sigmoid_root(z0[0], weight * v, label, shift[0])
        pull[0] = label - p[0]
        return weight * p[0] * (1.0 - p[0])
    if kind == SOFTMAX:
        _softmax_root(z0, weight * v, int(target), shift, p)
        for k in range(z0.shape[0]):
            pull[k] = (1.0 if k == int(target) else 0.0) - p[k]
        return weight * shared_curvature(p)
    pull[0] = (target - z0[0]) / (1.0 + weight * v)
    if kind == HUBER and abs(pull[0]) >= delta:
        pull[0] = math.copysign(delta, pull[0])
        return 0.0
    return weight


@njit
def shared_curvature(p: np.ndarray) -> float:
    """One number for the curvature diag(p) - p p' of the softmax: the mean of its diagonal."""
    total = 0.0
    for k in range(p.shape[0]):
        total += p[k] * (1.0 - p[k])
    return total / p.shape[0]


@njit
def curvature_slope(
    kind: int, p: np.ndarray, weight: float, dweight: float, dpull: np.ndarray
) -> float:
    """How the curvature that `proximal` gives moves, with dp = -dpull."""
    if kind == SIGMOID:
        return dweight * p[0] * (1.0 - p[0]) - weight * (1.0 - 2.0 * p[0]) * dpull[0]
    if kind == SOFTMAX:
        total = 0.0
        for k in range(p.shape[0]):
            total += (1.0 - 2.0 * p[k]) * dpull[k]
        return dweight * shared_curvature(p) - weight * total / p.shape[0]
    return 0.0


@njit
def _sigmoid_root(z0: float, wv: float, label: float, shift: float) -> float:
    """The probability at z*, by Newton steps inside a bracket that holds the root.

    Where v is large, a step from a flat end of the sigmoid leads to the other end, and back: unless
    steps halve, the bracket is.
    """
    low, high = (z0, z0 + wv) if label > 0.0 else (z0 - wv, z0)
    z, step = z0, wv
    for _ in range(MOST_STEPS):
        p = sigmoid(z + shift)
        error = z - z0 - wv * (label - p)
        if error < 0.0:
            low = z
        else:
            high = z
        newton = -error / (1.0 + wv * p * (1.0 - p))
        if abs(newton) <= SMALL * (1.0 + abs(z)):
            z += newton
            break
        if low < z + newton < high and abs(newton) < 0.5 * abs(step):
            step = newton
        else:
            step = 0.5 * (low + high) - z
        z += step
    return sigmoid(z + shift)


@njit
def _softmax_root(z0: np.ndarray, wv: float, label: int, shift: np.ndarray, p: np.ndarray) -> None:
    """The probabilities at z*, by Newton steps with the Hessian 1 + wv (diag(p) - p p')."""
    z, move = z0.copy(), np.empty(z0.shape[0])
    for _ in range(MOST_STEPS):
        softmax(z, shift, p)
        across, fed = 0.0, 0.0
        for k in range(z.shape[0]):
            gain = 1.0 / (1.0 + wv * p[k])
            move[k] = gain * (z[k] - z0[k] - wv * ((1.0 if k == label else 0.0) - p[k]))
            across += p[k] * move[k]
            fed += p[k] * gain * wv * p[k]
        most = 0.0
        for k in range(z.shape[0]):
            move[k] += wv * p[k] / (1.0 + wv * p[k]) * across / (1.0 - fed)
            most = max(most, abs(move[k]))
        # Damped: a full step from far away can overshoot where the softmax is flat.
        for k in range(z.shape[0]):
            z[k] -= move[k] / (1.0 + 0.5 * most)
        if most < CONVERGED:
            break
    softmax(z, shift, p)


@njit
def pull_slope(
    kind: int,
    p: np.ndarray,
    v: float,
    pull: np.ndarray,
    bend: float,
    weight: float,
    dz0: np.ndarray,
    dv: float,
    dweight: float,
    dshift: np.ndarray,
    out: np.ndarray,
) -> None:
    """How `pull` moves with z0, v, weight and shift: the implicit function theorem at z*."""
    wv, dwv = weight * v, dweight * v + weight * dv
    if kind == SIGMOID:
        h = p[0] * (1.0 - p[0])
        right = dz0[0] + dwv * pull[0] - wv * h * dshift[0]
        out[0] = -h * (right / (1.0 + wv * h) + dshift[0])
    elif kind == SOFTMAX:
        above, below = 0.0, 1.0
        for k in range(p.shape[0]):
            gain = 1.0 / (1.0 + wv * p[k])
            out[k] = gain * (dz0[k] + dwv * pull[k] - wv * p[k] * dshift[k])
            above += p[k] * (out[k] + dshift[k])
            below -= p[k] * gain * wv * p[k]
        mean = above / below
        for k in range(p.shape[0]):
            dz = out[k] + wv * p[k] / (1.0 + wv * p[k]) * mean
            out[k] = -p[k] * (dz + dshift[k] - mean)
    else:
        out[0] = -(dz0[0] + dwv * pull[0]) / (1.0 + wv) if bend > 0.0 else 0.0
