"""One row: test, train, tune. See the package for the mathematics."""

import math

import numpy as np
from numba import njit

from .algebra import dot, solve
from .layout import (
    CENTRE,
    CLASSES,
    CURVATURE,
    CURVATURE_SLOPE,
    DELTA,
    DRAWN,
    ENTRIES,
    FADING,
    FEATURES,
    FIRST,
    FRESH,
    HIGH,
    LEARNED,
    LOSS,
    LOW,
    MEAN,
    OUTPUTS,
    PENALTIES,
    RIDGE,
    ROWS,
    SCALE_MEMORY,
    SECOND,
    SENSITIVITY,
    SETTINGS,
    SIGMOID,
    SOFTMAX,
    SQUARE,
    STEP_SIZE,
    STEPS,
    TARGET_AVERAGE,
    TARGET_VARIANCE,
    WEIGHTS,
    X,
)
from .losses import LOGIT_VARIANCE, moderation, proximal, pull_slope, suffered
from .predict import predict
from .record import note
from .statistics import CLIP, LARGEST, count, deviations, importance
from .views import hyperparameters, lines, part, squares

WARM_UP, WARM_UP_ROWS = 10.0, 300.0
"""The leader's first steps are 1 + WARM_UP times as long, falling to plain ones."""
MEAN_DECAY, SQUARE_DECAY = 0.9, 0.9997
"""Of the running means of the hypergradient and of its square. The second one is long: what one
change of the stream weighs must not be forgotten before the next, or the small slopes in between
move x as far as the large ones."""
REJECTED, ACCEPTED, ABSURD = range(3)
"""A row that would have made the model NaN or Inf; one that was played; one with a value beyond
LARGEST, which is left to Python to put into words."""


@njit
def differentiate(
    vector: np.ndarray,
    work: np.ndarray,
    sizes: np.ndarray,
    entry: int,
    j: int,
    k: int,
    spread: np.ndarray,
    tilt: np.ndarray,
    q: np.ndarray,
    bent: np.ndarray,
) -> None:
    """Along the learned entry j of x, for output k: q = dr y + ridge S - dL u and bent = dL s.
    `tilt` is dA, empty where it is 0 or neglected."""
    f, penalties, d = sizes[FEATURES], sizes[PENALTIES], sizes[FEATURES] + 1
    inertia, forgetting = hyperparameters(vector, sizes)
    y, drawn = lines(vector, sizes, WEIGHTS)[k], lines(work, sizes, DRAWN)[k]
    ridge = part(work, sizes, RIDGE)
    begin = sizes[SENSITIVITY] + (j * sizes[OUTPUTS] + k) * d
    sensitivity = vector[begin : begin + d]
    curvature = squares(vector, sizes, CURVATURE)[k]
    explicit = 1.0 if entry == penalties + 1 else 0.0
    along_x = forgetting * (1.0 - forgetting) if entry == penalties + 1 else 1.0
    for i in range(d):
        q[i] = ridge[i] * sensitivity[i]
        bent[i] = 0.0
    # dl A + forgetting dA, times u and times s.
    if tilt.shape[0] > 0:
        for i in range(d):
            by, along = drawn[i], spread[i]
            for m in range(d):
                bend = along_x * (curvature[i, m] * explicit + forgetting * tilt[i, m])
                q[m] -= by * bend
                bent[m] += along * bend
    if entry < penalties:
        for i in range(f) if penalties == 1 else range(entry, entry + 1):
            q[i] += ridge[i] * (y[i] - drawn[i])
            bent[i] += ridge[i] * spread[i]
    elif entry == penalties:
        for i in range(d):
            q[i] -= inertia * drawn[i]
            bent[i] += inertia * spread[i]


