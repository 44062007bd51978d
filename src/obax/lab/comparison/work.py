"""The parts of the comparison: one for each method on each problem, on one grid of step sizes."""

import dataclasses
import functools
import itertools
import re
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from jaxtyping import Array, Int

from ... import algorithms
from ..._support.trees import PyTree
from ...algorithms import OAGD, OBBO, SOGD, WOBO, ZOSOGD, Algorithm, Info
from ...hypergradient import CG, Remedy
from ...online import run, sweep
from ...problem import Problem
from ...window import Window
from ..dynamic_regression.measures import stack
from ..framework.experiment import Parts
from ..framework.run_folder import Rows
from ..framework.statistics import best_curve, evenly_spaced_rounds
from .config import BUDGETS, UNCONSTRAINED_FOLLOWER, Config
from .tasks import Task, available, task

COUNTS = ("gradients", "hvps", "cross_products", "evaluations")
Setting = tuple[float, float]


class Repeated(Algorithm):
    """A method that plays every round `repeats` times before it sees the next one.

    In this way a cheap method spends as much as an expensive one. The record has x_t and the losses
    of the first time, when the round arrives, and the oracle calls of all times. Every time counts
    as a step of a schedule and as a term of a window.
    """

    problem: Problem
    algorithm: Algorithm
    repeats: Int[Array, ""]

    def __init__(self, algorithm: Algorithm, repeats: int):
        self.problem = algorithm.problem
        self.algorithm = algorithm
        self.repeats = jnp.asarray(repeats, jnp.int32)

    @property
    def remedy(self) -> Remedy:
        """The remedy of the method."""
        return self.algorithm.remedy

    def check_state(self, state: Any) -> None:
        """Check the state, which is that of the method."""
        self.algorithm.check_state(state)

    def step(self, state: Any, round: PyTree) -> tuple[Any, Info]:
        """Play the round `repeats` times."""

        def again(_: int, now: tuple[Any, tuple[Array, ...]]) -> tuple[Any, tuple[Array, ...]]:
            state, info = self.algorithm.step(now[0], round)
            return state, jax.tree.map(jnp.add, now[1], _counts(info))

        state, info = self.algorithm.step(state, round)
        start = (state, _counts(info))
        state, counts = jax.lax.fori_loop(1, self.repeats, again, start)
        return state, dataclasses.replace(info, **dict(zip(COUNTS, counts, strict=True)))


def _counts(info: Info) -> tuple[Array, ...]:
    return tuple(getattr(info, name) for name in COUNTS)


def grid(config: Config, method: str) -> list[Setting]:
    """Return the settings (alpha, beta), the same for all methods. OGD has no alpha."""
    alphas = (float("nan"),) if method.startswith("OGD") else config.outer_step_sizes
    return list(itertools.product(alphas, config.inner_step_sizes))


def make(
    config: Config, method: str, problem: Problem, setting: Setting, seed: int = 0
) -> Algorithm:
    """Return a method with one setting. `seed` is that of the random directions of ZO-SOGD."""
    alpha, beta = setting
    steps, warm = config.inner_steps, CG(config.solver_steps, warm_start=True)
    cold = CG(config.solver_steps)
    seen = functools.partial(Window, decay=config.decay, normalise="seen")
    stored, few = seen(config.window), seen(config.single_window)
    shared = seen(config.window, curvature="current")

    tolerance, most = config.tolerance, config.max_inner_steps

    def sogd(kind: type[SOGD] | type[ZOSOGD], **more: int) -> Algorithm:
        # Chosen so that alpha_1 is about alpha, and c_1 about the configured momentum.
        unit, speed = config.momentum / alpha**2, beta / alpha
        momenta: dict[str, Any] = {
            f"{level}_momentum": unit for level in ("inner", "dual", "outer")
        }
        scale = alpha * config.offset ** (1 / 3)
        return kind(problem, config.offset, speed, speed, scale=scale, **momenta, **more)

    makers: dict[str, Callable[[], Algorithm]] = {
        "OGD x fixed": lambda: algorithms.OGD(problem, None, beta, steps),
        "OAGD w=1": lambda: OAGD(problem, alpha, beta, steps, Window(), cold),
        "OAGD window": lambda: OAGD(problem, alpha, beta, steps, shared, cold),
        "SOBOW": lambda: algorithms.SOBOW(problem, alpha, beta, stored, warm),
        "SOGD": lambda: sogd(SOGD),
        "ZO-SOGD": lambda: sogd(ZOSOGD, directions_per_round=config.directions, seed=seed),
        "FSOBO": lambda: algorithms.FSOBO(problem, alpha, beta),
        "AOBO": lambda: algorithms.AOBO(problem, alpha, beta, tolerance, most, cold),
        "OBBO": lambda: OBBO(problem, alpha, beta, steps, stored, cold),
        "OBBO adaptive": lambda: OBBO(
            problem, alpha, beta, steps, stored, cold, geometry="adaptive"
        ),
        # Real-time: a hypergradient after every step of y, for every entry of x.
        "RTHO": lambda: algorithms.RTHO(problem, alpha, beta),
        "F2OBO": lambda: algorithms.F2OBO(
            problem, alpha, beta, config.penalty, tolerance=tolerance, max_inner_steps=most
        ),
        # The follower continues from round to round, with one step for each step of the leader.
        "WOBO window": lambda: WOBO(
            problem, alpha, beta, 1, stored, tolerance, config.max_outer_steps, cold
        ),
        # As many terms as the budget of calls allows, and one step of the leader.
        "WOBO single": lambda: WOBO(problem, alpha, beta, 1, few, tolerance, 1, cold),
    }
    return makers[method]()


