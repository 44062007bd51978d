"""The parts of the comparison: one for each method on each problem."""

import functools
import re
from typing import Any

import jax
import numpy as np
import pandas as pd

from ...algorithms import Info
from ..framework.experiment import Parts
from ..framework.statistics import best_curve, evenly_spaced_rounds
from ..framework.table import Rows
from .config import BUDGETS, UNCONSTRAINED_FOLLOWER, Config
from .methods import Contender, cost, seconds_per_round
from .tasks import available, task


def parts(config: Config) -> Parts:
    """Return one part for each method, problem by problem."""
    return {
        f"{problem}-{_file_name(method)}": functools.partial(compare, config, problem, method)
        for problem in available(config)
        for method in config.methods
        if not (problem == "robust" and method in UNCONSTRAINED_FOLLOWER)
    }


def compare(config: Config, problem: str, method: str) -> pd.DataFrame:
    """Play the whole grid under each budget. The best setting of each also gives its curves."""
    problem_task = task(config, problem)
    contender = Contender(config, problem_task, method)
    once = np.ones(len(contender.settings), int)
    # Histories by numbers of repeats: a method that spends its budget at once is played once.
    played = {tuple(once): contender.play(once)}
    costs = cost(config, played[tuple(once)]).mean(axis=(1, 2))
    best = best_curve(problem_task.score(played[tuple(once)]))
    (own,) = seconds_per_round([contender.runner(best)], config.timings, config.rounds(problem))
    # Where the work of a round depends on the step sizes, so does its time.
    seconds = own * costs / costs[best]
    repeats = {"rounds": once, "calls": contender.repeats(config.calls / costs)}
    rows = Rows()
    for budget in (name for name in BUDGETS if name in config.budgets):
        times = repeats[budget]
        if tuple(times) not in played:
            played[tuple(times)] = contender.play(times)
        spent = {"seconds_per_round": seconds * times, "repeats": times}
        ids = {"method": method, "problem": problem, "budget": budget}
        _add(rows, ids, contender, played[tuple(times)], spent)
    return rows.table()


def _add(
    rows: Rows, ids: dict[str, str], contender: Contender, history: Info, spent: dict[str, Any]
) -> None:
    """Add the score of every setting, and the curves of the best one with what it `spent`."""
    config, problem_task = contender.config, contender.task
    horizon = config.rounds(ids["problem"])
    scores = problem_task.score(history)
    best = best_curve(scores)
    calls = np.cumsum(cost(config, history)[best], axis=-1)
    times = evenly_spaced_rounds(horizon, config.curve_points)
    for seed in range(config.seeds):
        for index, (alpha, beta) in enumerate(contender.settings):
            of = ids | {"alpha": alpha, "beta": beta, "seed": seed}
            rows.add(of, horizon, {"score": scores[index, seed, -1]})
            if index != best:
                continue
            rejected = np.sum(~np.asarray(history.accepted[best, seed]))
            rows.add(of, horizon, {name: values[best] for name, values in spent.items()})
            rows.add(of, horizon, {"rejected": rejected})
            curves = {"score_curve": scores[best, seed], "calls_curve": calls[seed]}
            played = jax.tree.map(lambda leaf, seed=seed: leaf[best, seed], history.outer_var)
            stationarity = problem_task.stationarity(played, seed)
            if stationarity is not None:
                curves["stationarity_curve"] = stationarity
            rows.add(of, times, {name: curve[times - 1] for name, curve in curves.items()})


def _file_name(method: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", method.lower()).strip("-")
