"""The methods of the comparison on one interface, and the loop that times and evaluates them."""

import functools
from collections.abc import Iterator
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax

from ... import ITD, OAGD, Window, adapt, models, prox_linear
from ...hypergradient import CG, FixedPoint, Hypergradient, Neumann
from ...problems import embed_task, meta_learning, task_logits
from ..kit.timing import timed
from .config import Config, Method
from .stream import Tasks


# One object for each: optax transformations are compared by identity, and a new one would mean a
# new compilation.
@functools.cache
def optimiser(name: str) -> optax.GradientTransformation | None:
    """Adam, or `None` for plain gradient steps."""
    return optax.adam(1.0) if name == "adam" else None


def algorithm(config: Config, method: Method) -> OAGD | ITD:
    """A method with its settings."""
    outer: dict[str, Any] = {
        "outer_step_size": config.outer_step_size,
        "outer_optimiser": optimiser(config.outer_optimiser),
    }
    steps = config.steps_of(method)
    if method.kind == "oagd":
        window = Window(
            method.window,
            config.decay,
            follower="each",
            normalise=config.normalise,
            chunk=config.chunk,
        )
        if method.adaptation == "prox":
            return prox_linear(config.inner_step_size, window=window, **outer)
        return OAGD(
            meta_learning(
                "implicit",
                part="head" if method.adaptation == "head" else "all",
                proximity=config.proximity,
            ),
            inner_step_size=config.inner_step_size,
            inner_steps=steps,
            window=window,
            hypergradient=_solver(config),
            **outer,
        )
    head = method.kind != "maml"
    problem = meta_learning(
        "plain",
        part="head" if head else "all",
        leader="features" if method.kind == "itd" else "all",
    )
    return ITD(
        problem,
        inner_step_size=config.inner_step_size,
        inner_steps=steps,
        capacity=max(config.rounds_of(method), 2),
        tasks=config.sampled_tasks if method.sampled else "all",
        first_order=method.first_order,
        prepare=embed_task(problem) if head else None,
        chunk=config.chunk,
        **outer,
    )


def _solver(config: Config) -> Hypergradient:
    if config.solver == "cg":
        return CG(max_steps=config.solver_steps)
    if config.solver == "neumann":
        return Neumann(config.solver_steps, config.inner_step_size)
    return FixedPoint(config.inner_step_size, config.solver_steps)


class Moment(NamedTuple):
    """What is kept of a round; where it was evaluated, of each task (accuracy, loss)."""

    t: int
    seconds: float
    processor_seconds: float
    rejected: int
    train: np.ndarray | None
    test: np.ndarray | None


def play(config: Config, method: Method, tasks: Tasks) -> Iterator[Moment]:
    """Play the rounds; the leader is evaluated before the first, which is round 0, in every
    `evaluate_every`-th, after the last one, and where MAML ends, to be compared with it."""
    one, rounds = algorithm(config, method), config.rounds_of(method)
    key = jax.random.key(tasks.seed)
    model, _ = models.cnn(
        key, tasks.image_shape, config.ways, filters=config.filters, blocks=tasks.blocks
    )
    # float32 like the data, whatever JAX's default is here.
    model = jax.tree.map(lambda leaf: leaf.astype(jnp.float32), model)
    assert one.problem.inner_start is not None
    state = one.init(model, one.problem.inner_start(model), next(tasks.rounds(1)))
    train, test = evaluate(one, model, tasks.training), evaluate(one, model, tasks.test)
    yield Moment(0, 0.0, 0.0, 0, train, test)
    # The first state shares its arrays with the model, and a step uses its memory again.
    for now in timed(one, jax.tree.map(jnp.copy, state), tasks.rounds(rounds)):
        found: list[np.ndarray | None] = [None, None]
        if now.t % config.evaluate_every == 0 or now.t in (rounds, config.maml_rounds):
            x = now.state.outer_var
            found = [evaluate(one, x, some) for some in (tasks.training, tasks.test)]
        yield Moment(now.t, now.seconds, now.processor_seconds, now.rejected, *found)


def evaluate(algorithm: OAGD | ITD, outer_var: Any, tasks: list[Any]) -> np.ndarray:
    """Accuracy and loss on the query of each task, after the method's own adaptation to its
    support: an array [tasks, 2]."""
    return np.concatenate([np.asarray(_evaluate(algorithm, outer_var, some)) for some in tasks])


@eqx.filter_jit
def _evaluate(algorithm: OAGD | ITD, outer_var: Any, tasks: Any) -> jax.Array:
    def one(task: Any) -> jax.Array:
        inner_var = adapt(algorithm, outer_var, task)
        inputs, labels = task["query"]
        logits = task_logits(algorithm.problem, outer_var, inner_var, inputs)
        guess = jnp.argmax(logits, axis=1).astype(labels.dtype)
        right = jnp.mean((guess == labels).astype(logits.dtype))
        return jnp.stack([right, algorithm.problem.outer_loss(outer_var, inner_var, task)])

    return jax.lax.map(one, tasks)
