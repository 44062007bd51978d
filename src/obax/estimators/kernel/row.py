"""One row: test, train, tune, by every member. See the package for the mathematics."""

import math

import numpy as np
from numba import njit

from . import mixture
from .algebra import dot
from .expand import expand, remember
from .first_order import descend, outputs_of
from .follower import look, prepare, train, trained
from .layout import (
    AVERAGES,
    BALANCE,
    BANDWIDTH,
    CLASSES,
    DELTA,
    ENTRIES,
    EVERYONE,
    FEATURES,
    FIRST_ORDER,
    FRESH,
    HIGH,
    LEADER,
    LEARNED,
    LOSS,
    LOW,
    MEAN,
    OUTPUTS,
    PENALTIES,
    RESIDUALS,
    ROWS,
    SAT_OUT,
    SCALE_MEMORY,
    SECOND_ORDER,
    SETTINGS,
    SHARE,
    SHARES,
    SIGMOID,
    SOFTMAX,
    SQUARE,
    STEP_SIZE,
    TARGET_AVERAGE,
    TARGET_VARIANCE,
    VARIANCES,
    X,
)
from .losses import LEAST, both_sides, proximal, softmax, suffered
from .record import note
from .repeat import repeat
from .statistics import CLIP, LARGEST, count, deviations, importance, standardise
from .tuned import PULL, SHIFT, SLOPE, P, carry, hypergradient
from .views import Followers, Leader, Plain, Room, inlined, part

WARM_UP, WARM_UP_ROWS = 20.0, 300.0
"""The leader's first steps are 1 + WARM_UP times as long, falling to plain ones."""
MEAN_DECAY, SQUARE_ROWS = 0.9, 3000.0
"""Of the running mean of the hypergradient, and the rows in that of its square. These are many:
what one change of the stream weighs must not be forgotten before the next, or the small slopes in
between move x as far as the large ones. Until there are so many it is the last tenth of them: what
the very first rows weigh, whose standardisation has not settled, must be forgotten."""
LONG_AGO = 1000.0
"""Rows after which nothing is left of the start in the running mean."""
LONGEST_SLOPE = 30.0
"""A slope counts for at most so many of its running sizes: one glitch is not to be what all slopes
after it are measured by."""
REJECTED, ACCEPTED, ABSURD = range(3)
"""A row that would have made the model NaN or Inf; one that was played; one with a value beyond
LARGEST, which is left to Python to put into words."""


@inlined
def speak(
    vector: np.ndarray,
    work: np.ndarray,
    sizes: np.ndarray,
    followers: Followers,
    plain: Plain,
    room: Room,
    said: np.ndarray,
) -> bool:
    """What each member says of the standardised row, and what they say together; whether anybody
    can. `said` is a number for regression and a probability for each class."""
    prepare(vector, work, sizes, followers)
    kind, seconds = sizes[LOSS], sizes[SECOND_ORDER]
    for i in range(seconds + sizes[FIRST_ORDER]):
        outputs, theirs = room.outputs[i], room.said[i]
        if i < seconds:
            finite = look(i, sizes, followers, room)
        else:
            finite = outputs_of(i - seconds, sizes, plain, room.row[0], outputs)
        room.awake[i] = 1.0 if finite else 0.0
        if kind == SIGMOID:
            both_sides(outputs[0], theirs)
        elif kind == SOFTMAX:
            softmax(outputs, room.none, theirs)
        else:
            theirs[0] = outputs[0]
    able = mixture.mix(part(vector, sizes, SHARES), room.awake, room.said, said)
    if kind > SOFTMAX:
        deviation = math.sqrt(vector[sizes[TARGET_VARIANCE]])
        room.short[0, 0] = said[0]
        said[0] = vector[sizes[TARGET_AVERAGE]] + deviation * said[0]
    elif not able:
        for c in range(said.shape[0]):
            said[c] = 1.0 / said.shape[0]
    return able


