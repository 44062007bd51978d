"""What the wide engine works on: `head`, a vector of all that does not belong to a feature, and
`cells`, a line of numbers for each feature, so that a key that is present is one place in memory.

The first cell is the intercept's. There are twice as many cells as features when they run out.
"""

import dataclasses
import functools
import math
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from .layout import BOUNDS, HUBER, SIGMOID, SOFTMAX, SQUARED, Plan

# Positions in `sizes`: plain numbers, then four for each member, then the learned entries of x.
OUTPUTS, CLASSES, LOSS, WIDTH, BALANCE, LEARNED, MEMBERS, SHARES, MEMBER = range(9)
KIND, TUNED, HEAD_AT, CELL_AT, PER_MEMBER = range(5)
CURVED, ROOT, FULL = range(3)
# Positions in the head, before the classes' frequencies, the shares and the members.
ROWS, TARGET_COUNT, TARGET_AVERAGE, TARGET_VARIANCE, FREQUENCY = range(5)
# Positions in a cell, before what the members have.
FIRST, SEEN, COUNT, AVERAGE, VARIANCE, OWN = range(6)
# Positions in the settings, before the bounds of x.
STEP_SIZE, FADING, SCALE_MEMORY, DELTA, SHARE, LOW = range(6)
LEAST_CELLS = 128
LONG = "long"
MOST_FULL = 511
"""Features up to which one member has full curvature."""
ROOT_PENALTY, ROOT_MEMORY = 1e-6, 1e4
FULL_STARTS = {True: (1e-3, 10.0, 1e5), False: (1e-3, 3.0, 1e5)}
"""For classes and for numbers, of which a row tells more."""
INTERCEPT_VARIANCE = 10.0
"""In the full curvature: nothing is known of it at first."""


class Member(NamedTuple):
    """One of the models that are mixed."""

    kind: int
    """CURVED: steps by the curvature; ROOT: by the root of summed squares of gradients; FULL: by
    the full curvature while that is possible, see `wide_full`, then CURVED."""
    tuned: bool
    starts: tuple[float, ...]
    """Penalty, inertia, memory; empty for the tuned one, whose start comes later."""


