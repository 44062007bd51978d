"""The work of the comparison: a part for each method on each problem."""

import functools
import re

import jax
import numpy as np
import pandas as pd

from ..._support.trees import PyTree
from ...algorithms import Info
from ..kit.experiment import Part
from .config import BUDGETS, Config
from .methods import REFERENCE, Contender, cost, reference_cost, seconds_of
from .tasks import available, task

Row = tuple[str, str, int, int, str, float]


def parts(config: Config) -> list[Part]:
    """Problem by problem, all methods."""
    return [
        Part(f"{problem}-{_slug(method)}", functools.partial(compare, config, problem, method))
        for problem in available(config)
        for method in config.methods
    ]


def compare(config: Config, problem: str, method: str) -> pd.DataFrame:
    """The whole grid under each budget; the best setting of each also as curves."""
    here = task(config, problem)
    contender = Contender(config, here, method)
    once = np.ones(len(contender.settings), int)
    # Histories by repeats: a method that spends its budget in one go is played once.
    played = {tuple(once): contender.play(once)}
    costs = cost(config, played[tuple(once)]).mean(axis=(1, 2))
    best = best_of(here.score(played[tuple(once)]))
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
    rows: list[Row] = []
    for budget in (name for name in BUDGETS if name in config.budgets):
        times = repeats[budget]
        if tuple(times) not in played:
            played[tuple(times)] = contender.play(times)
        clock = (seconds * times, seconds * times / budgeted)
        rows += _rows(config, problem, contender, budget, times, played[tuple(times)], *clock)
    return pd.DataFrame(rows, columns=["method", "setting", "seed", "t", "metric", "value"])


def best_of(scores: np.ndarray) -> int:
    """The setting with the least mean score at the end, from curves [settings, seeds, T]."""
    return int(np.argmin(np.mean(scores[:, :, -1], axis=1)))


def _seconds(config: Config, problem: str, contender: Contender, index: int) -> tuple[float, float]:
    """Seconds a round of a method at its best setting, and of OAGD with w = 1 beside it."""
    rounds = config.rounds(problem)
    if contender.method == REFERENCE:
        own = seconds_of([contender.runner(index)], config.timings, rounds)[0]
        return own, own
    reference = Contender(config, contender.task, REFERENCE)
    # Its time does not depend on its step sizes.
    runners = [contender.runner(index), reference.runner(0)]
    own, other = seconds_of(runners, config.timings, rounds)
    return own, other


def _rows(
    config: Config,
    problem: str,
    contender: Contender,
    budget: str,
    repeats: np.ndarray,
    history: Info,
    seconds: np.ndarray,
    share: np.ndarray,
) -> list[Row]:
    here, horizon = contender.task, config.rounds(problem)
    scores = here.score(history)
    best = best_of(scores)
    rows: list[Row] = []

    def at(index: int, seed: int, t: int) -> tuple[str, str, int, int]:
        alpha, beta = contender.settings[index]
        setting = f"problem={problem}; budget={budget}; alpha={alpha:g}; beta={beta:g}"
        return contender.method, setting, seed, t

    for index in range(len(contender.settings)):
        for seed in range(config.seeds):
            rows.append((*at(index, seed, horizon), "score", float(scores[index, seed, -1])))
    spent = np.cumsum(cost(config, history)[best], axis=-1)
    times = points(config, horizon)
    for seed in range(config.seeds):
        for t in times:
            here_now = at(best, seed, int(t))
            rows.append((*here_now, "score_curve", float(scores[best, seed, t - 1])))
            rows.append((*here_now, "calls_curve", float(spent[seed, t - 1])))
        last = at(best, seed, horizon)
        rejected = float(np.sum(~np.asarray(history.accepted[best, seed])))
        rows += [(*last, "rejected", rejected), (*last, "repeats", float(repeats[best]))]
        rows.append((*last, "seconds_per_round", float(seconds[best])))
        rows.append((*last, "seconds_share", float(share[best])))
        if here.stationarity is not None:
            curve = here.stationarity(_decisions(history, best, seed), seed)
            for t in times:
                rows.append((*at(best, seed, int(t)), "stationarity_curve", float(curve[t - 1])))
    return rows


def _decisions(history: Info, index: int, seed: int) -> PyTree:
    return jax.tree.map(lambda leaf: leaf[index, seed], history.outer_var)


def points(config: Config, horizon: int) -> np.ndarray:
    """The rounds at which curves are kept."""
    wanted = np.linspace(1, horizon, min(config.curve_points, horizon))
    return np.unique(wanted.astype(int))


def _slug(method: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", method.lower()).strip("-")