@inlined
def play_row(
    vector: np.ndarray,
    record: np.ndarray,
    work: np.ndarray,
    sizes: np.ndarray,
    followers: Followers,
    leader: Leader,
    plain: Plain,
    room: Room,
    row: np.ndarray,
    target: float,
    weight: float,
    said: np.ndarray,
) -> tuple[int, float]:
    """Test on a row and, if it has a weight, train on it and tune; what became of it, and its
    loss."""
    kind, seconds = sizes[LOSS], sizes[SECOND_ORDER]
    classify, everyone = kind <= SOFTMAX, seconds + sizes[FIRST_ORDER]
    delta = work[sizes[SETTINGS] + DELTA]
    if weight > 0.0:
        absurd = not abs(target) <= LARGEST
        for i in range(sizes[FEATURES]):
            absurd = absurd or abs(row[i]) > LARGEST
        if absurd:
            return ABSURD, 0.0
    a = room.row[0]
    standardise(vector, sizes, row, a)
    expand(vector, work, sizes, a, room.row_slope)
    if not speak(vector, work, sizes, followers, plain, room, said):
        return REJECTED, 0.0
    label = int(target) if classify else 0
    target_z = target
    if not classify:
        average = vector[sizes[TARGET_AVERAGE]]
        target_z = deviations(target, average, vector[sizes[TARGET_VARIANCE]])
    balance, slope = importance(vector, sizes, label), room.short[SLOPE]
    if everyone == 1:
        loss = suffered(kind, room.outputs[0], target_z, delta, slope)
    elif classify:
        loss = -math.log(max(said[label], LEAST))
    else:
        loss = suffered(kind, room.short[0], target_z, delta, slope)
    if sizes[BALANCE] == LEADER:
        loss *= balance
    if not math.isfinite(loss):
        return REJECTED, 0.0
    if not weight > 0.0:
        return ACCEPTED, loss
    if not classify and abs(target_z) >= CLIP:
        # In doubt: a glitch teaches nothing, and of a jump nothing but the statistics has to move.
        vector[sizes[ROWS]] += 1.0
        repeat(record, vector, sizes, room.short[P], slope, target, target_z, delta, balance, loss)
        count(vector, sizes, row, target, label, work[sizes[SETTINGS] + SCALE_MEMORY])
        remember(vector, sizes, target)
        note(record, loss, vector[sizes[X] : sizes[SHARES + 1]])
        return ACCEPTED, loss
    balance *= weight
    if sizes[BALANCE] == EVERYONE:
        weight = balance

    learned = 0.0
    for m in range(seconds):
        room.learned[m] = learn(
            m, vector, work, sizes, followers, leader, room, target_z, label, delta, weight, balance
        )
        learned += room.learned[m]
    for i in range(seconds, everyone):
        room.learned[i] = room.awake[i]
        learned += room.awake[i]
    # The guard: nothing of a member is written before all of it is known to be finite.
    if not learned > 0.0:
        return REJECTED, 0.0
    work[sizes[FRESH]] = 0.0
    for i in range(everyone):
        vector[sizes[SAT_OUT] + i] += 1.0 - room.learned[i]
    weigh(vector, work, sizes, room, target_z, label, weight)
    if room.learned[0] > 0.0:
        tune(vector, work, sizes, room.slopes)
    else:
        vector[sizes[ROWS]] += 1.0
    repeat(record, vector, sizes, room.short[P], slope, target, target_z, delta, balance, loss)
    count(vector, sizes, row, target, label, work[sizes[SETTINGS] + SCALE_MEMORY])
    step_down(vector, sizes, plain, room, row, target, delta, weight)
    remember(vector, sizes, target)
    note(record, loss, vector[sizes[X] : sizes[SHARES + 1]])
    return ACCEPTED, loss


@inlined
def step_down(
    vector: np.ndarray,
    sizes: np.ndarray,
    plain: Plain,
    room: Room,
    row: np.ndarray,
    target: float,
    delta: float,
    weight: float,
) -> None:
    """The row into the members of the first order, as it looks when the statistics have it in them:
    what is far off is then less so, which a plain step needs. What is in doubt stays out."""
    seconds, kind = sizes[SECOND_ORDER], sizes[LOSS]
    a, slope = room.row[0], room.short[SLOPE]
    if sizes[FIRST_ORDER] == 0:
        return
    averages, variances = part(vector, sizes, AVERAGES), part(vector, sizes, VARIANCES)
    for i in range(sizes[FEATURES]):
        if a[i] != 0.0:
            a[i] = deviations(row[i], averages[i], variances[i])
    target_z = target
    if kind > SOFTMAX:
        average = vector[sizes[TARGET_AVERAGE]]
        target_z = deviations(target, average, vector[sizes[TARGET_VARIANCE]])
    length = dot(a[: sizes[FEATURES] + 1], a[: sizes[FEATURES] + 1])
    for i in range(seconds, seconds + sizes[FIRST_ORDER]):
        if room.awake[i] > 0.0:
            outputs_of(i - seconds, sizes, plain, a, room.outputs[i])
            suffered(kind, room.outputs[i], target_z, delta, slope)
            descend(i - seconds, sizes, plain, a, slope, length, weight)


@inlined
def pull_of(i: int, sizes: np.ndarray, room: Room, target: float, label: int, delta: float) -> None:
    """-d loss / dz at what member i predicted, into `room.short[SLOPE]`."""
    kind, slope = sizes[LOSS], room.short[SLOPE]
    if kind == SIGMOID:
        slope[0] = room.said[i, 0] if label > 0 else -room.said[i, 1]
    elif kind == SOFTMAX:
        for k in range(slope.shape[0]):
            slope[k] = (1.0 if k == label else 0.0) - room.said[i, k]
    else:
        suffered(kind, room.outputs[i], target, delta, slope)


