"""More features, more classes, and from a dense model to a wide one: see `wide_layout`."""

from collections.abc import Mapping

import numpy as np

from .growth import member_places, places
from .layout import Plan
from .wide_layout import AVERAGE, COUNT, FULL_STARTS, SEEN, VARIANCE, WidePlan, room_for


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