def cost(config: Config, history: Info) -> np.ndarray:
    """Return the oracle calls of every round, counted in gradients."""
    price = (1.0, config.hvp_cost, config.cross_cost, config.evaluation_cost)
    parts = zip(price, _counts(history), strict=True)
    return np.asarray(sum(p * np.asarray(count, np.float64) for p, count in parts))


class Contender:
    """One method on one task, with all settings on all seeds."""

    def __init__(self, config: Config, task: Task, method: str):
        self.config, self.task, self.method = config, task, method
        self.settings = grid(config, method)
        self.algorithms = [self._make(setting) for setting in self.settings]
        self.states = stack(self._start(seed) for seed in range(config.seeds))

    def _make(self, setting: Setting, seed: int = 0) -> Algorithm:
        alpha, beta = setting
        scaled = (alpha * self.task.outer_scale, beta * self.task.inner_scale)
        return make(self.config, self.method, self.task.problem, scaled, seed)

    def _start(self, seed: int) -> Any:
        algorithm = self._make(self.settings[0], seed)
        x, y = self.task.starts[seed]
        return algorithm.init(x, y, self.task.example_round, buffers=self.task.buffers)

    def play(self, repeats: np.ndarray) -> Info:
        """Play every setting with its number of repeats. Return a history [settings, seeds, T]."""
        players = list(map(Repeated, self.algorithms, repeats.tolist()))
        return sweep(players, self.states, self.task.rounds, seeds=True)[1]

    def runner(self, index: int) -> Callable[[], Any]:
        """Return the run of one setting on the first seed, which is timed."""
        algorithm, rounds = self.algorithms[index], self.task.of_seed(0)
        state = jax.tree.map(lambda leaf: leaf[0], self.states)
        return lambda: run(algorithm, state, rounds, on_rejected="skip")


def seconds_per_round(runners: list[Callable[[], Any]], timings: int, rounds: int) -> list[float]:
    """Return the least seconds per round of each, timed in turn so that noise affects all alike."""
    for runner in runners:
        jax.block_until_ready(runner())
    best = [float("inf")] * len(runners)
    for _ in range(timings):
        for index, runner in enumerate(runners):
            begun = time.perf_counter()
            jax.block_until_ready(runner())
            best[index] = min(best[index], time.perf_counter() - begun)
    return [seconds / rounds for seconds in best]


def parts(config: Config) -> Parts:
    """Return one part for each method, problem by problem."""
    return {
        f"{problem}-{_file_name(method)}": functools.partial(compare, config, problem, method)
        for problem in available(config)
        for method in config.methods
        if not (problem == "robust" and method in UNCONSTRAINED_FOLLOWER)
    }


def compare(config: Config, problem: str, method: str) -> pd.DataFrame:
    """Play the whole grid under each budget. The best setting of each also gives its curves.

    A method that spends its budget at once is played once.
    """
    problem_task = task(config, problem)
    contender = Contender(config, problem_task, method)
    once = np.ones(len(contender.settings), int)
    history = contender.play(once)
    costs = cost(config, history).mean(axis=(1, 2))
    best = best_curve(problem_task.score(history))
    (own,) = seconds_per_round([contender.runner(best)], config.timings, config.rounds(problem))
    # Where the work of a round depends on the step sizes, so does its time.
    seconds, rows = own * costs / costs[best], Rows()
    for budget in (name for name in BUDGETS if name in config.budgets):
        times = once
        if budget == "calls":
            times = np.clip(np.rint(config.calls / costs), 1, config.max_repeats).astype(int)
        if times.max() > 1:
            history = contender.play(times)
        spent = {"seconds_per_round": seconds * times, "repeats": times}
        ids = {"method": method, "problem": problem, "budget": budget}
        _add(rows, ids, contender, history, spent)
    return rows.table()


def _add(
    rows: Rows, ids: dict[str, str], contender: Contender, history: Info, spent: dict[str, Any]
) -> None:
    """Add the score of every setting, and the curves of the best one with what it `spent`."""
    config, problem_task = contender.config, contender.task
    horizon, scores = config.rounds(ids["problem"]), problem_task.score(history)
    best = best_curve(scores)
    calls = np.cumsum(cost(config, history)[best], axis=-1)
    times = evenly_spaced_rounds(horizon, config.curve_points)
    for seed in range(config.seeds):
        for index, (alpha, beta) in enumerate(contender.settings):
            of = ids | {"alpha": alpha, "beta": beta, "seed": seed}
            rows.add(of, horizon, {"score": scores[index, seed, -1]})
            if index != best:
                continue
            rows.add(of, horizon, {name: values[best] for name, values in spent.items()})
            rows.add(of, horizon, {"rejected": np.sum(~np.asarray(history.accepted[best, seed]))})
            curves = {"score_curve": scores[best, seed], "calls_curve": calls[seed]}
            played = jax.tree.map(lambda leaf, seed=seed: leaf[best, seed], history.outer_var)
            stationarity = problem_task.stationarity(played, seed)
            if stationarity is not None:
                curves["stationarity_curve"] = stationarity
            rows.add(of, times, {name: curve[times - 1] for name, curve in curves.items()})


def _file_name(method: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", method.lower()).strip("-")