@dataclasses.dataclass(frozen=True)
class WidePlan:
    """The sizes of a wide model. `plan` says what x, the outputs and the members are."""

    plan: Plan

    @functools.cached_property
    def members(self) -> tuple[Member, ...]:
        """Those of the plan in their order; gradient steps of a rate are by the root here, and the
        long memory is the one with the full curvature."""
        frozen = [Member(CURVED, False, (p, inertia, m)) for p, m, inertia in self.plan.frozen]
        if self.full is not None:
            frozen[self.full - 1] = Member(FULL, False, FULL_STARTS[self.plan.slots > 0])
        roots = [Member(ROOT, False, (ROOT_PENALTY, 1 / r, ROOT_MEMORY)) for r in self.plan.rates]
        return Member(CURVED, True, ()), *frozen, *roots

    @property
    def full(self) -> int | None:
        """Which member has full curvature."""
        return self.plan.names.index(LONG) if LONG in self.plan.names else None

    def square(self, features: int) -> np.ndarray:
        """The covariance of weights of which nothing is known; empty where nobody has any."""
        side = self.side(features)
        square = np.zeros((side, side))
        np.fill_diagonal(square, 1 / FULL_STARTS[self.plan.slots > 0][1])
        square[:1, :1] = INTERCEPT_VARIANCE
        return square

    def numbers(self, features: int) -> int:
        """Of head, cells and covariance with room for so many features."""
        after = MEMBER + PER_MEMBER * len(self.members)
        width, per_cell = self.sizes[after : after + 2].tolist()
        return width + room_for(features) * per_cell + self.side(features) ** 2

    def side(self, features: int) -> int:
        """Of the covariance of weights; 0 where nobody has any."""
        if self.full is None or features > MOST_FULL:
            return 0
        return min(room_for(features), MOST_FULL + 1)

    def learned(self, member: Member) -> int:
        """Entries of x that the member learns."""
        return len(self.plan.entries) if member.tuned else 0

    def head_width(self, member: Member) -> int:
        """x, and the running mean of the hypergradient and of its square."""
        return self.plan.width + 2 * self.learned(member)

    def cell_width(self, member: Member) -> int:
        """Curvature, its slopes, weights and their slopes."""
        n, k = self.learned(member), self.plan.outputs
        return 1 + n + k + n * k

    @functools.cached_property
    def sizes(self) -> np.ndarray:
        """All of it, as the kernel reads it."""
        plan, count = self.plan, len(self.members)
        kind = {"logistic": SIGMOID, "squared": SQUARED, "huber": HUBER}[plan.loss]
        kind = SOFTMAX if plan.outputs > 1 else kind
        shares = FREQUENCY + plan.slots
        numbers = [plan.outputs, plan.slots, kind, plan.width, int(plan.balance)]
        numbers += [len(plan.entries), count, shares]
        head, cell = shares + 3 * count, OWN
        for member in self.members:
            numbers += [member.kind, self.learned(member), head, cell]
            head += self.head_width(member)
            cell += self.cell_width(member)
        return np.concatenate([np.array([*numbers, head, cell], np.int64), plan.entries])

    def settings(self, settings: tuple[float, ...]) -> np.ndarray:
        """Step size, fading, memory of the statistics, delta, share; and the bounds of x."""
        bounds = np.empty((2, self.plan.width))
        for name, span in self.plan.spans.items():
            bounds[:, slice(*span)] = np.log(BOUNDS[name])[:, None]
        return np.concatenate([settings, bounds.ravel()])

    def start(self, hyperparameters: Mapping[str, float]) -> tuple[np.ndarray, np.ndarray]:
        """Head and cells before the first row."""
        after = MEMBER + PER_MEMBER * len(self.members)
        width, per_cell = self.sizes[after : after + 2].tolist()
        head, cells = np.zeros(width), np.zeros((LEAST_CELLS, per_cell))
        part = self.parts(head, cells)
        part["shares"][:] = 1 / len(self.members)
        part["residuals"][:] = 1.0
        for name, value in hyperparameters.items():
            part["0.x"][slice(*self.plan.spans[name])] = math.log(value)
        for i, member in enumerate(self.members[1:], 1):
            part[f"{i}.x"][:3] = np.log(member.starts)
        return head, cells

    def parts(self, head: np.ndarray, cells: np.ndarray) -> dict[str, np.ndarray]:
        """Both by name, as views of them; those of member i begin with "i."."""
        plan, count = self.plan, len(self.members)
        shares, lines = FREQUENCY + plan.slots, len(cells)
        found = {
            "numbers": head[:FREQUENCY],
            "frequency": head[FREQUENCY:shares],
            "shares": head[shares : shares + count],
            "residuals": head[shares + count : shares + 2 * count],
            "sat_out": head[shares + 2 * count : shares + 3 * count],
            "statistics": cells[:, :OWN],
        }
        at, cell, k = shares + 3 * count, OWN, plan.outputs
        for i, member in enumerate(self.members):
            n = self.learned(member)
            found[f"{i}.x"] = head[at : at + plan.width]
            found[f"{i}.mean"] = head[at + plan.width : at + plan.width + n]
            found[f"{i}.square"] = head[at + plan.width + n : at + plan.width + 2 * n]
            found[f"{i}.curvature"] = cells[:, cell]
            found[f"{i}.curvature_slope"] = cells[:, cell + 1 : cell + 1 + n]
            begin = cell + 1 + n
            found[f"{i}.weights"] = cells[:, begin : begin + k]
            end = begin + k + n * k
            found[f"{i}.sensitivity"] = cells[:, begin + k : end].reshape(lines, n, k)
            at += self.head_width(member)
            cell = end
        return found


def room_for(features: int) -> int:
    """Cells for so many features and the intercept."""
    room = LEAST_CELLS
    while room < features + 1:
        room *= 2
    return room
