"""What came of rows, and x as people read it."""

import dataclasses
from collections.abc import Hashable, Mapping

import numpy as np

from .kernel import Plan, trail_places
from .options import Options

Values = float | np.ndarray
Hyperparameters = dict[str, Values | dict[Hashable, Values]]
"""By name; a dict by feature or class where there is one for each."""


@dataclasses.dataclass
class Outcome:
    """What was said of each row before it was learned, and what became of it."""

    predictions: np.ndarray
    """Regression: one number per row. Classes: probabilities, a column for each known class."""
    loss: np.ndarray
    reach: np.ndarray
    """How far off the prediction of each row may be, if that was asked for: see `intervals`."""
    x: np.ndarray
    """And the members' shares behind it, after each row; without rows where nobody asked."""
    rejected: dict[int, str]
    """Reasons, by the position of the row."""
    plan: Plan
    """At the time; it says what stands where in x."""


def joined(parts: list[Outcome], plan: Plan, known: int | None) -> Outcome:
    """One after the other. Earlier parts may know fewer than the `known` classes (`None` for
    regression) and have a shorter x than `plan`."""
    shape = (0,) if known is None else (0, known)
    predictions, loss, xs = [np.zeros(shape)], [np.zeros(0)], [np.zeros((0, plan.trail))]
    reach = [np.zeros(0)]
    rejected: dict[int, str] = {}
    begin = 0
    for part in parts:
        said, x = part.predictions, part.x
        if known is not None and said.shape[1] < known:
            said = np.pad(said, ((0, 0), (0, known - said.shape[1])))
        if part.plan != plan:
            x = np.full((len(part.x), plan.trail), np.nan)
            x[:, trail_places(plan, part.plan)] = part.x
        predictions.append(said)
        xs.append(x)
        loss.append(part.loss)
        reach.append(part.reach)
        rejected |= {begin + i: reason for i, reason in part.rejected.items()}
        begin += len(part.loss)
    arrays = [np.concatenate(some) for some in (predictions, loss, reach, xs)]
    return Outcome(arrays[0], arrays[1], arrays[2], arrays[3], rejected, plan)


def named(
    options: Options,
    plan: Plan,
    x: np.ndarray,
    names: Mapping[Hashable, int],
    index: Mapping[Hashable, int],
) -> Hyperparameters:
    """The hyperparameters that x stands for; x may have rows."""
    part = {name: x[..., slice(*span)] for name, span in plan.spans.items()}

    def each(values: np.ndarray, of: Mapping[Hashable, int]) -> dict[Hashable, Values]:
        return {name: _plain(values[..., i]) for name, i in of.items()}

    penalty, memory = np.exp(part["penalty"]), np.exp(part["memory"][..., 0])
    found: Hyperparameters = {
        "penalty": each(penalty, names) if options.per_feature else _plain(penalty[..., 0]),
        "forgetting": _plain(memory / (1 + memory)),
        "memory": _plain(memory),
        "inertia": _plain(np.exp(part["inertia"][..., 0])),
    }
    if options.features == "fourier":
        found["bandwidth"] = _plain(np.exp(part["bandwidth"][..., 0]))
    if options.imbalance == "weights":
        found["class_weights"] = each(np.exp(part["class_weights"]), index)
    if options.imbalance == "logits":
        found["logit_shifts"] = each(part["logit_shifts"], index)
    found["members"] = {name: _plain(x[..., plan.width + i]) for i, name in enumerate(plan.names)}
    return found


def _plain(value: np.ndarray) -> Values:
    return float(value) if np.ndim(value) == 0 else np.asarray(value)