@njit
def play_row(
    vector: np.ndarray,
    record: np.ndarray,
    work: np.ndarray,
    sizes: np.ndarray,
    row: np.ndarray,
    target: float,
    teach: bool,
    said: np.ndarray,
) -> tuple[int, float]:
    """Test on a row and, where `teach`, train on it and tune; what became of it, and its loss."""
    f, outs, kind, n = sizes[FEATURES], sizes[OUTPUTS], sizes[LOSS], sizes[LEARNED]
    d, penalties, classify = f + 1, sizes[PENALTIES], kind <= SOFTMAX
    settings = part(work, sizes, SETTINGS)
    if teach:
        absurd = not abs(target) <= LARGEST
        for i in range(f):
            absurd = absurd or abs(row[i]) > LARGEST
        if absurd:
            return ABSURD, 0.0
    # Room in two pieces: to ask for each array would cost as much as the row.
    short, long = np.zeros((8 + 3 * n, outs)), np.zeros((2 + outs * (1 + n), d))
    z0, v, outputs, slope = short[0], short[1], short[2], short[3]
    a, spread = long[0], long[2 : 2 + outs]
    if not predict(vector, work, sizes, row, said, a, spread, z0, v, outputs):
        return REJECTED, 0.0
    label = int(target) if classify else 0
    if not classify:
        average = vector[sizes[TARGET_AVERAGE]]
        target_z = deviations(target, average, vector[sizes[TARGET_VARIANCE]])
    else:
        target_z = target
    balance = importance(vector, sizes, label)
    loss = balance * suffered(kind, outputs, target_z, settings[DELTA], slope)
    if not math.isfinite(loss):
        return REJECTED, 0.0
    if not teach:
        return ACCEPTED, loss
    if not classify and abs(target_z) >= CLIP:
        # In doubt: a glitch teaches nothing, and of a jump nothing but the statistics has to move.
        target_z, slope[0] = z0[0], 0.0

    # Train: z*, and with it y* = c + s weight pull(z*).
    x = part(vector, sizes, X)
    weight, shift = 1.0, short[4]
    weights_at = penalties + 2
    shifts_at = weights_at + sizes[CLASSES]
    if classify:
        weight = math.exp(x[weights_at + label])
        if kind == SIGMOID:
            shift[0] = x[shifts_at + 1] - x[shifts_at]
        else:
            for k in range(outs):
                shift[k] = x[shifts_at + k]
    p, pull, bend = short[5], short[6], short[7]
    proximal(kind, z0, v, target_z, weight, shift, settings[DELTA], p, pull, bend)

    # Along each learned entry of x: the slopes of z0 and v, and one solve.
    _, forgetting = hyperparameters(vector, sizes)
    curvature = squares(vector, sizes, CURVATURE)
    first, drawn = squares(work, sizes, FIRST), lines(work, sizes, DRAWN)
    second = first if sizes[STEPS] > 0 else squares(work, sizes, SECOND)
    sensitivity = part(vector, sizes, SENSITIVITY).reshape(n, outs, d)
    dz0, dv, dbend = short[8 : 8 + n], short[8 + n : 8 + 2 * n], short[8 + 2 * n :]
    bent, solved = long[1], long[2 + outs :].reshape(outs, n, d)
    entries = sizes[ENTRIES : ENTRIES + n]
    slopes_of_a = part(vector, sizes, CURVATURE_SLOPE)
    tilts = slopes_of_a.reshape(slopes_of_a.shape[0] // (outs * d * d), outs, d, d)
    plain = n - tilts.shape[0]
    for k in range(outs):
        for j in range(n):
            q = solved[k, j]
            moves = j >= plain and (classify or entries[j] == penalties + 1)
            tilt = tilts[j - plain, k] if moves else curvature[k, :0]
            differentiate(vector, work, sizes, entries[j], j, k, spread[k], tilt, q, bent)
            dz0[j, k] = dot(sensitivity[j, k], a) - dot(spread[k], q)
            dv[j, k] = -dot(spread[k], bent)
            for i in range(d):
                q[i] += weight * pull[k] * bent[i]
        solve(first[k], second[k], solved[k], sizes[STEPS])

    # The slope of the loss, and the new sensitivity S - L^-1 (q + weight pull dL s) + s d(pull).
    slopes, dshift, dpull = np.zeros(n), np.zeros(outs), np.empty(outs)
    check = 0.0
    for j in range(n):
        entry = entries[j]
        for k in range(outs):
            change = dz0[j, k]
            if classify:
                by = moderation(v[k])
                change = (change - 0.5 * LOGIT_VARIANCE * z0[k] * dv[j, k] / (by * by)) / by
            slopes[j] -= balance * slope[k] * change
            dshift[k] = 1.0 if classify and entry == shifts_at + k else 0.0
        if kind == SIGMOID:
            # One logit for two classes: the shift is that of the second less that of the first.
            dshift[0] = (1.0 if entry == shifts_at + 1 else 0.0) - dshift[0]
        dweight = weight if classify and entry == weights_at + label else 0.0
        pull_slope(kind, p, v, pull, bend, weight, dz0[j], dv[j], dweight, dshift, dpull)
        for k in range(outs):
            by = dweight * pull[k] + weight * dpull[k]
            if classify:
                # bend = weight p (1 - p), and dp = -dpull.
                dbend[j, k] = dweight * p[k] * (1.0 - p[k]) - weight * (1.0 - 2.0 * p[k]) * dpull[k]
            for i in range(d):
                new = sensitivity[j, k, i] - solved[k, j, i] + spread[k, i] * by
                solved[k, j, i] = settings[FADING] * new
                check += new
        check += slopes[j] * slopes[j]
    centre = lines(work, sizes, CENTRE)
    for k in range(outs):
        for i in range(d):
            check += centre[k, i] + weight * pull[k] * spread[k, i]
    # The guard: nothing is written before all of it is known to be finite.
    if not math.isfinite(check):
        return REJECTED, 0.0

    work[sizes[FRESH]] = 0.0
    weights = lines(vector, sizes, WEIGHTS)
    for k in range(outs):
        for j in range(plain, n):
            by = 1.0 if entries[j] == penalties + 1 else 0.0
            if not (classify or by > 0.0):
                continue
            scale = forgetting * (1.0 - forgetting) if by > 0.0 else 1.0
            tilt = tilts[j - plain, k]
            for i in range(d):
                lift = dbend[j, k] / scale * a[i]
                for m in range(d):
                    tilt[i, m] = forgetting * tilt[i, m] + by * curvature[k, i, m] + lift * a[m]
        for i in range(d):
            weights[k, i] = centre[k, i] + weight * pull[k] * spread[k, i]
            lift = bend[k] * a[i]
            for m in range(d):
                curvature[k, i, m] = forgetting * curvature[k, i, m] + lift * a[m]
        for j in range(n):
            for i in range(d):
                sensitivity[j, k, i] = solved[k, j, i]
    tune(vector, work, sizes, slopes)
    count(vector, sizes, row, target, label, settings[SCALE_MEMORY])
    note(record, loss, x)
    return ACCEPTED, loss


@njit
def tune(vector: np.ndarray, work: np.ndarray, sizes: np.ndarray, slopes: np.ndarray) -> None:
    """The leader's step: along the running mean of the hypergradient, in units of its running size,
    so that a start that is five orders of magnitude off is left as fast as any other."""
    rows, x = vector[sizes[ROWS]], part(vector, sizes, X)
    mean, square = part(vector, sizes, MEAN), part(vector, sizes, SQUARE)
    low, high = part(work, sizes, LOW), part(work, sizes, HIGH)
    rate = work[sizes[SETTINGS] + STEP_SIZE] * (1.0 + WARM_UP / (1.0 + rows / WARM_UP_ROWS))
    mean_share = 1.0 - MEAN_DECAY ** (rows + 1.0)
    square_share = 1.0 - SQUARE_DECAY ** (rows + 1.0)
    for j in range(sizes[LEARNED]):
        mean[j] = MEAN_DECAY * mean[j] + (1.0 - MEAN_DECAY) * slopes[j]
        square[j] = SQUARE_DECAY * square[j] + (1.0 - SQUARE_DECAY) * slopes[j] * slopes[j]
        size = math.sqrt(square[j] / square_share) + 1e-12
        at = sizes[ENTRIES + j]
        x[at] = min(max(x[at] - rate * mean[j] / mean_share / size, low[at]), high[at])
    vector[sizes[ROWS]] = rows + 1.0
