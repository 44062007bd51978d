"""The methods of the comparison on one interface, and the loop that times and evaluates them."""

import dataclasses
import functools
import itertools
from collections.abc import Iterator
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax

from ... import OAGD, OGD, Algorithm, AutoBalance, Problem, Window, models
from ...hypergradient import CG, Hypergradient, Neumann
from ...problems import loss_tuning, loss_tuning_start
from ..kit.timing import timed
from .config import Config, Method
from .stream import Stream

EVALUATION_BATCH = 500


class Rates(eqx.Module):
    """A step size with a linear warm-up from round `start` on, divided by ten after each decay.

    The size is a leaf: another one needs no new compilation.
    """

    size: jax.Array
    start: int = eqx.field(static=True)
    warmup: int = eqx.field(static=True)
    decays: tuple[int, ...] = eqx.field(static=True)

    def __call__(self, t: jax.Array) -> jax.Array:
        """The step size of round t."""
        dtype = self.size.dtype
        since = jnp.asarray(t - self.start + 1).astype(dtype)
        rate = self.size * jnp.clip(since / max(self.warmup, 1), 0.0, 1.0)
        for decay in self.decays:
            rate = jnp.where(t > decay, 0.1 * rate, rate)
        return rate


@dataclasses.dataclass(frozen=True)
class Every:
    """The rounds in which the leader moves: from `start` on, every `every`-th."""

    start: int
    every: int

    def __call__(self, t: jax.Array) -> jax.Array:
        """Whether it moves in round t."""
        return (t >= self.start) & ((t - self.start) % self.every == 0)


# One object for each pair of numbers: optax transformations are compared by identity, and a new one
# would mean a new compilation.
@functools.cache
def optimiser(momentum: float, weight_decay: float) -> optax.GradientTransformation:
    """SGD with momentum and weight decay, as PyTorch defines it."""
    return optax.chain(
        optax.add_decayed_weights(weight_decay), optax.sgd(1.0, momentum=momentum or None)
    )


def problem(config: Config, classes: int) -> Problem:
    """The two losses."""
    return loss_tuning(classes, link=config.link, outer_training=config.outer_training)


def algorithm(
    config: Config, method: Method, classes: int, outer_step: float, inner_step: float
) -> Algorithm:
    """A method with its step sizes."""
    decays = tuple(round(share * config.rounds) for share in config.step_decays)
    inner = Rates(jnp.asarray(inner_step), 1, config.inner_warmup, decays)
    outer = Rates(jnp.asarray(outer_step), config.outer_start, config.outer_warmup, decays)
    moving = optimiser(config.momentum, config.weight_decay)
    follower = {"inner_step_size": inner, "inner_optimiser": moving}
    losses = problem(config, classes)
    if method.kind == "ogd":
        return OGD(losses, **follower)
    solver: Hypergradient = Neumann(config.neumann_terms, config.neumann_step)
    if method.solver == "cg":
        solver = CG(max_steps=config.cg_steps, damping=config.cg_damping)
    leader: dict[str, Any] = {
        "outer_step_size": outer,
        "outer_optimiser": moving,
        "hypergradient": solver,
    }
    if method.kind == "autobalance":
        return AutoBalance(
            losses,
            **leader,
            **follower,
            capacity=max(config.autobalance_memory or config.rounds, 2),
            outer_every=config.autobalance_every,
            outer_rounds=config.autobalance_rounds,
            outer_when=Every(config.outer_start, 1),
        )
    window = Window(
        method.window,
        method.decay,
        follower="window",
        curvature=method.curvature,
        normalise=config.normalise,
        chunk=1,
    )
    start = config.rounds + 1 if method.held else config.outer_start
    return OAGD(
        losses, **leader, **follower, window=window, outer_when=Every(start, config.outer_every)
    )


def model(config: Config, stream: Stream) -> tuple[Any, Any]:
    """The follower at the start, and its buffers."""
    key = jax.random.key(stream.seed)
    if stream.images:
        height, width, channels = stream.shape
        return models.cnn(
            key,
            (height, width, channels),
            stream.data.classes,
            filters=config.filters,
            blocks=config.blocks,
            batch_norm_momentum=config.batch_norm_momentum,
        )
    return models.mlp(
        key, stream.shape[0], stream.data.classes, hidden=config.hidden, dropout=config.dropout
    )


class Moment(NamedTuple):
    """What is kept of a round; the accuracies of each class where they were measured."""

    t: int
    seconds: float
    processor_seconds: float
    train: np.ndarray | None
    test: np.ndarray | None
    gamma: np.ndarray
    delta: np.ndarray
    rejected: int


def play(
    config: Config, method: Method, stream: Stream, outer_step: float, inner_step: float
) -> Iterator[Moment]:
    """Play the rounds; accuracies are measured in every `evaluate_every`-th and the last one.

    `seconds` is the time of the steps alone: without compilation, data and evaluation.
    """
    classes = stream.data.classes
    one = algorithm(config, method, classes, outer_step, inner_step)
    follower, buffers = model(config, stream)
    first = next(stream.rounds())
    # float32 like the data, whatever JAX's default is here.
    start, follower, buffers = jax.tree.map(
        lambda leaf: leaf.astype(jnp.float32), (loss_tuning_start(classes), follower, buffers)
    )
    begin = one.init(start, follower, first, buffers=buffers)
    rounds = itertools.islice(stream.rounds(), config.rounds)
    for t, state, seconds, processor, rejected in timed(one, begin, rounds):
        train = test = None
        if t % config.evaluate_every == 0 or t in (1, config.rounds):
            train = accuracies(state.inner_var, state.buffers, *stream.training_rows, classes)
            test = accuracies(state.inner_var, state.buffers, *stream.test_rows, classes)
        gamma, delta = (np.asarray(state.outer_var[name]) for name in ("gamma", "delta"))
        yield Moment(t, seconds, processor, train, test, gamma, delta, rejected)


def accuracies(
    model: Any, buffers: Any, inputs: np.ndarray, labels: np.ndarray, classes: int
) -> np.ndarray:
    """The share of each class that is predicted right, as the model would predict now; NaN for a
    class that is not there. Their mean is the balanced accuracy."""
    right = np.empty(len(labels), bool)
    for start in range(0, len(labels), EVALUATION_BATCH):
        some = inputs[start : start + EVALUATION_BATCH]
        padded = np.zeros((EVALUATION_BATCH, *inputs.shape[1:]), inputs.dtype)
        padded[: len(some)] = some
        guess = np.asarray(_classify(model, buffers, padded))[: len(some)]
        right[start : start + len(some)] = guess == labels[start : start + len(some)]
    counts = np.bincount(labels, minlength=classes)
    with np.errstate(invalid="ignore"):
        return np.bincount(labels, weights=right, minlength=classes) / counts


@eqx.filter_jit
def _classify(model: Any, buffers: Any, inputs: Any) -> jax.Array:
    logits, _ = model(inputs, buffers, training=False, key=jnp.zeros(2, jnp.uint32))
    return jnp.argmax(logits, axis=1)
