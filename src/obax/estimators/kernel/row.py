"""One row: test, train, tune, by every member. See the package for the mathematics."""

import math

import numpy as np

from . import mixture
from .expand import expand, remember
from .first_order import outputs_of
from .follower import look, prepare
from .layout import (
    BALANCE,
    DELTA,
    EVERYONE,
    FEATURES,
    FIRST_ORDER,
    FRESH,
    LEADER,
    LOSS,
    ROWS,
    SAT_OUT,
    SCALE_MEMORY,
    SECOND_ORDER,
    SETTINGS,
    SHARES,
    SIGMOID,
    SOFTMAX,
    TARGET_AVERAGE,
    TARGET_VARIANCE,
    X,
)
from .lead import tune
from .losses import LEAST, both_sides, softmax, suffered
from .record import note
from .repeat import repeat
from .statistics import CLIP, LARGEST, count, deviations, importance, standardise
from .teach import learn, step_down, weigh
from .tuned import SLOPE, P
from .views import Followers, Leader, Plain, Room, inlined, part

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
