"""The problems and streams on which methods are compared, and how they are scored."""

import dataclasses
import functools
import itertools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from ... import datasets, models, problems, regret
from ..._support.trees import PyTree, is_float
from ...algorithms import Info
from ...problem import Problem
from ...problems import Instance
from ..dynamic_regression.measures import stack, stage_comparators
from ..framework.playing import is_on_this_machine
from ..framework.statistics import cumulative
from .config import Config

STAGES = 3
RIDGE = 0.1
HIDDEN = 8
PROJECTED_STEP = 0.1
# With the outer and inner scale of the grid's step sizes for each.
READY: dict[str, tuple[Callable[..., Instance], float, float]] = {
    "strategic": (problems.strategic_regression, 1.0, 3.0),
    "actor-critic": (problems.actor_critic, 0.1, 1.0),
    "cleaning": (problems.hyper_cleaning, 10.0, 1.0),
    "representation": (problems.hyper_representation, 0.3, 0.3),
    "robust": (problems.robust_regression, 1.0, 3.0),
}
UNBOUNDED = 10.0
"""The loss of a decision without a finite value, in units of the best decision's loss."""


@dataclasses.dataclass(frozen=True)
class Task:
    """One problem with a stream for each seed.

    `rounds` are stacked [seeds, T, ...] and `starts` are (x_1, y_1) of each seed. `score` turns a
    history [settings, seeds, T] into curves, where lower is better. `local` is the local regret of
    the problem, if it has one. The step sizes of the grid are multiplied by `outer_scale` and
    `inner_scale` for all methods.
    """

    problem: Problem
    rounds: PyTree
    starts: list[tuple[PyTree, PyTree]]
    score: Callable[[Info], np.ndarray] = lambda history: cumulative(history.played_value)
    outer_scale: float = 1.0
    inner_scale: float = 1.0
    buffers: PyTree = None
    local: Callable[[Problem, PyTree, PyTree], regret.RegretCurve] | None = None

    @property
    def example_round(self) -> PyTree:
        """The shapes and dtypes of a round."""
        return jax.tree.map(
            lambda leaf: jax.ShapeDtypeStruct(leaf.shape[2:], leaf.dtype), self.rounds
        )

    def of_seed(self, seed: int) -> PyTree:
        """Return the rounds of one seed."""
        return jax.tree.map(lambda leaf: leaf[seed], self.rounds)

    def stationarity(self, outer_vars: PyTree, seed: int) -> np.ndarray | None:
        """Return the local regret of one trajectory, if the problem has one."""
        if self.local is None:
            return None
        return np.asarray(self.local(self.problem, outer_vars, self.of_seed(seed)))


def available(config: Config) -> list[str]:
    """Return the problems of a configuration whose data is on this machine."""
    return [name for name in config.problems if name != "adult" or is_on_this_machine("adult")]


@functools.lru_cache(maxsize=1)
def task(config: Config, name: str) -> Task:
    """Return the task of a problem."""
    if name in READY:
        make, outer_scale, inner_scale = READY[name]
        streams = [make(config.horizon, seed=seed) for seed in range(config.seeds)]
        score = answered(streams[0].problem, [stream.rounds for stream in streams])
        return _task(streams, score, outer_scale=outer_scale, inner_scale=inner_scale)
    makers: dict[str, Callable[[Config], Task]] = {
        "quadratic": functools.partial(_quadratic, box=10.0),
        "constrained": functools.partial(_quadratic, box=0.2),
        "regression": _regression,
        "network": _network,
        "adult": _adult,
    }
    return makers[name](config)


def _task(streams: list[Instance], score: Callable[[Info], np.ndarray], **more: Any) -> Task:
    """Return the task of a stream for each seed."""
    starts = [(stream.outer_var, stream.inner_var) for stream in streams]
    rounds = stack(stream.rounds for stream in streams)
    return Task(streams[0].problem, rounds, starts, score, **more)


