"""The parts of the experiments: each method played on each seed, and the data of a seed."""

import dataclasses
import functools
import itertools
from collections.abc import Iterator
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pandas as pd

from ... import OAGD, OGD, Algorithm, AutoBalance, Replay, Window, datasets, models
from ..._support.trees import PyTree
from ...hypergradient import CG, Neumann
from ...problems import loss_tuning, loss_tuning_start
from ..framework import playing
from ..framework.experiment import Parts
from ..framework.learning import parts_by_seed
from ..framework.playing import Metrics
from ..framework.run_folder import Rows
from .config import Config, Method

EVALUATION_BATCH = 500
TRAINING_ROWS = 200
"""The number of training rows of each class on which the training accuracy is measured."""
load_mnist = functools.cache(datasets.mnist)


def parts(config: Config) -> Parts:
    """Return one part for each method and seed."""
    return parts_by_seed(config, compare)


def compare(config: Config, method: Method, seed: int) -> pd.DataFrame:
    """Play one method on one seed and return its rows."""
    data, rows = stream(config, seed), Rows()
    ids = method.columns() | {"data": data.data.name, "seed": seed}
    for t, metrics in play(config, method, data):
        rows.add(ids, t, metrics)
    return rows.table()


class Rates(eqx.Module):
    """A step size with a linear warm-up from round `start` on, divided by ten after each decay.

    The size is an array leaf, so that another size needs no new compilation.
    """

    size: jax.Array
    start: int = eqx.field(static=True)
    warmup: int = eqx.field(static=True)
    decays: tuple[int, ...] = eqx.field(static=True)

    def __call__(self, t: jax.Array) -> jax.Array:
        """Return the step size of round t."""
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
        """Return whether the leader moves in round t."""
        return (t >= self.start) & ((t - self.start) % self.every == 0)


@dataclasses.dataclass(frozen=True)
class ClassCounts:
    """The number of training rows of each class in a round, for draws that are balanced."""

    classes: int

    def __call__(self, round: PyTree) -> jax.Array:
        """Return the counts of one round."""
        return jnp.bincount(round["train"][1], length=self.classes).astype(jnp.float32)


# Cached because optax transformations are compared by identity: a new one would be compiled anew.
@functools.cache
def optimiser(momentum: float, weight_decay: float) -> optax.GradientTransformation:
    """Return SGD with momentum and weight decay, as PyTorch defines it."""
    return optax.chain(
        optax.add_decayed_weights(weight_decay), optax.sgd(1.0, momentum=momentum or None)
    )


def algorithm(config: Config, method: Method, classes: int) -> Algorithm:
    """Return the algorithm of a method with its step sizes."""
    decays = tuple(round(share * config.rounds) for share in config.step_decays)
    begin, moving = config.outer_start, optimiser(config.momentum, config.weight_decay)
    losses = loss_tuning(classes, link=config.link, outer_training=config.outer_training)
    steps: dict[str, Any] = {
        "inner_step_size": Rates(jnp.asarray(method.beta), 1, config.inner_warmup, decays),
        "inner_optimiser": moving,
    }
    if method.kind == "OGD":
        return OGD(losses, **steps)
    steps |= {
        "outer_step_size": Rates(jnp.asarray(method.alpha), begin, config.outer_warmup, decays),
        "outer_optimiser": moving,
        "hypergradient": CG(max_steps=config.cg_steps, damping=config.cg_damping)
        if method.solver == "cg"
        else Neumann(config.neumann_terms, config.neumann_step),
    }
    if method.kind == "AutoBalance":
        return AutoBalance(
            losses,
            **steps,
            capacity=max(config.autobalance_memory or config.rounds, 2),
            outer_every=config.autobalance_every,
            outer_rounds=config.autobalance_rounds,
            outer_when=Every(begin, 1),
        )
    assert method.w and method.curvature
    replay = None
    if method.replay:
        label = ClassCounts(classes) if method.balanced else None
        replay = Replay(method.replay, recency=method.recency, label=label)
    window = Window(
        method.w,
        method.decay,
        follower="window",
        curvature=method.curvature,
        normalise=config.normalise,
        chunk=1,
        replay=replay,
    )
    when = Every(config.rounds + 1 if method.held else begin, config.outer_every)
    passes = method.passes or 1
    return OAGD(losses, **steps, inner_steps=passes, window=window, outer_when=when)


