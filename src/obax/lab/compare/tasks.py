"""The streams that the methods are compared on, and what they are judged by."""

import dataclasses
import functools
import itertools
import operator
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from ... import datasets, models, regret
from ..._support.trees import PyTree, is_float
from ...algorithms import Info
from ...problem import Problem
from ...problems import dynamic_regression, loss_tuning, loss_tuning_start, quadratic
from ...problems.regression import stage_of
from ..dynamic_regression.stream import StageProblem
from .config import Config

STAGES = 3
RIDGE = 0.1
HIDDEN = 8
PROJECTED_STEP = 0.1


@dataclasses.dataclass(frozen=True)
class Task:
    """One problem with a stream for each seed.

    `rounds` are stacked [seeds, T, ...], `starts` are (x_1, y_1) of each seed. `score` turns a
    history [settings, seeds, T] into the curves that count, lower is better; `measure` says what
    they are. `stationarity(outer_vars, seed)` is a local regret of one trajectory, or `None`.
    The step sizes of the grid are multiplied by `outer_scale` and `inner_scale`, for all alike.
    """

    problem: Problem
    rounds: PyTree
    starts: list[tuple[PyTree, PyTree]]
    measure: str
    score: Callable[[Info], np.ndarray]
    outer_scale: float = 1.0
    inner_scale: float = 1.0
    buffers: PyTree = None
    stationarity: Callable[[PyTree, int], np.ndarray] | None = None
    stationarity_measure: str = ""

    @property
    def example_round(self) -> PyTree:
        """The shapes of a round."""
        return jax.tree.map(
            lambda leaf: jax.ShapeDtypeStruct(leaf.shape[2:], leaf.dtype), self.rounds
        )

    def of_seed(self, seed: int) -> PyTree:
        """The rounds of one seed."""
        return jax.tree.map(lambda leaf: leaf[seed], self.rounds)


def available(config: Config) -> list[str]:
    """The problems of the config whose data is at hand."""
    return [name for name in config.problems if name != "adult" or has_adult()]


def has_adult() -> bool:
    """Whether the files of Adult are there: nothing is downloaded for a comparison."""
    files = next(entry.files for entry in datasets.DATASETS if entry.name == "adult")
    return all(datasets.find(file) is not None for file in files)


@functools.lru_cache(maxsize=1)
def task(config: Config, name: str) -> Task:
    """The problem of that name."""
    makers: dict[str, Callable[[Config], Task]] = {
        "quadratic": functools.partial(_quadratic, box=10.0),
        "constrained": functools.partial(_quadratic, box=0.2),
        "regression": _regression,
        "network": _network,
        "adult": _adult,
    }
    return makers[name](config)


def _stack(trees: list[PyTree]) -> PyTree:
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *trees)


def _quadratic(config: Config, box: float) -> Task:
    """Drifting quadratics with known optima; with a small box the constraint is active."""
    streams = [
        quadratic(config.horizon, 5, 10, condition=4.0, drift=0.05, box=box, seed=seed)
        for seed in range(config.seeds)
    ]
    problem, rounds = streams[0].problem, _stack([s.rounds for s in streams])
    active = box < 1

    def stationarity(outer_vars: PyTree, seed: int) -> np.ndarray:
        mine = jax.tree.map(lambda leaf: leaf[seed], rounds)
        if active:
            return np.asarray(regret.projected(problem, outer_vars, mine, PROJECTED_STEP))
        return np.asarray(regret.local(problem, outer_vars, mine))

    return Task(
        problem,
        rounds,
        [(s.outer_var, s.inner_var) for s in streams],
        "BD-Reg",
        lambda history: _cumulative(excess(problem, history.outer_var, rounds)),
        stationarity=stationarity,
        stationarity_measure="projected-gradient regret" if active else "local regret",
    )


def excess(problem: Problem, outer_vars: PyTree, rounds: PyTree) -> np.ndarray:
    """f_t(x_t, y*_t(x_t)) - f_t(x*_t, y*_t(x*_t)), the terms of BD-Reg: [settings, seeds, T].

    One trajectory at a time: compiled for all at once, XLA on CPU (jaxlib 0.10.2) gets every entry
    beyond the first 2^15 wrong.
    """
    settings, seeds = jax.tree.leaves(outer_vars)[0].shape[:2]
    of_seed = [jax.tree.map(operator.itemgetter(seed), rounds) for seed in range(seeds)]
    return np.asarray(
        [
            [
                _terms(problem, jax.tree.map(operator.itemgetter((index, seed)), outer_vars), mine)
                for seed, mine in enumerate(of_seed)
            ]
            for index in range(settings)
        ]
    )


@eqx.filter_jit
def _terms(problem: Problem, outer_vars: PyTree, rounds: PyTree) -> Array:
    answer, best = problem.inner_argmin, problem.outer_argmin
    assert answer is not None
    assert best is not None

    def loss(x: PyTree, round: PyTree) -> Array:
        return problem.outer(x, answer(x, round), round)

    return jax.vmap(lambda x, round: loss(x, round) - loss(best(round), round))(outer_vars, rounds)


def _cumulative(terms: Any) -> np.ndarray:
    """Running sums; a run that diverged has lost everything."""
    with np.errstate(over="ignore", invalid="ignore"):
        curves = np.cumsum(np.asarray(terms, np.float64), axis=-1)
    return np.where(np.isfinite(curves), curves, np.inf)


