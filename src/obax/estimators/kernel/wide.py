"""The wide engine: many features, sparse rows, at the cost of the keys that are present.

A row is its keys and their values; features that are not there are not touched. Each member solves

    g_t(x, y) = weight loss(y . a_t, target_t) + 1/2 sum_i stiff_i (y_i - y_t,i)^2
                + penalty/2 sum_i y_i^2          over the keys i of the row and the intercept,

the follower of the package with *diagonal* curvature, the same for every class:

    stiff_i = inertia + forgetting A_i,              A_i = sum forgetting^age h a_i^2,  or
    stiff_i = inertia sqrt(1 + forgetting A_i),      A_i = sum forgetting^age |weight pull|^2 a_i^2,

where sums are over the rows that had feature i and their age counts such rows: what a word means is
not forgotten while it is not used. h is p (1 - p) for two classes, the mean eigenvalue of the
Hessian for more, 1 for numbers. The second kind, by the root, is AdaGrad with an implicit step; the
members of the first order are such, and x of the second kind is not learned.

With L_i = stiff_i + penalty (0 for the intercept): y_new,i = (1 - penalty / L_i) y_i + a_i / L_i k,
where `losses` solves for k = weight pull(z*) as always. The sensitivity S = dy/dx is carried along
feature by feature and so is dA_i/dx, with all that depends on x: the hypergradient is exact but for
`fading`. Logits are not moderated: the v of a diagonal is no variance where features go together.

One member, the long memory, has full curvature up to MOST_FULL features: see `wide_full`.
How values are scaled: see `wide_scale`.
"""

import math

import numpy as np
from numba import njit

from .layout import EVERYONE, LEADER, SIGMOID, SOFTMAX
from .lead import step
from .losses import LEAST, sigmoid, softmax, suffered
from .mixture import densities, learn_residuals, mix, renew as renew_shares, temper
from .record import note
from .row import ABSURD, ACCEPTED, REJECTED
from .statistics import LARGEST, deviations, rarity
from .wide_full import learn_full, say_full
from .wide_layout import (
    BALANCE,
    CLASSES,
    DELTA,
    FREQUENCY,
    FULL,
    HEAD_AT,
    KIND,
    LEARNED,
    LOSS,
    LOW,
    MEMBERS,
    OUTPUTS,
    ROWS,
    SHARE,
    SHARES,
    STEP_SIZE,
    TARGET_AVERAGE,
    TARGET_VARIANCE,
    TUNED,
    WIDTH,
)
from .wide_member import MEMORY, learn, own, say
from .wide_scale import in_order, scaled, take


