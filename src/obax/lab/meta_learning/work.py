"""The parts of the experiments: each method played on each seed, and the tasks of a seed."""

import dataclasses
import functools
import itertools
import math
from collections.abc import Iterator
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pandas as pd

from ... import ITD, OAGD, Replay, Window, adapt, models, prox_linear
from ..._support.messages import UserError
from ..._support.trees import PyTree
from ...datasets import fewshot
from ...hypergradient import CG, FixedPoint, Neumann
from ...problems import embed_task, meta_learning, task_logits
from ..framework import playing
from ..framework.experiment import Parts
from ..framework.learning import parts_by_seed
from ..framework.playing import Metrics
from ..framework.run_folder import Rows
from .config import Config, Method

# Seeds of the three streams of a run, which must be different.
LEARNING, TRAINING, TESTING = 0, 1, 2
EVALUATED_AT_ONCE = 10


def parts(config: Config) -> Parts:
    """Return one part for each method and seed."""
    return parts_by_seed(config, compare)


def compare(config: Config, method: Method, seed: int) -> pd.DataFrame:
    """Play one method on one seed and return its rows."""
    of_seed, rows = tasks(config, seed), Rows()
    steps = {"alpha": config.outer_step_size, "beta": config.step_size_of(method)}
    ids = method.columns() | steps | {"K": config.steps_of(method)}
    for t, metrics in play(config, method, of_seed):
        rows.add(ids | {"data": of_seed.data.name, "seed": seed}, t, metrics)
    return rows.table()


# Cached because optax transformations are compared by identity: a new one would be compiled anew.
@functools.cache
def optimiser(name: str) -> optax.GradientTransformation | None:
    """Return Adam, or `None` for plain gradient steps."""
    return optax.adam(1.0) if name == "adam" else None


def algorithm(config: Config, method: Method) -> OAGD | ITD:
    """Return the algorithm of a method with its settings."""
    outer: dict[str, Any] = {
        "outer_step_size": config.outer_step_size,
        "outer_optimiser": optimiser(config.outer_optimiser),
    }
    steps, beta = config.steps_of(method), config.step_size_of(method)
    part = "head" if method.adapts_only_head else "all"
    of_problem: dict[str, Any] = {"part": part, "unit_curvature": config.has_unit_curvature(method)}
    if method.kind != "OAGD":
        leader = "features" if method.kind == "ITD-BiO" else "all"
        problem = meta_learning("plain", leader=leader, **of_problem)
        return ITD(
            problem,
            inner_step_size=beta,
            inner_steps=steps,
            capacity=max(config.rounds_of(method), 2),
            tasks=config.sampled_tasks if method.sampled else "all",
            first_order=bool(method.first_order),
            prepare=embed_task(problem) if part == "head" else None,
            chunk=config.chunk,
            **outer,
        )
    assert method.w
    window = Window(
        method.w,
        config.decay,
        follower="each",
        normalise=config.normalise,
        chunk=config.chunk,
        replay=Replay(method.replay, recency=method.recency) if method.replay else None,
    )
    if method.adaptation == "prox":
        return prox_linear(beta, window=window, **outer)
    solvers = {
        "cg": CG(max_steps=config.solver_steps),
        "neumann": Neumann(config.solver_steps, beta),
        "fixed-point": FixedPoint(beta, config.solver_steps),
    }
    return OAGD(
        meta_learning("implicit", proximity=config.proximity, **of_problem),
        inner_step_size=beta,
        inner_steps=steps,
        window=window,
        hypergradient=solvers[config.solver],
        **outer,
    )


def play(config: Config, method: Method, tasks: "Tasks") -> Iterator[tuple[int, Metrics]]:
    """Play the rounds and yield t with its metrics.

    The leader is evaluated before the first round (t = 0), after every `evaluate_every`-th, after
    the last one, and after the last round of MAML, to be compared with it.
    """
    one, rounds = algorithm(config, method), config.rounds_of(method)
    sizes: dict[str, Any] = {"filters": config.filters, "blocks": tasks.blocks}
    model, _ = models.cnn(jax.random.key(tasks.seed), tasks.image_shape, config.ways, **sizes)
    # float32 like the data, whatever JAX's default is here.
    model = jax.tree.map(lambda leaf: leaf.astype(jnp.float32), model)
    assert one.problem.inner_start is not None
    state = one.init(model, one.problem.inner_start(model), next(tasks.rounds(1)))

    def evaluate(state: PyTree) -> Metrics:
        metrics = {}
        for name, some in (("train", tasks.training), ("test", tasks.test)):
            values = [np.asarray(_evaluate(one, state.outer_var, stacked)) for stacked in some]
            accuracy, loss = np.concatenate(values).T
            # The standard error of the mean over tasks; one task has none.
            spread = accuracy.std(ddof=1) if len(accuracy) > 1 else 0.0
            metrics[f"{name}_accuracy"] = float(accuracy.mean())
            metrics[f"{name}_loss"] = float(loss.mean())
            metrics[f"{name}_accuracy_error"] = float(spread / len(accuracy) ** 0.5)
        return metrics

    return playing.measured(
        one,
        state,
        tasks.rounds(rounds),
        evaluate=evaluate,
        is_evaluated=lambda t: t % config.evaluate_every == 0 or t in (rounds, config.maml_rounds),
    )


