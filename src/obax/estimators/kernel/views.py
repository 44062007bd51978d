"""Parts of the flat vectors, cut once for all rows of a call, and room to work in."""

from typing import NamedTuple

import numpy as np
from numba import njit

from .layout import (
    CENTRE,
    CLASSES,
    CURVATURE,
    CURVATURE_SLOPE,
    DRAWN,
    ENTRIES,
    FEATURES,
    FIRST_ORDER,
    HYPER,
    INPUTS,
    INVERSE,
    LEARNED,
    OUTPUTS,
    PLAIN_WEIGHTS,
    RATES,
    RIDGE,
    SECOND_ORDER,
    SENSITIVITY,
    WEIGHTS,
)


class Followers(NamedTuple):
    """The members of the second order, along the first axis; the tuned one comes first."""

    weights: np.ndarray
    curvature: np.ndarray
    inverse: np.ndarray
    centre: np.ndarray
    drawn: np.ndarray
    ridge: np.ndarray
    hyper: np.ndarray
    """Penalty, inertia, forgetting."""


class Leader(NamedTuple):
    """What the tuned member has beside that."""

    entries: np.ndarray
    tilts: np.ndarray
    """d curvature / dx, along the last of the learned entries."""
    sensitivity: np.ndarray


class Plain(NamedTuple):
    """The members of the first order."""

    weights: np.ndarray
    rates: np.ndarray


class Room(NamedTuple):
    """What a row needs for a moment."""

    row: np.ndarray
    """One line: the standardised row a, with a 1 for the intercept."""
    said: np.ndarray
    """By each member: probabilities of the classes, or a number."""
    awake: np.ndarray
    """1 for each member that can say something of the row, otherwise 0."""
    learned: np.ndarray
    """1 for each member that could learn the row, otherwise 0."""
    likelihood: np.ndarray
    """Of the target, by each member; for numbers relative to the largest."""
    z0: np.ndarray
    v: np.ndarray
    outputs: np.ndarray
    spread: np.ndarray
    """s = L^-1 a."""
    short: np.ndarray
    """Lines with a number for each output: see `tuned`."""
    none: np.ndarray
    """A shift of logits by nothing."""
    bent: np.ndarray
    """dL s, along each learned entry of x."""
    stack: np.ndarray
    """s, and u for each output, ..."""
    curved: np.ndarray
    """... times the curvature, ..."""
    tilted: np.ndarray
    """... and times its slope along an entry of x."""
    lifts: np.ndarray
    """How much more of a a' the curvature gets, along each learned entry of x."""
    asked: np.ndarray
    solved: np.ndarray
    slopes: np.ndarray
    """Of the tuned member's loss, along each learned entry of x."""


@njit
def part(flat: np.ndarray, sizes: np.ndarray, at: int) -> np.ndarray:
    """A part of `vector` or `work`."""
    return flat[sizes[at] : sizes[at + 1]]


@njit
def members(
    vector: np.ndarray, work: np.ndarray, sizes: np.ndarray
) -> tuple[Followers, Leader, Plain]:
    """Views of all that members have."""
    m, k, d, n = sizes[SECOND_ORDER], sizes[OUTPUTS], sizes[INPUTS], sizes[LEARNED]
    followers = Followers(
        part(vector, sizes, WEIGHTS).reshape(m, k, d),
        part(vector, sizes, CURVATURE).reshape(m, d, d),
        part(work, sizes, INVERSE).reshape(m, d, d),
        part(work, sizes, CENTRE).reshape(m, k, d),
        part(work, sizes, DRAWN).reshape(m, k, d),
        part(work, sizes, RIDGE).reshape(m, d),
        part(work, sizes, HYPER).reshape(m, 3),
    )
    tilts = part(vector, sizes, CURVATURE_SLOPE)
    leader = Leader(
        sizes[ENTRIES : ENTRIES + n],
        tilts.reshape(tilts.shape[0] // (d * d), d, d),
        part(vector, sizes, SENSITIVITY).reshape(n, k, d),
    )
    weights = part(vector, sizes, PLAIN_WEIGHTS)
    plain = Plain(
        weights.reshape(sizes[FIRST_ORDER], k, sizes[FEATURES] + 1), part(work, sizes, RATES)
    )
    return followers, leader, plain


@njit
def room(sizes: np.ndarray) -> Room:
    """Asked for once a call: to ask for each row would cost as much as the row."""
    m, k, d, n = sizes[SECOND_ORDER], sizes[OUTPUTS], sizes[INPUTS], sizes[LEARNED]
    everyone = m + sizes[FIRST_ORDER]
    return Room(
        np.zeros((1, d)),
        np.zeros((everyone, max(1, sizes[CLASSES]))),
        np.zeros(everyone),
        np.zeros(everyone),
        np.zeros(everyone),
        np.zeros((m, k)),
        np.zeros(m),
        np.zeros((everyone, k)),
        np.zeros((m, d)),
        np.zeros((6 + n, k)),
        np.zeros(k),
        np.zeros((n, d)),
        np.zeros((1 + k, d)),
        np.zeros((1 + k, d)),
        np.zeros((1 + k, d)),
        np.zeros(n),
        np.zeros((n, k, d)),
        np.zeros((n, k, d)),
        np.zeros(n),
    )
