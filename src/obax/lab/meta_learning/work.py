"""The parts of the experiments: each method played on each seed."""

import functools
from collections.abc import Iterator
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pandas as pd

from ... import ITD, OAGD, Replay, Window, adapt, models, prox_linear
from ..._support.trees import PyTree
from ...hypergradient import CG, FixedPoint, Hypergradient, Neumann
from ...problems import embed_task, meta_learning, task_logits
from ..framework.experiment import Parts
from ..framework.learning import parts_by_seed
from ..framework.table import Rows
from ..framework.timing import Metrics, measured
from .config import Config, Method
from .stream import Tasks, tasks


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
    units = config.has_unit_curvature(method)
    if method.kind == "OAGD":
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
        part = "head" if method.adaptation == "head" else "all"
        return OAGD(
            meta_learning("implicit", part=part, proximity=config.proximity, unit_curvature=units),
            inner_step_size=beta,
            inner_steps=steps,
            window=window,
            hypergradient=_solver(config, beta),
            **outer,
        )
    head = method.adapts_only_head
    leader = "features" if method.kind == "ITD-BiO" else "all"
    problem = meta_learning(
        "plain", part="head" if head else "all", leader=leader, unit_curvature=units
    )
    return ITD(
        problem,
        inner_step_size=beta,
        inner_steps=steps,
        capacity=max(config.rounds_of(method), 2),
        tasks=config.sampled_tasks if method.sampled else "all",
        first_order=bool(method.first_order),
        prepare=embed_task(problem) if head else None,
        chunk=config.chunk,
        **outer,
    )


def _solver(config: Config, beta: float) -> Hypergradient:
    if config.solver == "cg":
        return CG(max_steps=config.solver_steps)
    if config.solver == "neumann":
        return Neumann(config.solver_steps, beta)
    return FixedPoint(beta, config.solver_steps)


def play(config: Config, method: Method, tasks: Tasks) -> Iterator[tuple[int, Metrics]]:
    """Play the rounds and yield t with its metrics.

    The leader is evaluated before the first round (t = 0), after every `evaluate_every`-th, after
    the last one, and after the last round of MAML, to be compared with it.
    """
    one, rounds = algorithm(config, method), config.rounds_of(method)
    key = jax.random.key(tasks.seed)
    model, _ = models.cnn(
        key, tasks.image_shape, config.ways, filters=config.filters, blocks=tasks.blocks
    )
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

    return measured(
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