@eqx.filter_jit
def _evaluate(algorithm: OAGD | ITD, outer_var: PyTree, tasks: PyTree) -> jax.Array:
    """Return accuracy and loss on the query of each task: an array [tasks, 2].

    The method first adapts to the task's support in its own way.
    """

    def one(task: PyTree) -> jax.Array:
        inner_var = adapt(algorithm, outer_var, task)
        inputs, labels = task["query"]
        logits = task_logits(algorithm.problem, outer_var, inner_var, inputs)
        guess = jnp.argmax(logits, axis=1).astype(labels.dtype)
        right = jnp.mean((guess == labels).astype(logits.dtype))
        return jnp.stack([right, algorithm.problem.outer_loss(outer_var, inner_var, task)])

    return jax.lax.map(one, tasks)


@dataclasses.dataclass(frozen=True)
class Tasks:
    """The tasks of one seed."""

    data: fewshot.FewShot
    config: Config
    seed: int

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """The height, width and channels of an image."""
        height, width, channels = self.data.train.images.shape[1:]
        return height, width, channels

    @property
    def blocks(self) -> int:
        """The number of blocks of the network: at most as often as the images can be halved."""
        return min(self.config.blocks, int(math.log2(min(self.image_shape[:2]))))

    def rounds(self, count: int) -> Iterator[fewshot.Task]:
        """Yield `count` rounds of the stream."""
        return itertools.islice(self._stream(self.data.train, LEARNING), count)

    @functools.cached_property
    def test(self) -> list[PyTree]:
        """Held-out tasks of classes that the stream does not show, stacked in small groups."""
        return self._some(self.data.test, TESTING, self.config.test_tasks)

    @functools.cached_property
    def training(self) -> list[PyTree]:
        """Other tasks of the stream's classes, stacked in small groups."""
        return self._some(self.data.train, TRAINING, self.config.train_tasks)

    def _some(self, part: fewshot.Labelled, kind: int, count: int) -> list[PyTree]:
        tasks = list(itertools.islice(self._stream(part, kind), count))
        size = math.gcd(count, EVALUATED_AT_ONCE)
        groups = (tasks[i : i + size] for i in range(0, count, size))
        return [jax.tree.map(lambda *leaves: np.stack(leaves), *some) for some in groups]

    def _stream(self, part: fewshot.Labelled, kind: int) -> fewshot.TaskStream:
        c = self.config
        sizes: dict[str, Any] = {"ways": c.ways, "shots": c.shots, "queries": c.queries}
        seed = 3 * self.seed + kind
        return fewshot.TaskStream(part.images, part.labels, **sizes, seed=seed, names=part.names)


# One seed is in memory at a time, because parts are ordered by seed.
@functools.lru_cache(maxsize=1)
def tasks(config: Config, seed: int) -> Tasks:
    """Return the tasks of a seed. Raise a `UserError` if the data cannot make them."""
    try:
        with playing.missing_data_as_user_error():
            of_seed = Tasks(_data(config), config, seed)
            # Make all of them now, so that errors come now.
            of_seed.test, of_seed.training  # noqa: B018
            next(of_seed.rounds(1))
    except (ValueError, ImportError) as error:
        source = "the generated stand-in" if is_synthetic(config) else config.data
        raise UserError(f"{source} cannot make these tasks: {error}") from error
    return of_seed


def is_synthetic(config: Config) -> bool:
    """Return whether this configuration uses generated data on this machine."""
    if config.source != "auto":
        return config.source == "synthetic"
    name = "cifar-100" if config.data == "fc100" else config.data
    has_folder = config.data == "miniimagenet" and config.folder
    return not has_folder and not playing.is_on_this_machine(name)


def _data(config: Config) -> fewshot.FewShot:
    if is_synthetic(config):
        return fewshot.tiny_fewshot()
    if config.data == "fc100":
        return _fc100()
    return _miniimagenet(config.folder, config.image_size)


_fc100 = functools.cache(fewshot.fc100)


@functools.lru_cache(maxsize=1)
def _miniimagenet(folder: str, size: int) -> fewshot.FewShot:
    return fewshot.miniimagenet(folder or None, size=size)
