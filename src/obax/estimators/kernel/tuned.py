"""The slope of the tuned member's loss in its hyperparameters: see the package."""

import numpy as np
from numba import njit

from .algebra import dot, multiply, multiply_lines
from .follower import FORGETTING, INERTIA
from .layout import (
    CLASSES,
    FADING,
    INPUTS,
    LEARNED,
    LOSS,
    OUTPUTS,
    PENALTIES,
    SETTINGS,
    SIGMOID,
    SOFTMAX,
)
from .losses import LOGIT_VARIANCE, moderation, pull_slope
from .views import Followers, Leader, Room

# Lines of `room.short`.
SLOPE, SHIFT, P, PULL, DSHIFT, DPULL, DZ0 = range(7)


@njit
def differentiate(
    sizes: np.ndarray, followers: Followers, leader: Leader, room: Room, j: int, k: int
) -> None:
    """Along the learned entry j of x, for output k: q = dr y + ridge S - dL u."""
    penalties, d = sizes[PENALTIES], sizes[INPUTS]
    entry, q, ridge = leader.entries[j], room.asked[j, k], followers.ridge[0]
    y, drawn, sensitivity = followers.weights[0, k], followers.drawn[0, k], leader.sensitivity[j, k]
    for i in range(d):
        q[i] = ridge[i] * sensitivity[i]
    if entry < penalties:
        for i in range(d) if penalties == 1 else range(entry, entry + 1):
            q[i] += ridge[i] * (y[i] - drawn[i])
    elif entry == penalties:
        for i in range(d):
            q[i] -= followers.hyper[0, INERTIA] * drawn[i]
    elif entry == penalties + 1:
        forgetting = followers.hyper[0, FORGETTING]
        slope = forgetting * (1.0 - forgetting)
        for i in range(d):
            q[i] -= slope * room.curved[1 + k, i]


@njit
def bend_spread(
    sizes: np.ndarray, followers: Followers, leader: Leader, room: Room, j: int
) -> None:
    """Along the learned entry j of x: bent = dL s, the same for every output."""
    penalties, d = sizes[PENALTIES], sizes[INPUTS]
    entry, bent = leader.entries[j], room.bent[j]
    ridge, spread = followers.ridge[0], room.spread[0]
    for i in range(d):
        bent[i] = 0.0
    if entry < penalties:
        for i in range(d) if penalties == 1 else range(entry, entry + 1):
            bent[i] = ridge[i] * spread[i]
    elif entry == penalties:
        for i in range(d):
            bent[i] = followers.hyper[0, INERTIA] * spread[i]
    elif entry == penalties + 1:
        forgetting = followers.hyper[0, FORGETTING]
        for i in range(d):
            bent[i] = forgetting * (1.0 - forgetting) * room.curved[0, i]


@njit
def hypergradient(
    work: np.ndarray,
    sizes: np.ndarray,
    followers: Followers,
    leader: Leader,
    room: Room,
    label: int,
    weight: float,
    bend: float,
    balance: float,
) -> float:
    """The slopes of the row's loss, and the new sensitivity in `room.solved`; a sum of them all,
    which is finite if they are."""
    outs, kind, n, d = sizes[OUTPUTS], sizes[LOSS], sizes[LEARNED], sizes[INPUTS]
    penalties, classify = sizes[PENALTIES], kind <= SOFTMAX
    a, spread, z0, v = room.row[0], room.spread[0], room.z0[0], room.v[0]
    p, pull, slope = room.short[P], room.short[PULL], room.short[SLOPE]
    if leader.slope.shape[0] > 0:
        # dL / d forgetting = A + forgetting dA / d forgetting, times s and times u.
        forgetting = followers.hyper[0, FORGETTING]
        multiply(followers.curvature[0], forgetting, leader.slope, spread, room.curved[0])
        for k in range(outs):
            drawn = followers.drawn[0, k]
            multiply(followers.curvature[0], forgetting, leader.slope, drawn, room.curved[1 + k])
    weights_at = penalties + 2
    shifts_at = weights_at + sizes[CLASSES]
    by, fading, check = moderation(v), work[sizes[SETTINGS] + FADING], 0.0
    dshift, dpull = room.short[DSHIFT], room.short[DPULL]
    for j in range(n):
        entry, dz0, bent = leader.entries[j], room.short[DZ0 + j], room.bent[j]
        bend_spread(sizes, followers, leader, room, j)
        dv = -dot(spread, bent)
        room.slopes[j] = 0.0
        for k in range(outs):
            differentiate(sizes, followers, leader, room, j, k)
            q = room.asked[j, k]
            dz0[k] = dot(leader.sensitivity[j, k], a) - dot(spread, q)
            change = dz0[k]
            if classify:
                change = (change - 0.5 * LOGIT_VARIANCE * z0[k] * dv / (by * by)) / by
            room.slopes[j] -= balance * slope[k] * change
            dshift[k] = 1.0 if classify and entry == shifts_at + k else 0.0
            for i in range(d):
                q[i] += weight * pull[k] * bent[i]
        multiply_lines(followers.inverse[0], room.asked[j], room.solved[j])
        if kind == SIGMOID:
            # One logit for two classes: the shift is that of the second less that of the first.
            dshift[0] = (1.0 if entry == shifts_at + 1 else 0.0) - dshift[0]
        dweight = weight if classify and entry == weights_at + label else 0.0
        pull_slope(kind, p, v, pull, bend, weight, dz0, dv, dweight, dshift, dpull)
        # S - L^-1 (q + weight pull dL s) + s d(weight pull).
        for k in range(outs):
            along = dweight * pull[k] + weight * dpull[k]
            new, old = room.solved[j, k], leader.sensitivity[j, k]
            for i in range(d):
                moved = old[i] - new[i] + spread[i] * along
                new[i] = fading * moved
                check += moved
        check += room.slopes[j] * room.slopes[j]
    return check


@njit
def carry(sizes: np.ndarray, followers: Followers, leader: Leader, room: Room) -> None:
    """Sensitivity and slope of the curvature after the row; before its curvature is added."""
    d = sizes[INPUTS]
    for j in range(sizes[LEARNED]):
        for k in range(sizes[OUTPUTS]):
            for i in range(d):
                leader.sensitivity[j, k, i] = room.solved[j, k, i]
    if leader.slope.shape[0] > 0:
        forgetting, curvature = followers.hyper[0, FORGETTING], followers.curvature[0]
        for i in range(d):
            for j in range(d):
                leader.slope[i, j] = curvature[i, j] + forgetting * leader.slope[i, j]