def model(config: Config, stream: "Stream") -> tuple[PyTree, PyTree]:
    """Return the follower at the start and its buffers."""
    start: tuple[Any, ...] = (jax.random.key(stream.seed), stream.shape, stream.data.classes)
    if config.has_images:
        sizes: dict[str, Any] = {"filters": config.filters, "blocks": config.blocks}
        return models.cnn(*start, **sizes, batch_norm_momentum=config.batch_norm_momentum)
    key, (features,), classes = start
    return models.mlp(key, features, classes, hidden=config.hidden, dropout=config.dropout)


def play(config: Config, method: Method, stream: "Stream") -> Iterator[tuple[int, Metrics]]:
    """Play the rounds and yield t with its metrics.

    Every round has the leader's x. The first, every `evaluate_every`-th and the last round also
    have accuracies.
    """
    classes = stream.data.classes
    one = algorithm(config, method, classes)
    # float32 like the data, whatever JAX's default is here.
    start, follower, buffers = jax.tree.map(
        lambda leaf: leaf.astype(jnp.float32), (loss_tuning_start(classes), *model(config, stream))
    )
    state = one.init(start, follower, next(stream.rounds()), buffers=buffers)

    def leader(state: PyTree) -> Metrics:
        return {
            f"{name}_{j}": float(value)
            for name in ("gamma", "delta")
            for j, value in enumerate(np.asarray(state.outer_var[name]))
        }

    def evaluate(state: PyTree) -> Metrics:
        metrics = {}
        for name, rows in (("train", stream.training_rows), ("test", stream.test_rows)):
            shares = accuracies(state.inner_var, state.buffers, *rows, classes)
            metrics[f"{name}_accuracy"] = float(np.nanmean(shares))
            metrics |= {f"{name}_class_{j}": float(share) for j, share in enumerate(shares)}
        return metrics

    return playing.measured(
        one,
        state,
        itertools.islice(stream.rounds(), config.rounds),
        evaluate=evaluate,
        is_evaluated=lambda t: (
            t in (1, config.rounds) or (t > 0 and t % config.evaluate_every == 0)
        ),
        record=leader,
    )


def accuracies(
    model: PyTree, buffers: PyTree, inputs: np.ndarray, labels: np.ndarray, classes: int
) -> np.ndarray:
    """Return the share of each class that the model predicts correctly, NaN for a missing class.

    Their mean is the balanced accuracy.
    """
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
def _classify(model: PyTree, buffers: PyTree, inputs: np.ndarray) -> jax.Array:
    logits, _ = model(inputs, buffers, training=False, key=jnp.zeros(2, jnp.uint32))
    return jnp.argmax(logits, axis=1)


