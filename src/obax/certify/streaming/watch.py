"""A real estimator, played row by row, with all that the theorems speak of noted beside it."""

from typing import Any, NamedTuple

import numpy as np

from ...estimators import StreamingClassifier, StreamingRegressor
from ...estimators.kernel import ACCEPTED, LOSS, OUTCOME, SAID
from ..families.ingredients import Numbers
from .streams import Stream

FROZEN = 1
"""Where the member that stays at the start stands in a default model."""
NOTED = ("shares", "residuals", "averages", "variances", "target_average", "target_variance")


class Watched(NamedTuple):
    """One line for each row. What has no other remark is as it was *before* the row."""

    shares: Numbers
    residuals: Numbers
    averages: Numbers
    variances: Numbers
    target_average: Numbers
    target_variance: Numbers
    weights: Numbers
    """Of the frozen member; one line more, for after the last row."""
    next_shares: Numbers
    """After the row."""
    said: Numbers
    """By each member: the probability of the target, or a number in its deviations."""
    losses: Numbers
    """Of the mixture."""
    played: Numbers
    """1 for a row that every member has learned."""


def watch(stream: Stream, **options: Any) -> Watched:
    """The default estimator of the stream's kind, with the stream's hyperparameters as its start;
    `options` replace some of them."""
    classes = 0 if len(stream.weights) else int(stream.targets.max()) + 1
    given = {name: getattr(stream, name) for name in ("memory", "penalty", "inertia", "share")}
    kind: Any = StreamingClassifier if classes else StreamingRegressor
    core = kind(**given | options)._made
    # Known before the first row, so that nothing grows in between.
    core.names = {i: i for i in range(stream.rows.shape[1])}
    core.add_classes(list(range(classes)))
    plan, (features, count) = core.plan, (stream.rows.shape[1], len(stream.rows))
    end, part = SAID + max(1, plan.slots), plan.parts(core.vector)
    lines, out = np.ones((count, features + 2)), np.zeros((1, end + plan.trail + plan.members))
    lines[:, :features], lines[:, features] = stream.rows, stream.targets
    noted: dict[str, list[Any]] = {
        name: [] for name in (*NOTED, "weights", "next", "out", "out_of")
    }
    for i in range(count):
        for name in NOTED:
            noted[name].append(part[name].copy())
        noted["weights"].append(part["weights"][FROZEN, 0].copy())
        core._play(core.vector, core.record.data, core._work, plan.sizes, lines[i : i + 1], out)
        noted["next"].append(part["shares"].copy())
        noted["out"].append(out[0].copy())
        noted["out_of"].append(part["sat_out"].sum())
    noted["weights"].append(part["weights"][FROZEN, 0].copy())
    found = np.array(noted["out"])
    played = (found[:, OUTCOME] == ACCEPTED) & (np.array(noted["out_of"]) == 0)
    curves = [np.array(noted[name]) for name in (*NOTED, "weights", "next")]
    curves += [found[:, end + plan.trail :], found[:, LOSS], played.astype(np.float64)]
    return Watched(*curves)
