"""More features, more classes: the vector of a model in a larger one."""

import math
from collections.abc import Mapping

import numpy as np

from .layout import Plan


def places(plan: Plan, old: Plan) -> np.ndarray:
    """Where in x the entries of a smaller plan went."""
    return np.concatenate(
        [plan.spans[name][0] + np.arange(stop - start) for name, (start, stop) in old.spans.items()]
    )


def trail_places(plan: Plan, old: Plan) -> np.ndarray:
    """The same of x and the members' shares, as they are noted."""
    return np.append(places(plan, old), plan.width + member_places(plan, old))


def member_places(plan: Plan, old: Plan) -> np.ndarray:
    """Where the members of a plan went that has no more of them."""
    if plan.names == old.names:
        return np.arange(plan.members)
    return np.array([plan.names.index(name) for name in old.names])


def grown(
    plan: Plan, old: Plan, vector: np.ndarray, hyperparameters: Mapping[str, float]
) -> np.ndarray:
    """The vector of a smaller plan with room for more features or classes.

    The weights of new features are 0. Two classes with one logit z become logits (-z/2, z/2).
    """
    found = plan.start(hyperparameters)
    new, before = plan.parts(found), old.parts(vector)
    where = places(plan, old)
    new["x"][where] = before["x"]
    if before["rows"] > 0:
        # In units of the root of the number of features: what the waves are stays as it was.
        wider = max(1, plan.features) / max(1, old.features)
        new["x"][slice(*plan.spans["bandwidth"])] -= 0.5 * math.log(wider)
    learned = np.searchsorted(plan.entries, where[old.entries])
    for name in ("mean", "square"):
        new[name][learned] = before[name]
    index = {name: i for i, name in enumerate(plan.columns)}
    columns = np.array([index[name] for name in old.columns])
    linear = columns[: old.features + 1]
    share = np.array([-0.5, 0.5]) if plan.outputs > old.outputs == 1 else np.ones(old.outputs)
    lines, halves = np.arange(len(share)), share[:, None]
    for name, theirs in (("weights", columns), ("plain_weights", linear)):
        members = np.arange(len(before[name]))
        new[name][np.ix_(members, lines, theirs)] = halves * before[name]
    new["sensitivity"][np.ix_(learned, lines, columns)] = halves * before["sensitivity"]
    members = np.arange(len(before["curvature"]))
    new["curvature"][np.ix_(members, columns, columns)] = before["curvature"]
    tilts = learned[old.plain :] - plan.plain
    new["curvature_slope"][np.ix_(tilts, columns, columns)] = before["curvature_slope"]
    for name in ("counts", "averages", "variances", "aside", "frequency"):
        new[name][: len(before[name])] = before[name]
    same = ("rows", "recent", "shares", "residuals", "sat_out")
    for name in (*same, *(name for name in new if name.startswith("target_"))):
        new[name][...] = before[name]
    return found


def retaught(plan: Plan, old: Plan, vector: np.ndarray) -> np.ndarray:
    """The vector of a plan that differs in what is learned alone: a hyperparameter that is learned
    from now on begins where it stands, with no sensitivity yet."""
    found = plan.start({})
    new, before = plan.parts(found), old.parts(vector)
    both = np.intersect1d(plan.entries, old.entries)
    here, there = np.searchsorted(plan.entries, both), np.searchsorted(old.entries, both)
    for name, part in new.items():
        if name in ("mean", "square", "sensitivity"):
            part[here] = before[name][there]
        elif name == "curvature_slope":
            kept = (here >= plan.plain) & (there >= old.plain)
            part[here[kept] - plan.plain] = before[name][there[kept] - old.plain]
        else:
            part[...] = before[name]
    return found