@njit
def play_row(
    head: np.ndarray,
    record: np.ndarray,
    cells: np.ndarray,
    square: np.ndarray,
    sizes: np.ndarray,
    settings: np.ndarray,
    index: np.ndarray,
    values: np.ndarray,
    target: float,
    weight: float,
    said: np.ndarray,
) -> tuple[int, float]:
    """Test on a row and, unless its weight is 0, train on it and tune; what became of it, and its
    loss. Keys with a negative index are not known."""
    outs, kind, count = sizes[OUTPUTS], sizes[LOSS], sizes[MEMBERS]
    classify = kind <= SOFTMAX
    keys = 1
    absurd = weight > 0.0 and not abs(target) <= LARGEST
    for i in range(index.shape[0]):
        keys += 1 if index[i] >= 0 else 0
        absurd = absurd or (weight > 0.0 and abs(values[i]) > LARGEST)
    if absurd:
        return ABSURD, 0.0
    places, room = np.zeros(keys, np.int64), np.empty((1 + count, keys))
    a, rows, at = room[0], head[ROWS], 1
    a[0] = 1.0
    for i in range(index.shape[0]):
        if index[i] >= 0:
            places[at] = index[i] + 1
            a[at] = scaled(cells[places[at]], values[i], rows)
            at += 1
    in_order(places, a)

    # Test: every member, then all of them together.
    z0, v, awake = np.empty((count, outs)), np.empty(count), np.empty(count)
    each = np.empty((count, said.shape[0]))
    for m in range(count):
        if square.shape[0] > 0 and own(sizes, m, KIND) == FULL:
            v[m] = 0.0
            say_full(cells, sizes, m, places, a, z0[m])
        else:
            v[m] = say(head, cells, sizes, m, places, a, room[1 + m], z0[m])
        finite = math.isfinite(v[m])
        for k in range(outs):
            finite = finite and math.isfinite(z0[m, k])
        awake[m] = 1.0 if finite else 0.0
        if not finite:
            each[m, :] = 0.0
        elif kind == SIGMOID:
            each[m, 0], each[m, 1] = sigmoid(-z0[m, 0]), sigmoid(z0[m, 0])
        elif kind == SOFTMAX:
            softmax(z0[m], np.zeros(outs), each[m])
        else:
            each[m, 0] = z0[m, 0]
    shares = head[sizes[SHARES] : sizes[SHARES] + count]
    able = mix(shares, awake, each, said)
    spoken, label = said[:1].copy(), int(target) if classify else 0
    if not classify:
        said[0] = head[TARGET_AVERAGE] + math.sqrt(head[TARGET_VARIANCE]) * said[0]
    elif not able:
        said[:] = 1.0 / said.shape[0]
    if not able:
        return REJECTED, 0.0
    balance = 1.0
    if classify:
        if sizes[BALANCE] > 0:
            balance = rarity(head[FREQUENCY : FREQUENCY + sizes[CLASSES]], label)
        target_z, loss = target, -math.log(max(said[label], LEAST))
    else:
        target_z = deviations(target, head[TARGET_AVERAGE], head[TARGET_VARIANCE])
        loss = suffered(kind, spoken, target_z, settings[DELTA], np.empty(1))
    if sizes[BALANCE] == LEADER:
        loss *= balance
    if not math.isfinite(loss):
        return REJECTED, 0.0
    if not weight > 0.0:
        return ACCEPTED, loss
    balance *= weight
    if sizes[BALANCE] == EVERYONE:
        weight = balance

    # Train and tune: every member that can.
    slopes, learned = np.empty(sizes[LEARNED]), 0.0
    for m in range(count):
        fine = awake[m] > 0.0
        if fine and square.shape[0] > 0 and own(sizes, m, KIND) == FULL:
            fine = learn_full(
                head, cells, sizes, settings, square, m, places, a, z0[m], target_z, weight
            )
        elif fine:
            fine = learn(
                head,
                cells,
                sizes,
                settings,
                m,
                places,
                a,
                room[1 + m],
                z0[m],
                v[m],
                target_z,
                weight,
                balance,
                slopes,
            )
        if fine and own(sizes, m, TUNED) > 0:
            lead(head, sizes, settings, m, slopes)
        learned += 1.0 if fine else 0.0
        head[sizes[SHARES] + 2 * count + m] += 0.0 if fine else 1.0
    if not learned > 0.0:
        return REJECTED, 0.0
    weigh(head, sizes, settings, awake, each, target_z, label, weight)
    take(head, cells, sizes, settings, index, values, target, label)
    note(record, loss, trail(head, sizes))
    return ACCEPTED, loss


@njit
def trail(head: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """What is noted of a row: x of the tuned member and the shares of all."""
    x, at = own(sizes, 0, HEAD_AT), sizes[SHARES]
    shares = head[at : at + sizes[MEMBERS]]
    return np.concatenate((head[x : x + sizes[WIDTH]], shares))


@njit
def weigh(
    head: np.ndarray,
    sizes: np.ndarray,
    settings: np.ndarray,
    awake: np.ndarray,
    said: np.ndarray,
    target: float,
    label: int,
    weight: float,
) -> None:
    """The members' shares, now that the target is known."""
    count, at = sizes[MEMBERS], sizes[SHARES]
    likelihood, residuals = np.empty(count), head[at + count : at + 2 * count]
    if sizes[LOSS] <= SOFTMAX:
        for m in range(count):
            likelihood[m] = max(said[m, label], LEAST)
    else:
        losses, slope = np.empty(count), np.empty(1)
        for m in range(count):
            losses[m] = suffered(sizes[LOSS], said[m], target, settings[DELTA], slope)
        densities(awake, losses, residuals, likelihood)
        learn_residuals(awake, losses, residuals, head[ROWS])
    temper(awake, likelihood, weight)
    renew_shares(head[at : at + count], awake, likelihood, settings[SHARE])


@njit
def lead(
    head: np.ndarray, sizes: np.ndarray, settings: np.ndarray, m: int, slopes: np.ndarray
) -> None:
    """The leader's step of a member: see `lead.tune`."""
    n, width, begin = own(sizes, m, TUNED), sizes[WIDTH], own(sizes, m, HEAD_AT)
    x = head[begin : begin + width]
    mean = head[begin + width : begin + width + n]
    square = head[begin + width + n : begin + width + 2 * n]
    low, high = settings[LOW : LOW + width], settings[LOW + width : LOW + 2 * width]
    entries = sizes[sizes.shape[0] - n :]
    # There is no bandwidth: behind the last entry.
    rate, rows = settings[STEP_SIZE], head[ROWS]
    step(x, mean, square, low, high, entries, MEMORY, width, rate, rows, slopes)
