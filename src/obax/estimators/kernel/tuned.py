"""The slope of the tuned member's loss in its hyperparameters: see the package."""

import numpy as np

from .algebra import dot, multiply_lines, solve
from .columns import FOURIER
from .follower import FORGETTING, INERTIA
from .layout import (
    BANDWIDTH,
    CLASSES,
    EXPANSION,
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
from .losses import LOGIT_VARIANCE, curvature_slope, moderation, pull_slope
from .views import Followers, Leader, Room, inlined

# Lines of `room.short`.
SLOPE, SHIFT, P, PULL, DSHIFT, DPULL, DZ0 = range(7)


@inlined
def is_bandwidth(sizes: np.ndarray, entry: int) -> bool:
    """Whether an entry of x is the bandwidth."""
    return sizes[EXPANSION] == FOURIER and entry == sizes[BANDWIDTH]


@inlined
def differentiate(
    sizes: np.ndarray, followers: Followers, leader: Leader, room: Room, j: int, k: int
) -> None:
    """Along the learned entry j of x, for output k: q = dr y + ridge S - dL u."""
    penalties, d, n = sizes[PENALTIES], sizes[INPUTS], sizes[LEARNED]
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
    if j >= n - leader.tilts.shape[0]:
        for i in range(d):
            q[i] -= room.tilted[1 + k, i]


@inlined
def bend_spread(
    sizes: np.ndarray, followers: Followers, leader: Leader, room: Room, j: int
) -> None:
    """Along the learned entry j of x: bent = dL s, the same for every output."""
    penalties, d, n = sizes[PENALTIES], sizes[INPUTS], sizes[LEARNED]
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
    if j >= n - leader.tilts.shape[0]:
        for i in range(d):
            bent[i] += room.tilted[0, i]


@inlined
def tilt(sizes: np.ndarray, followers: Followers, leader: Leader, room: Room, j: int) -> None:
    """Along the learned entry j of x, d(forgetting A) times s and times u.

    The slope along memory is kept as that along the forgetting factor, per unit of which it does
    not vanish where memory is long.
    """
    tilts, forgetting = leader.tilts, followers.hyper[0, FORGETTING]
    at = j - (sizes[LEARNED] - tilts.shape[0])
    if at < 0:
        return
    multiply_lines(tilts[at], room.stack, room.tilted)
    along_memory = leader.entries[j] == sizes[PENALTIES] + 1
    if along_memory:
        multiply_lines(followers.curvature[0], room.stack, room.curved)
    scale = forgetting * (1.0 - forgetting) if along_memory else 1.0
    for k in range(room.stack.shape[0]):
        for i in range(sizes[INPUTS]):
            room.tilted[k, i] *= scale * forgetting
            if along_memory:
                room.tilted[k, i] += scale * room.curved[k, i]


@inlined
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
    for i in range(d):
        room.stack[0, i] = spread[i]
        for k in range(outs):
            room.stack[1 + k, i] = followers.drawn[0, k, i]
    weights_at = penalties + 2
    shifts_at = weights_at + sizes[CLASSES]
    by, fading, check = moderation(v), work[sizes[SETTINGS] + FADING], 0.0
    dshift, dpull = room.short[DSHIFT], room.short[DPULL]
    for j in range(n):
        entry, dz0, bent = leader.entries[j], room.short[DZ0 + j], room.bent[j]
        tilt(sizes, followers, leader, room, j)
        bend_spread(sizes, followers, leader, room, j)
        waves = is_bandwidth(sizes, entry)
        dv = -dot(spread, bent)
        if waves:
            dv += 2.0 * dot(spread, room.row_slope)
            # In s = L^-1 a, a moves too: where dL s stands, dL s - da does.
            for i in range(d):
                bent[i] -= room.row_slope[i]
        room.slopes[j] = 0.0
        for k in range(outs):
            differentiate(sizes, followers, leader, room, j, k)
            q = room.asked[j, k]
            dz0[k] = dot(leader.sensitivity[j, k], a) - dot(spread, q)
            if waves:
                dz0[k] += dot(followers.centre[0, k], room.row_slope)
            change = dz0[k]
            if classify:
                change = (change - 0.5 * LOGIT_VARIANCE * z0[k] * dv / (by * by)) / by
            room.slopes[j] -= balance * slope[k] * change
            dshift[k] = 1.0 if classify and entry == shifts_at + k else 0.0
            for i in range(d):
                q[i] += weight * pull[k] * bent[i]
        solve(followers.inverse[0], room.asked[j], room.solved[j])
        if kind == SIGMOID:
            # One logit for two classes: the shift is that of the second less that of the first.
            dshift[0] = (1.0 if entry == shifts_at + 1 else 0.0) - dshift[0]
        dweight = weight if classify and entry == weights_at + label else 0.0
        pull_slope(kind, p, v, pull, bend, weight, dz0, dv, dweight, dshift, dpull)
        room.lifts[j] = curvature_slope(kind, p, weight, dweight, dpull)
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


@inlined
def carry(sizes: np.ndarray, followers: Followers, leader: Leader, room: Room, bend: float) -> None:
    """Sensitivity and slopes of the curvature after the row; before its curvature is added."""
    d = sizes[INPUTS]
    for j in range(sizes[LEARNED]):
        for k in range(sizes[OUTPUTS]):
            for i in range(d):
                leader.sensitivity[j, k, i] = room.solved[j, k, i]
    forgetting, curvature, a = followers.hyper[0, FORGETTING], followers.curvature[0], room.row[0]
    first = sizes[LEARNED] - leader.tilts.shape[0]
    for j in range(first, sizes[LEARNED]):
        slope, along_memory = leader.tilts[j - first], leader.entries[j] == sizes[PENALTIES] + 1
        scale = forgetting * (1.0 - forgetting) if along_memory else 1.0
        for i in range(d):
            lift = room.lifts[j] / scale * a[i]
            for m in range(d):
                slope[i, m] = forgetting * slope[i, m] + lift * a[m]
            if along_memory:
                for m in range(d):
                    slope[i, m] += curvature[i, m]
        if is_bandwidth(sizes, leader.entries[j]):
            for i in range(d):
                lift, moved = bend * a[i], bend * room.row_slope[i]
                for m in range(d):
                    slope[i, m] += lift * room.row_slope[m] + moved * a[m]