def each_run(history: Info, seeds: int, terms: Callable[[PyTree, int], Any]) -> np.ndarray:
    """Return running sums of `terms(xs, seed)` for every setting and seed, one run at a time."""
    settings = len(jax.tree.leaves(history.outer_var)[0])

    def of(setting: int, seed: int) -> PyTree:
        return jax.tree.map(lambda leaf: np.asarray(leaf)[setting, seed], history.outer_var)

    return cumulative(
        [[terms(of(setting, seed), seed) for seed in range(seeds)] for setting in range(settings)]
    )


def _quadratic(config: Config, box: float) -> Task:
    """Return drifting quadratics with known optima. In a small box the constraint is active."""
    make = functools.partial(problems.quadratic, condition=4.0, drift=0.05, box=box)
    streams = [make(config.horizon, 5, 10, seed=seed) for seed in range(config.seeds)]
    problem, of_seed = streams[0].problem, [stream.rounds for stream in streams]
    best = [regret.outer_solutions(problem, rounds) for rounds in of_seed]

    def terms(xs: PyTree, seed: int) -> Any:
        return regret.dynamic(problem, xs, of_seed[seed], comparators=best[seed]).terms

    projected = functools.partial(regret.projected, step_size=PROJECTED_STEP)
    local = projected if box < 1 else regret.local
    return _task(streams, lambda history: each_run(history, config.seeds, terms), local=local)


def _regression(config: Config) -> Task:
    """Return the stream of Section 4.1 with noise, correlated features and three stages.

    There a penalty helps, and it starts too strong, so that there is something to learn.
    """
    make = functools.partial(problems.dynamic_regression, noise=3.0, correlation=0.5)
    streams = [make(config.horizon, STAGES, seed=seed) for seed in range(config.seeds)]
    least = stage_comparators(streams, STAGES, np.asarray(streams[0].outer_var)).losses
    streams = [dataclasses.replace(stream, outer_var=jnp.zeros(1)) for stream in streams]
    # Larger inner steps would fit the one sample of a round exactly.
    return _task(
        streams,
        lambda history: cumulative(np.asarray(history.played_value) - least),
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
    """Return a small network: the leader learns its hidden layer, the follower its head.

    The follower solves a ridge regression, so that the problem is strongly convex in y but not
    convex in x. The head of the true network turns slowly.
    """
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
    return Task(problem, stack(streams), starts, outer_scale=3.0, local=regret.local)


def _adult(config: Config) -> Task:
    """Return loss tuning on Adult with a small perceptron, batches of 64 and no dropout."""
    horizon, streams, starts = config.adult_rounds, [], []
    for seed in range(config.seeds):
        data = datasets.adult(seed=seed)
        rounds = datasets.streams.rounds(data, size=64, seed=seed)
        taken = list(itertools.islice(rounds, horizon))
        streams.append(jax.tree.map(lambda *leaves: np.stack(leaves), *taken))
        model, _ = models.mlp(jax.random.key(seed), len(data.features), 2, hidden=16, dropout=0.0)
        starts.append((problems.loss_tuning_start(2), model))
    return Task(
        problems.loss_tuning(2),
        # In the precision of the model, which is that of JAX's default.
        jax.tree.map(lambda leaf: leaf.astype(float) if is_float(leaf) else leaf, stack(streams)),
        starts,
        buffers=(),
    )


def answered(problem: Problem, of_seed: list[PyTree]) -> Callable[[Info], np.ndarray]:
    """Return the function that scores a history: cumulative f_t(x_t, y*_t(x_t))."""

    @jax.jit
    @jax.vmap
    def losses(x: PyTree, round: PyTree) -> jax.Array:
        assert problem.inner_argmin is not None
        return problem.outer(x, problem.inner_argmin(x, round), round)

    def suffered(xs: PyTree, seed: int) -> np.ndarray:
        values = np.asarray(losses(xs, of_seed[seed]))
        if "value" not in of_seed[seed]:
            return values
        # A policy whose costs grow without bound has no value, even if the equation has a solution.
        least = np.asarray(of_seed[seed]["value"])
        possible = np.isfinite(values) & (values >= least * (1 - 1e-4))
        return np.where(possible, values - least, UNBOUNDED * least)

    return lambda history: each_run(history, len(of_seed), suffered)
