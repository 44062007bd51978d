"""Parts of the flat vectors, cut once for all rows of a call, and room to work in."""

from typing import Any, NamedTuple

import numpy as np
from numba import carray, njit, types
from numba.extending import intrinsic

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
    ROOM,
    SECOND_ORDER,
    SENSITIVITY,
    WEIGHTS,
)

inlined: Any = njit(forceinline=True)
"""For functions that get all of a member or of the room: hundreds of numbers, copied by a call."""


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
    """One line: the standardised row a, with a 1 for the intercept: see `columns`."""
    row_slope: np.ndarray
    """d a / d log bandwidth."""
    said: np.ndarray
    """By each member: probabilities of the classes, or a number."""
    awake: np.ndarray
    """1 for each member that can say something of the row, otherwise 0."""
    learned: np.ndarray
    """1 for each member that could learn the row, otherwise 0."""
    likelihood: np.ndarray
    """Of the target, by each member; for numbers relative to the largest."""
    losses: np.ndarray
    z0: np.ndarray
    v: np.ndarray
    outputs: np.ndarray
    spread: np.ndarray
    """s = L^-1 a."""
    short: np.ndarray
    """Lines with a number for each output: see `tuned`."""
    none: np.ndarray
    """A shift of logits by nothing."""
    diagonal: np.ndarray
    """By which L moves with ridge and inertia, along an entry of x."""
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


def _address(_: Any, array: types.Array) -> tuple[Any, Any]:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return context.make_array(signature.args[0])(context, builder, arguments[0]).data

    return types.CPointer(array.dtype)(array), generate


_first: Any = intrinsic(_address)


@njit
def shaped(flat: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """The numbers from the first of `flat` on, in this shape. Unlike a view, it has no count of
    users, which to raise and lower for each row took two fifths of its time: the caller of the
    kernel keeps them alive."""
    return carray(_first(flat), shape)


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
        shaped(part(vector, sizes, WEIGHTS), (m, k, d)),
        shaped(part(vector, sizes, CURVATURE), (m, d, d)),
        shaped(part(work, sizes, INVERSE), (m, d, d)),
        shaped(part(work, sizes, CENTRE), (m, k, d)),
        shaped(part(work, sizes, DRAWN), (m, k, d)),
        shaped(part(work, sizes, RIDGE), (m, d)),
        shaped(part(work, sizes, HYPER), (m, 3)),
    )
    tilts = part(vector, sizes, CURVATURE_SLOPE)
    leader = Leader(
        sizes[ENTRIES : ENTRIES + n],
        shaped(tilts, (tilts.shape[0] // (d * d), d, d)),
        shaped(part(vector, sizes, SENSITIVITY), (n, k, d)),
    )
    weights = part(vector, sizes, PLAIN_WEIGHTS)
    plain = Plain(
        shaped(weights, (sizes[FIRST_ORDER], k, sizes[FEATURES] + 1)), part(work, sizes, RATES)
    )
    return followers, leader, plain


@njit
def room(work: np.ndarray, sizes: np.ndarray) -> Room:
    """The part of `work` for it, cut."""
    m, k, d, n = sizes[SECOND_ORDER], sizes[OUTPUTS], sizes[INPUTS], sizes[LEARNED]
    everyone, c = m + sizes[FIRST_ORDER], max(1, sizes[CLASSES])
    left = part(work, sizes, ROOM)
    row, row_slope, left = shaped(left, (1, d)), left[d : 2 * d], left[2 * d :]
    said, left = shaped(left, (everyone, c)), left[everyone * c :]
    each, left = shaped(left, (4, everyone)), left[4 * everyone :]
    z0, left = shaped(left, (m, k)), left[m * k :]
    v, left = left[:m], left[m:]
    outputs, left = shaped(left, (everyone, k)), left[everyone * k :]
    spread, left = shaped(left, (m, d)), left[m * d :]
    short, left = shaped(left, (7 + n, k)), left[(7 + n) * k :]
    diagonal, left = left[:d], left[d:]
    bent, left = shaped(left, (n, d)), left[n * d :]
    stack, left = shaped(left, (3, 1 + k, d)), left[3 * (1 + k) * d :]
    lifts, left = left[:n], left[n:]
    asked, left = shaped(left, (n, k, d)), left[n * k * d :]
    solved, left = shaped(left, (n, k, d)), left[n * k * d :]
    return Room(
        row,
        row_slope,
        said,
        each[0],
        each[1],
        each[2],
        each[3],
        z0,
        v,
        outputs,
        spread,
        short[1:],
        short[0],
        diagonal,
        bent,
        stack[0],
        stack[1],
        stack[2],
        lifts,
        asked,
        solved,
        left,
    )
