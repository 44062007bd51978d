"""A member of the second order: what it says of a row, and how it learns one."""

import math

import numpy as np

from .algebra import SMALL, dot, factorise, invert, lay, lift, solve
from .layout import (
    FEATURES,
    FRESH,
    INPUTS,
    LOSS,
    OUTPUTS,
    PENALTIES,
    SECOND_ORDER,
    SOFTMAX,
    X,
)
from .losses import moderation, sigmoid
from .statistics import EPS
from .views import Followers, Room, inlined

PENALTY, INERTIA, FORGETTING = range(3)


@inlined
def prepare(vector: np.ndarray, work: np.ndarray, sizes: np.ndarray, followers: Followers) -> None:
    """Inverses of L and centres c of every member, if the state has moved since the last time."""
    if work[sizes[FRESH]] == 1.0:
        return
    f, at = sizes[FEATURES], sizes[X] + sizes[PENALTIES]
    # A memory of m rows: weights 1, m/(m+1), ... whose sum is m + 1.
    followers.hyper[0, INERTIA] = math.exp(vector[at])
    followers.hyper[0, FORGETTING] = sigmoid(vector[at + 1])
    followers.hyper[0, PENALTY] = math.exp(vector[sizes[X]])
    for m in range(sizes[SECOND_ORDER]):
        for i in range(sizes[INPUTS]):
            # Not on the intercept.
            followers.ridge[m, i] = followers.hyper[m, PENALTY] if i != f else 0.0
    if sizes[PENALTIES] > 1:
        for i in range(f):
            followers.ridge[0, i] = math.exp(vector[sizes[X] + i])
    for m in range(sizes[SECOND_ORDER]):
        prepare_member(m, sizes, followers)
    work[sizes[FRESH]] = 1.0


@inlined
def prepare_member(m: int, sizes: np.ndarray, followers: Followers) -> None:
    """The same of one; where L is not definite, its centre is NaN, and it sits out."""
    d, ridge = sizes[INPUTS], followers.ridge[m]
    inertia, forgetting = followers.hyper[m, INERTIA], followers.hyper[m, FORGETTING]
    matrix, curvature = followers.inverse[m], followers.curvature[m]
    trace = 0.0
    lay(curvature, forgetting, matrix)
    for i in range(d):
        matrix[i, i] += inertia + ridge[i]
        trace += matrix[i, i]
    drawn, centre, weights = followers.drawn[m], followers.centre[m], followers.weights[m]
    # What rounding has taken from the smallest eigenvalue.
    for i in range(d):
        matrix[i, i] += 4.0 * EPS * trace
    definite = invert(matrix, drawn[0], centre[0]) if d <= SMALL else factorise(matrix)
    for k in range(sizes[OUTPUTS]):
        for i in range(d):
            centre[k, i] = ridge[i] * weights[k, i]
    solve(matrix, centre, drawn)
    for k in range(sizes[OUTPUTS]):
        for i in range(d):
            centre[k, i] = weights[k, i] - drawn[k, i] if definite else math.nan


@inlined
def look(m: int, sizes: np.ndarray, followers: Followers, room: Room) -> bool:
    """The outputs that member m predicts with; whether they are finite. Leaves s, z0 and v."""
    a, finite = room.row[0], True
    solve(followers.inverse[m], room.row, room.spread[m : m + 1])
    v = dot(room.spread[m], a)
    by = moderation(v) if sizes[LOSS] <= SOFTMAX else 1.0
    for k in range(sizes[OUTPUTS]):
        z0 = dot(followers.centre[m, k], a)
        room.z0[m, k], room.outputs[m, k] = z0, z0 / by
        finite = finite and math.isfinite(room.outputs[m, k])
    room.v[m] = v
    return finite


@inlined
def trained(
    m: int, sizes: np.ndarray, followers: Followers, room: Room, pull: np.ndarray, weight: float
) -> float:
    """A sum of all that y* = c + s weight pull would be: it is finite if they are."""
    total = 0.0
    for k in range(sizes[OUTPUTS]):
        step = weight * pull[k]
        for i in range(sizes[INPUTS]):
            total += followers.centre[m, k, i] + step * room.spread[m, i]
    return total


@inlined
def train(
    m: int,
    sizes: np.ndarray,
    followers: Followers,
    room: Room,
    pull: np.ndarray,
    weight: float,
    bend: float,
) -> None:
    """Member m with y*, and the curvature of the row in its window."""
    d, forgetting = sizes[INPUTS], followers.hyper[m, FORGETTING]
    for k in range(sizes[OUTPUTS]):
        step = weight * pull[k]
        for i in range(d):
            followers.weights[m, k, i] = followers.centre[m, k, i] + step * room.spread[m, i]
    lift(followers.curvature[m], forgetting, bend, room.row[0])
