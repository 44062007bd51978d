"""The slope of the tuned member's loss in its hyperparameters: see the package."""

import numpy as np

from .algebra import add, dot, lay, lift, multiply_lines, solve
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
def stiffen(sizes: np.ndarray, followers: Followers, room: Room, entry: int) -> float:
    """Along an entry of x, the diagonal by which L moves with ridge and inertia, dr + di; 1 if it
    is dr, which draws y to zero as well."""
    penalties, diagonal, ridge = sizes[PENALTIES], room.diagonal, followers.ridge[0]
    inertia = followers.hyper[0, INERTIA] if entry == penalties else 0.0
    for i in range(sizes[INPUTS]):
        diagonal[i] = inertia
    if entry < penalties:
        for i in range(sizes[INPUTS]) if penalties == 1 else range(entry, entry + 1):
            diagonal[i] = ridge[i]
        return 1.0
    return 0.0


@inlined
def tilt(sizes: np.ndarray, followers: Followers, leader: Leader, room: Room, j: int) -> None:
    """Along the learned entry j of x, d(forgetting A) times s and times u; left as it is, at 0,
    for the first ones, along which A does not move.

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
    ridge, diagonal = followers.ridge[0], room.diagonal
    if leader.tilts.shape[0] < n:
        for k in range(1 + outs):
            for i in range(d):
                room.tilted[k, i] = 0.0
    for j in range(n):
        entry, dz0, bent = leader.entries[j], room.short[DZ0 + j], room.bent[j]
        tilt(sizes, followers, leader, room, j)
        draws = stiffen(sizes, followers, room, entry)
        dv, tilted = 0.0, room.tilted[0]
        for i in range(d):
            bent[i] = diagonal[i] * spread[i] + tilted[i]
            dv -= spread[i] * bent[i]
        waves = is_bandwidth(sizes, entry)
        if waves:
            dv += 2.0 * dot(spread, room.row_slope)
            # In s = L^-1 a, a moves too: where dL s stands, dL s - da does.
            for i in range(d):
                bent[i] -= room.row_slope[i]
        room.slopes[j] = 0.0
        for k in range(outs):
            asked, old, tilted = room.asked[j, k], leader.sensitivity[j, k], room.tilted[1 + k]
            y, drawn, step = followers.weights[0, k], followers.drawn[0, k], weight * pull[k]
            change = 0.0
            for i in range(d):
                q = ridge[i] * old[i] + diagonal[i] * (draws * y[i] - drawn[i]) - tilted[i]
                change += old[i] * a[i] - spread[i] * q
                asked[i] = q + step * bent[i]
            if waves:
                change += dot(followers.centre[0, k], room.row_slope)
            dz0[k] = change
            if classify:
                change = (change - 0.5 * LOGIT_VARIANCE * z0[k] * dv / (by * by)) / by
            room.slopes[j] -= balance * slope[k] * change
            dshift[k] = 1.0 if classify and entry == shifts_at + k else 0.0
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
    lay(room.solved, 1.0, leader.sensitivity)
    forgetting, curvature, a = followers.hyper[0, FORGETTING], followers.curvature[0], room.row[0]
    first = sizes[LEARNED] - leader.tilts.shape[0]
    for j in range(first, sizes[LEARNED]):
        slope, along_memory = leader.tilts[j - first], leader.entries[j] == sizes[PENALTIES] + 1
        scale = forgetting * (1.0 - forgetting) if along_memory else 1.0
        lift(slope, forgetting, room.lifts[j] / scale, a)
        if along_memory:
            add(slope, curvature)
        if is_bandwidth(sizes, leader.entries[j]):
            for i in range(d):
                one, two = bend * a[i], bend * room.row_slope[i]
                for m in range(d):
                    slope[i, m] += one * room.row_slope[m] + two * a[m]
