"""A row whose target is known: into each of the members, and into their shares."""

import math

import numpy as np

from . import mixture
from .algebra import dot
from .first_order import descend, outputs_of
from .follower import train, trained
from .layout import (
    AVERAGES,
    CLASSES,
    DELTA,
    FEATURES,
    FIRST_ORDER,
    LEARNED,
    LOSS,
    OUTPUTS,
    PENALTIES,
    RESIDUALS,
    ROWS,
    SECOND_ORDER,
    SETTINGS,
    SHARE,
    SHARES,
    SIGMOID,
    SOFTMAX,
    TARGET_AVERAGE,
    TARGET_VARIANCE,
    VARIANCES,
    X,
)
from .losses import LEAST, descent, proximal, suffered
from .statistics import deviations
from .tuned import PULL, SHIFT, SLOPE, P, carry, hypergradient
from .views import Followers, Leader, Plain, Room, inlined, part


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
def pull_of(i: int, sizes: np.ndarray, room: Room, target: float, label: int, delta: float) -> None:
    """-d loss / dz at what member i predicted, into `room.short[SLOPE]`."""
    kind, slope = sizes[LOSS], room.short[SLOPE]
    if kind == SIGMOID:
        slope[0] = room.said[i, 0] if label > 0 else -room.said[i, 1]
    elif kind == SOFTMAX:
        for k in range(slope.shape[0]):
            slope[k] = (1.0 if k == label else 0.0) - room.said[i, k]
    else:
        descent(kind, room.outputs[i], target, delta, slope)


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
            descent(kind, room.outputs[i], target_z, delta, slope)
            descend(i - seconds, sizes, plain, a, slope, length, weight)


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
