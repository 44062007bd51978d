"""The work of the comparison: a part for each method on each problem."""

import functools
import re
from typing import Any

import jax
import numpy as np
import pandas as pd

from ...algorithms import Info
from ..kit.curves import best_curve, points
from ..kit.experiment import Part
from ..kit.table import Rows
from .config import BUDGETS, FREE_FOLLOWER, REFERENCE, Config
from .methods import Contender, cost, reference_cost, seconds_of
from .tasks import available, task


def parts(config: Config) -> list[Part]:
    """Problem by problem, all methods."""
    return [
        Part(f"{problem}-{_slug(method)}", functools.partial(compare, config, problem, method))
        for problem in available(config)
        for method in config.methods
        if not (problem == "robust" and method in FREE_FOLLOWER)
    ]


def compare(config: Config, problem: str, method: str) -> pd.DataFrame:
    """The whole grid under each budget; the best setting of each also as curves."""
    here = task(config, problem)
    contender = Contender(config, here, method)
    once = np.ones(len(contender.settings), int)
    # Histories by repeats: a method that spends its budget in one go is played once.
    played = {tuple(once): contender.play(once)}
    costs = cost(config, played[tuple(once)]).mean(axis=(1, 2))
    best = best_curve(here.score(played[tuple(once)]))
    own, reference = _seconds(config, problem, contender, best)
    # Where the work of a round depends on the step sizes, so does its time.
    seconds = own * costs / costs[best]
    # As long as OAGD with w = 1 takes for its share of calls.
    budgeted = reference * config.calls / reference_cost(config)
    repeats = {
        "rounds": once,
        "calls": contender.repeats(config.calls / costs),
        "seconds": contender.repeats(budgeted / seconds),
    }
    rows = Rows()
    for budget in (name for name in BUDGETS if name in config.budgets):
        times = repeats[budget]
        if tuple(times) not in played:
            played[tuple(times)] = contender.play(times)
        spent = {"seconds_per_round": seconds * times, "repeats": times}
        spent["seconds_share"] = seconds * times / budgeted
        at = {"method": method, "problem": problem, "budget": budget}
        _add(rows, at, contender, played[tuple(times)], spent)
    return rows.table()


def _seconds(config: Config, problem: str, contender: Contender, index: int) -> tuple[float, float]:
    """Seconds per round of a method at its best setting, and of OAGD with w = 1 beside it."""
    runners = [contender.runner(index)]
    if contender.method != REFERENCE:
        # Its time does not depend on its step sizes.
        runners.append(Contender(config, contender.task, REFERENCE).runner(0))
    seconds = seconds_of(runners, config.timings, config.rounds(problem))
    return seconds[0], seconds[-1]


def _add(
    rows: Rows, at: dict[str, str], contender: Contender, history: Info, spent: dict[str, Any]
) -> None:
    """The score of every setting; of the best one also its curves and what it `spent`."""
    config, here = contender.config, contender.task
    horizon = config.rounds(at["problem"])
    scores = here.score(history)
    best = best_curve(scores)
    calls = np.cumsum(cost(config, history)[best], axis=-1)
    times = points(horizon, config.curve_points)
    for seed in range(config.seeds):
        for index, (alpha, beta) in enumerate(contender.settings):
            of = at | {"alpha": alpha, "beta": beta, "seed": seed}
            rows.add(of, horizon, {"score": scores[index, seed, -1]})
            if index != best:
                continue
            rejected = np.sum(~np.asarray(history.accepted[best, seed]))
            rows.add(of, horizon, {name: values[best] for name, values in spent.items()})
            rows.add(of, horizon, {"rejected": rejected})
            curves = {"score_curve": scores[best, seed], "calls_curve": calls[seed]}
            played = jax.tree.map(lambda leaf, seed=seed: leaf[best, seed], history.outer_var)
            stationarity = here.stationarity(played, seed)
            if stationarity is not None:
                curves["stationarity_curve"] = stationarity
            rows.add(of, times, {name: curve[times - 1] for name, curve in curves.items()})


def _slug(method: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", method.lower()).strip("-")