def _regression(config: Config) -> Task:
    """Section 4.1 where a penalty pays: noise, correlated features, three stages. It starts too
    strong, so that there is something to learn."""
    streams = [
        dynamic_regression(config.horizon, STAGES, noise=3.0, correlation=0.5, seed=seed)
        for seed in range(config.seeds)
    ]
    of = stage_of(config.horizon, STAGES)
    least = []
    for stream in streams:
        domain: Any = stream.problem.domain
        stages = [StageProblem(stream, of == stage) for stage in range(STAGES)]
        low, high = float(domain.lower), float(domain.upper)
        models_of = [
            stage.answers(stage.best(np.asarray(stream.outer_var, np.float64), low, high)[None])[0]
            for stage in stages
        ]
        a, b = (np.asarray(leaf, np.float64) for leaf in stream.rounds["validation"])
        least.append(0.5 * (np.einsum("td,td->t", a, np.asarray(models_of)[of]) - b) ** 2)
    return Task(
        streams[0].problem,
        _stack([s.rounds for s in streams]),
        [(jnp.zeros(1), s.inner_var) for s in streams],
        "stage regret",
        lambda history: _cumulative(np.asarray(history.played_value) - np.asarray(least)),
        # One sample a round: larger inner steps learn it by heart.
        inner_scale=0.1,
    )


def _features(x: PyTree, inputs: Array) -> Array:
    return jnp.tanh(inputs @ x["weight"] + x["bias"])


def _network_outer(x: PyTree, y: Array, round: PyTree) -> Array:
    inputs, targets = round["valid"]
    return 0.5 * jnp.mean((_features(x, inputs) @ y - targets) ** 2)


def _network_inner(x: PyTree, y: Array, round: PyTree) -> Array:
    inputs, targets = round["train"]
    return 0.5 * jnp.mean((_features(x, inputs) @ y - targets) ** 2) + 0.5 * RIDGE * jnp.sum(y**2)


def _network_answer(x: PyTree, round: PyTree) -> Array:
    inputs, targets = round["train"]
    features = _features(x, inputs)
    gram = features.T @ features / len(targets) + RIDGE * jnp.eye(HIDDEN, dtype=targets.dtype)
    return jnp.linalg.solve(gram, features.T @ targets / len(targets))


def _network(config: Config) -> Task:
    """The leader learns the hidden layer of a small network, the follower its head by ridge
    regression: not convex in x, strongly convex in y. The teacher's head turns slowly."""
    features, samples, horizon = 4, 16, config.horizon
    streams, starts = [], []
    for seed in range(config.seeds):
        rng = np.random.default_rng([seed, 7])
        teacher = rng.standard_normal((features, HIDDEN)) / np.sqrt(features)
        angle = 2 * np.pi * np.arange(horizon) / 1000
        ends = rng.standard_normal((2, HIDDEN))
        heads = np.cos(angle)[:, None] * ends[0] + np.sin(angle)[:, None] * ends[1]
        round = {}
        for part in ("train", "valid"):
            inputs = rng.standard_normal((horizon, samples, features))
            hidden = np.tanh(2 * inputs @ teacher)
            noise = 0.1 * rng.standard_normal((horizon, samples))
            targets = np.einsum("tnh,th->tn", hidden, heads) / np.sqrt(HIDDEN) + noise
            round[part] = (jnp.asarray(inputs, float), jnp.asarray(targets, float))
        streams.append(round)
        weight = 0.5 * rng.standard_normal((features, HIDDEN))
        x = {"weight": jnp.asarray(weight, float), "bias": jnp.zeros(HIDDEN)}
        starts.append((x, jnp.zeros(HIDDEN)))
    problem = Problem(_network_outer, _network_inner, inner_argmin=_network_answer)
    rounds = _stack(streams)

    def stationarity(outer_vars: PyTree, seed: int) -> np.ndarray:
        mine = jax.tree.map(lambda leaf: leaf[seed], rounds)
        return np.asarray(regret.local(problem, outer_vars, mine))

    return Task(
        problem,
        rounds,
        starts,
        "loss suffered",
        lambda history: _cumulative(history.played_value),
        outer_scale=3.0,
        stationarity=stationarity,
        stationarity_measure="local regret",
    )


def _adult(config: Config) -> Task:
    """Loss tuning on Adult with a small perceptron, batches of 64, no dropout."""
    horizon, streams, starts = config.adult_rounds, [], []
    for seed in range(config.seeds):
        data = datasets.adult(seed=seed)
        rounds = datasets.streams.rounds(data, size=64, seed=seed)
        taken = list(itertools.islice(rounds, horizon))
        streams.append(jax.tree.map(lambda *leaves: np.stack(leaves), *taken))
        model, _ = models.mlp(jax.random.key(seed), len(data.features), 2, hidden=16, dropout=0.0)
        starts.append((loss_tuning_start(2), model))
    return Task(
        loss_tuning(2),
        # In the precision of the model.
        jax.tree.map(lambda leaf: leaf.astype(float) if is_float(leaf) else leaf, _stack(streams)),
        starts,
        "balanced loss suffered",
        lambda history: _cumulative(history.played_value),
        buffers=(),
    )