@dataclasses.dataclass(frozen=True)
class Stream:
    """The data of one seed: its rounds, and the rows on which accuracies are measured."""

    data: datasets.Split
    config: Config
    seed: int

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one row."""
        return self.data.train_inputs.shape[1:]

    def rounds(self) -> Iterator[PyTree]:
        """Yield the rounds from the first one on."""
        config, plan = self.config, None
        if config.data == "mnist-shift":
            *phases, last = config.phases
            # The last phase is as long as the run needs.
            end = (max(config.phase_rounds, config.rounds), last)
            plan = [*((config.phase_rounds, base) for base in phases), end]
        return datasets.streams.rounds(self.data, size=config.batch, plan=plan, seed=self.seed)

    @functools.cached_property
    def training_rows(self) -> tuple[np.ndarray, np.ndarray]:
        """The training inputs and labels, at most `TRAINING_ROWS` of each class."""
        labels = self.data.train_labels
        classes = range(self.data.classes)
        rows = np.concatenate([np.flatnonzero(labels == j)[:TRAINING_ROWS] for j in classes])
        return self.data.train_inputs[rows], labels[rows]

    @property
    def test_rows(self) -> tuple[np.ndarray, np.ndarray]:
        """The test inputs and labels."""
        return self.data.test_inputs, self.data.test_labels


# One seed is in memory at a time, because parts are ordered by seed.
@functools.lru_cache(maxsize=1)
def stream(config: Config, seed: int) -> Stream:
    """Load or generate the data of a seed."""
    with playing.missing_data_as_user_error():
        return Stream(_data(config, seed), config, seed)


def is_synthetic(config: Config) -> bool:
    """Return whether this configuration uses generated data on this machine."""
    if config.source == "synthetic":
        return True
    if config.data == "tadpole":
        return datasets.find("TADPOLE_D1_D2.csv") is None
    name = "adult" if config.data == "adult" else "mnist"
    return config.source == "auto" and not playing.is_on_this_machine(name)


def _data(config: Config, seed: int) -> datasets.Split:
    synthetic = is_synthetic(config)
    if config.data == "tadpole":
        return datasets.tadpole(seed=seed, synthetic=synthetic)
    if config.data == "adult":
        return stand_in_table(seed) if synthetic else datasets.adult(seed=seed)
    sizes = {"train": config.train_images, "valid": config.valid_images}
    images = stand_in_images(**sizes) if synthetic else load_mnist()
    # A shift needs pools from which every phase can draw.
    profile = config.imbalance if config.data == "mnist" else 1.0
    split = datasets.mnist_imbalanced(images, profile=profile, **sizes, seed=seed)
    names = ("train_inputs", "valid_inputs", "test_inputs")
    smaller: dict[str, Any] = {
        name: _averaged(getattr(split, name), config.downsample) for name in names
    }
    return dataclasses.replace(split, synthetic=synthetic, **smaller)


def _averaged(images: np.ndarray, size: int) -> np.ndarray:
    """Return means over squares of `size` x `size` pixels."""
    n, height, width, channels = images.shape
    squares = images.reshape(n, height // size, size, width // size, size, channels)
    return squares.mean(axis=(2, 4))


def stand_in_images(train: int, valid: int) -> datasets.Images:
    """Generate images in ten classes in place of MNIST.

    Each class is a smooth pattern, shifted by up to two pixels, with strong noise. The data is
    called synthetic wherever it is shown.
    """
    rng = np.random.default_rng(0)
    grid = np.arange(28)
    waves = rng.uniform(0.1, 0.5, (10, 3, 2))
    angle = waves[..., :1, None] * grid[:, None] + waves[..., 1:, None] * grid[None, :]
    patterns = np.sin(angle + rng.uniform(0, 6.3, (10, 3, 1, 1))).mean(axis=1)

    def draw(of_each: int) -> tuple[np.ndarray, np.ndarray]:
        labels = np.repeat(np.arange(10, dtype=np.int32), of_each)
        moves = rng.integers(-2, 3, (len(labels), 2))
        images = np.stack(
            [np.roll(patterns[j], move, (0, 1)) for j, move in zip(labels, moves, strict=True)]
        )
        noisy = 100 + 90 * images + rng.normal(0, 70, images.shape)
        return noisy.clip(0, 255).astype(np.uint8), labels

    return datasets.Images(*draw(train + valid), *draw(100), classes=10, name="Digits (synthetic)")


def stand_in_table(seed: int, rows: int = 4000) -> datasets.Tabular:
    """Generate a table like Adult: 11 features, a rare class, and a boundary that is not straight.

    The data is called synthetic wherever it is shown.
    """
    rng = np.random.default_rng([seed, 11])
    inputs = rng.standard_normal((rows, 11)).astype(np.float32)
    score = inputs[:, 0] + inputs[:, 1] * inputs[:, 2] + 0.5 * inputs[:, 3] ** 2
    labels = (score + rng.normal(0, 0.8, rows) > 1.6).astype(np.int32)
    ends = [int(0.45 * rows), int(0.9 * rows)]
    train, valid, test = zip(np.split(inputs, ends), np.split(labels, ends), strict=True)
    about: dict[str, Any] = {"name": "Adult-like (synthetic)", "synthetic": True}
    features = tuple(f"feature {i + 1}" for i in range(11))
    return datasets.Tabular(*train, *valid, *test, classes=2, features=features, **about)
