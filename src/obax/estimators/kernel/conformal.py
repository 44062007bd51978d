"""Intervals that keep their word, by adaptive conformal inference (Gibbs and Candes 2021).

A row that is learned leaves a score: how far off the prediction was, |target - said| in units of a
running mean of that, or 1 - the probability of the class that came. `reach` is how far off the next
prediction may be: the (1 - level) quantile of the last ROWS scores. For each coverage in use the
level, which begins at 1 - coverage, then moves with every row that is learned,

    level <- level - GAMMA (missed - (1 - coverage)),

so that misses widen what is said next and the lack of them narrows it. Summed over any T rows in a
stretch, misses differ from (1 - coverage) T by (first level - last level) / GAMMA, whatever the
stream does. From level 1 on no class is said, so all is missed; below 0, where the scores end, all
classes are, and nothing is: levels stay within [-GAMMA, 1 + GAMMA], so that over any 2,000 rows
coverage is within 1.06 / (2000 GAMMA) = 1.8 points. A number may be anything: below 0 each further
miss doubles the reach, which costs one more miss for each doubling of errors from one row to the
next, and one that is predicted exactly is covered, however little was asked.

All of it is one part of the record, the ring: USED ... ASKED, then MOST slots of a coverage each,
then the scores in the order in which they came and, while a coverage is in use, in their own.
"""

import math

import numpy as np
from numba import njit

ROWS = 500
GAMMA = 0.03
SCALE_ROWS = 100.0
"""Rows that the mean by which errors of a regression are divided goes back."""
MOST = 16
"""Coverages in use at the same time."""
LARGEST_SCORE = 1e12
USED, NEXT, NUMBERS, SCALE, COUNT, SLOTS, ASKED, HEAD = range(8)
"""Scores there are; where the next goes; 1 if errors are of numbers, which have a scale, 0 if of
classes; the running mean of errors and its rows; coverages in use; 1 + the slot whose reach is
written down with every row, 0 for none."""
COVERAGE, LEVEL, LEARNED, COVERED, SLOT = range(5)
"""Of a slot: what was asked, the level, rows learned since then, how many of them were covered."""
SCORES = HEAD + MOST * SLOT
ORDERED = SCORES + ROWS
SIZE = ORDERED + ROWS


@njit
def reach(ring: np.ndarray, slot: int) -> float:
    """The largest error that is still covered now; infinite before the first score, negative where
    not even a class that is certain is to be said."""
    used, level = int(ring[USED]), ring[HEAD + slot * SLOT + LEVEL]
    if used == 0:
        return np.inf
    rank = math.ceil((used + 1.0) * (1.0 - level))
    if rank <= 0:
        return ring[NUMBERS] - 1.0
    if rank <= used:
        return ring[ORDERED + rank - 1] * ring[SCALE]
    if ring[NUMBERS] == 0.0:
        return 1.0
    return ring[ORDERED + used - 1] * ring[SCALE] * 2.0 ** max(0.0, -level / GAMMA)


@njit
def replace(ordered: np.ndarray, used: int, old: float, new: float) -> None:
    """Put a score among the first `used`, for an `old` one where there is no more room."""
    if used == ordered.shape[0]:
        at, beyond = 0, used
        while at < beyond:
            middle = (at + beyond) // 2
            if ordered[middle] < old:
                at = middle + 1
            else:
                beyond = middle
    else:
        at = used
    while at > 0 and ordered[at - 1] > new:
        ordered[at] = ordered[at - 1]
        at -= 1
    last = min(used, ordered.shape[0] - 1)
    while at < last and ordered[at + 1] < new:
        ordered[at] = ordered[at + 1]
        at += 1
    ordered[at] = new


@njit
def observe(ring: np.ndarray, error: float, numbers: bool) -> None:
    """Note the error of a prediction, of a number or of a class, whose row is learned now."""
    for slot in range(int(ring[SLOTS])):
        at = HEAD + slot * SLOT
        missed = 1.0 if error > reach(ring, slot) else 0.0
        level = ring[at + LEVEL] - GAMMA * (missed - (1.0 - ring[at + COVERAGE]))
        ring[at + LEVEL] = min(level, 1.0 + GAMMA)
        ring[at + LEARNED] += 1.0
        ring[at + COVERED] += 1.0 - missed
    if not numbers:
        ring[SCALE] = 1.0
    elif ring[SCALE] == 0.0:
        # The first error there is, or the first after nothing but exact predictions.
        ring[SCALE] = error
    score = min(error / ring[SCALE], LARGEST_SCORE) if ring[SCALE] > 0.0 else 0.0
    used, at = int(ring[USED]), SCORES + int(ring[NEXT])
    if ring[SLOTS] > 0.0:
        replace(ring[ORDERED:], used, ring[at], score)
    ring[at] = score
    ring[NEXT] = ring[NEXT] + 1.0 if ring[NEXT] < ROWS - 1 else 0.0
    ring[USED] = min(used + 1, ROWS)
    if numbers:
        ring[NUMBERS] = 1.0
        ring[COUNT] = min(ring[COUNT] + 1.0, SCALE_ROWS)
        ring[SCALE] += (error - ring[SCALE]) / ring[COUNT]


@njit
def asked_reach(ring: np.ndarray) -> float:
    """The reach of the coverage that is asked for with every row, if there is one."""
    return reach(ring, int(ring[ASKED]) - 1) if ring[ASKED] > 0.0 else 0.0


@njit
def hear(ring: np.ndarray, said: np.ndarray, target: float, numbers: bool) -> None:
    """Note what was said of a row before it was learned, now that the target is known."""
    error = abs(target - said[0]) if numbers else 1.0 - said[int(target)]
    observe(ring, error, numbers)


def ask(ring: np.ndarray, coverage: float) -> int:
    """The slot of a coverage, a new one where it was not in use; `MOST` if there is none left."""
    slots = int(ring[SLOTS])
    table = ring[HEAD:SCORES].reshape(MOST, SLOT)
    found = np.flatnonzero(table[:slots, COVERAGE] == coverage)
    if len(found):
        return int(found[0])
    if slots < MOST:
        if slots == 0:
            used = int(ring[USED])
            ring[ORDERED : ORDERED + used] = np.sort(ring[SCORES : SCORES + used])
        table[slots] = coverage, 1.0 - coverage, 0.0, 0.0
        ring[SLOTS] += 1.0
    return slots