@inlined
def learn(
    m: int,
    vector: np.ndarray,
    work: np.ndarray,
    sizes: np.ndarray,
    followers: Followers,
    leader: Leader,
    room: Room,
    target: float,
    label: int,
    delta: float,
    weight: float,
    balance: float,
) -> bool:
    """The row into member m of the second order; whether it could take it. `weight` is that of its
    loss, `balance` that of the leader's."""
    if not room.awake[m] > 0.0:
        return False
    kind, shift = sizes[LOSS], room.none
    p, pull = room.short[P], room.short[PULL]
    tuned = m == 0 and sizes[LEARNED] > 0
    if m == 0 and kind <= SOFTMAX:
        x = part(vector, sizes, X)
        at = sizes[PENALTIES] + 2
        weight *= math.exp(x[at + label])
        at += sizes[CLASSES]
        shift = room.short[SHIFT]
        for k in range(sizes[OUTPUTS]):
            shift[k] = x[at + 1] - x[at] if kind == SIGMOID else x[at + k]
    bend = proximal(kind, room.z0[m], room.v[m], target, weight, shift, delta, p, pull)
    check = trained(m, sizes, followers, room, pull, weight)
    if tuned:
        pull_of(0, sizes, room, target, label, delta)
        check += hypergradient(work, sizes, followers, leader, room, label, weight, bend, balance)
    if not math.isfinite(check):
        return False
    if tuned:
        carry(sizes, followers, leader, room, bend)
    train(m, sizes, followers, room, pull, weight, bend)
    return True


@inlined
def weigh(
    vector: np.ndarray,
    work: np.ndarray,
    sizes: np.ndarray,
    room: Room,
    target: float,
    label: int,
    weight: float,
) -> None:
    """The members' shares, now that the target is known."""
    likelihood = room.likelihood
    if sizes[LOSS] <= SOFTMAX:
        for i in range(likelihood.shape[0]):
            likelihood[i] = max(room.said[i, label], LEAST)
    else:
        residuals, losses, slope = part(vector, sizes, RESIDUALS), room.losses, room.short[SLOPE]
        delta = work[sizes[SETTINGS] + DELTA]
        for i in range(losses.shape[0]):
            losses[i] = suffered(sizes[LOSS], room.outputs[i], target, delta, slope)
        mixture.densities(room.awake, losses, residuals, likelihood)
        mixture.learn_residuals(room.awake, losses, residuals, vector[sizes[ROWS]])
    mixture.temper(room.awake, likelihood, weight)
    share = work[sizes[SETTINGS] + SHARE]
    mixture.renew(part(vector, sizes, SHARES), room.awake, likelihood, share)


@njit
def tune(vector: np.ndarray, work: np.ndarray, sizes: np.ndarray, slopes: np.ndarray) -> None:
    """The leader's step."""
    rows, n = vector[sizes[ROWS]], sizes[LEARNED]
    step(
        part(vector, sizes, X),
        part(vector, sizes, MEAN),
        part(vector, sizes, SQUARE),
        part(work, sizes, LOW),
        part(work, sizes, HIGH),
        sizes[ENTRIES : ENTRIES + n],
        sizes[PENALTIES] + 1,
        sizes[BANDWIDTH],
        work[sizes[SETTINGS] + STEP_SIZE],
        rows,
        slopes,
    )
    vector[sizes[ROWS]] = rows + 1.0


@njit
def step(
    x: np.ndarray,
    mean: np.ndarray,
    square: np.ndarray,
    low: np.ndarray,
    high: np.ndarray,
    entries: np.ndarray,
    memory: int,
    bandwidth: int,
    step_size: float,
    rows: float,
    slopes: np.ndarray,
) -> None:
    """Along the running mean of the hypergradient, in units of its running size, so that a start
    that is five orders of magnitude off is left as fast as any other. `memory` and `bandwidth` are
    where in x they stand."""
    rate = step_size * (1.0 + WARM_UP / (1.0 + rows / WARM_UP_ROWS))
    mean_share = 1.0 - MEAN_DECAY ** (rows + 1.0) if rows < LONG_AGO else 1.0
    square_share = max(1.0 / SQUARE_ROWS, 10.0 / (rows + 10.0))
    for j in range(entries.shape[0]):
        slope = slopes[j]
        if rows >= WARM_UP_ROWS and square[j] > 0.0:
            most = LONGEST_SLOPE * math.sqrt(square[j])
            slope = min(max(slope, -most), most)
        mean[j] = MEAN_DECAY * mean[j] + (1.0 - MEAN_DECAY) * slope
        square[j] += square_share * (slope * slope - square[j])
        size = math.sqrt(square[j]) + 1e-12
        at = entries[j]
        # While there are fewer rows than waves, a bandwidth at which no row is like another looks
        # best: there the bandwidth does not hurry.
        by = step_size if at == bandwidth else rate
        top = high[at]
        if at == memory:
            # There is no more to remember than has been seen, and with a memory that is longer the
            # slope vanishes: there would be no way back after a change.
            top = min(top, max(x[at], math.log(rows + WARM_UP_ROWS)))
        x[at] = min(max(x[at] - by * mean[j] / mean_share / size, low[at]), top)
