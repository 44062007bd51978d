"""More features, more classes: the vector of a model in a larger one."""

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
    learned = np.searchsorted(plan.entries, where[old.entries])
    for name in ("mean", "square"):
        new[name][learned] = before[name]
    columns = np.append(np.arange(old.features), plan.features)
    share = np.array([-0.5, 0.5]) if plan.outputs > old.outputs == 1 else np.ones(old.outputs)
    lines, halves = np.arange(len(share)), share[:, None]
    for name in ("weights", "plain_weights"):
        members = np.arange(len(before[name]))
        new[name][np.ix_(members, lines, columns)] = halves * before[name]
    new["sensitivity"][np.ix_(learned, lines, columns)] = halves * before["sensitivity"]
    members = np.arange(len(before["curvature"]))
    new["curvature"][np.ix_(members, columns, columns)] = before["curvature"]
    if before["curvature_slope"].size:
        new["curvature_slope"][np.ix_(columns, columns)] = before["curvature_slope"]
    for name in ("counts", "averages", "variances", "frequency"):
        new[name][: len(before[name])] = before[name]
    same = ("rows", "shares", "residuals", "sat_out")
    for name in (*same, "target_count", "target_average", "target_variance"):
        new[name][...] = before[name]
    return found
