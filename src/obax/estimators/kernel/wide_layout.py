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

from .growth import member_places, places
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
        side = min(room_for(features), MOST_FULL + 1)
        if self.full is None or features > MOST_FULL:
            side = 0
        square = np.zeros((side, side))
        np.fill_diagonal(square, 1 / FULL_STARTS[self.plan.slots > 0][1])
        square[:1, :1] = INTERCEPT_VARIANCE
        return square

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


def enough(cells: np.ndarray, features: int) -> np.ndarray:
    """The cells, twice as many of them as often as so many features need it."""
    room = room_for(features)
    if room <= len(cells):
        return cells
    wide = np.zeros((room, cells.shape[1]))
    wide[: len(cells)] = cells
    return wide


def fit_square(
    wide: WidePlan, head: np.ndarray, cells: np.ndarray, square: np.ndarray, features: int
) -> np.ndarray:
    """The covariance with room for so many features. Where they are too many it is given up, and
    its diagonal goes into the cells of the member that had it."""
    fresh, side = wide.square(features), len(square)
    if len(fresh) > side:
        fresh[:side, :side] = square
        return fresh
    if len(fresh) == side:
        return square
    part, i = wide.parts(head, cells), wide.full
    _, inertia, memory = FULL_STARTS[wide.plan.slots > 0]
    known = np.maximum(1 / np.diagonal(square) - inertia, 0) * (1 + memory) / memory
    part[f"{i}.curvature"][:side] = known
    return fresh


def widened(
    wide: WidePlan,
    old: WidePlan,
    head: np.ndarray,
    cells: np.ndarray,
    hyperparameters: Mapping[str, float],
) -> tuple[np.ndarray, np.ndarray]:
    """Head and cells of a plan with fewer classes. Two classes with one logit z become logits
    (-z/2, z/2)."""
    after, fresh = wide.start(hyperparameters)
    room = np.zeros((len(cells), fresh.shape[1]))
    new, before = wide.parts(after, room), old.parts(head, cells)
    where = places(wide.plan, old.plan)
    learned = np.searchsorted(wide.plan.entries, where[old.plan.entries])
    share = halves(wide.plan, old.plan)
    for name, part in before.items():
        kind = name.split(".")[-1]
        if kind == "x":
            new[name][where] = part
        elif kind in ("mean", "square"):
            new[name][learned[: len(part)]] = part
        elif kind == "curvature_slope":
            new[name][:, learned[: part.shape[1]]] = part
        elif kind == "weights":
            new[name][:, : len(share)] = share * part
        elif kind == "sensitivity":
            new[name][:, learned[: part.shape[1]], : len(share)] = share * part
        else:
            new[name][tuple(slice(size) for size in part.shape)] = part
    return after, room


def from_dense(
    wide: WidePlan, old: Plan, vector: np.ndarray, hyperparameters: Mapping[str, float]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Head, cells and covariance that go on where a dense model has stopped, which may have had
    fewer classes: statistics, shares, x, weights and the curvature or its diagonal."""
    head, cells = wide.start(hyperparameters)
    cells = enough(cells, old.features)
    new, before, f = wide.parts(head, cells), old.parts(vector), old.features
    names = ("rows", "target_count", "target_average", "target_variance")
    new["numbers"][:] = [before[name] for name in names]
    new["frequency"][: len(before["frequency"])] = before["frequency"]
    # A member that is new has the share of one among all and begins as the tuned one.
    ours = member_places(wide.plan, old)
    for name in ("shares", "residuals", "sat_out"):
        scale = len(ours) / len(wide.members) if name == "shares" else 1
        new[name][ours[: len(before[name])]] = scale * before[name]
    where = places(wide.plan, old)
    learned = np.searchsorted(wide.plan.entries, where[old.entries])
    new["0.x"][where] = before["x"]
    for name in ("mean", "square"):
        new[f"0.{name}"][learned] = before[name]
    statistics = new["statistics"][1 : f + 1]
    for at, name in ((SEEN, "counts"), (COUNT, "counts"), (AVERAGE, "averages")):
        statistics[:, at] = before[name]
    statistics[:, VARIANCE] = before["variances"]
    # The intercept, last there, is the first here.
    order, share = np.append(f, np.arange(f)), halves(wide.plan, old)
    second, square = len(before["weights"]), wide.square(f)
    for i in range(len(wide.members)):
        was = int(np.flatnonzero(ours == i)[0]) if i in ours else 0
        # A gradient step has no past there: that of the tuned member, which estimates the same.
        first = was >= second
        weights = before["plain_weights"][was - second] if first else before["weights"][was]
        curvature = before["curvature"][0 if first else was][np.ix_(order, order)]
        new[f"{i}.weights"][: f + 1, : len(share)] = share * weights.T[order]
        new[f"{i}.curvature"][: f + 1] = np.diagonal(curvature)
        if i == wide.full:
            known = curvature + np.diag(1 / np.diagonal(square)[: f + 1])
            square[: f + 1, : f + 1] = np.linalg.inv(known)
    return head, cells, square


def halves(plan: Plan, old: Plan) -> np.ndarray:
    """What becomes of the outputs of a plan with fewer classes."""
    return np.array([-0.5, 0.5]) if plan.outputs > old.outputs == 1 else np.ones(old.outputs)
