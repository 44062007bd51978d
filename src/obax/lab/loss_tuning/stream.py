"""The data of the experiments as rounds: a training batch and a validation batch in each."""

import dataclasses
import functools
from collections.abc import Iterator

import numpy as np

from ... import datasets
from ..._support.trees import PyTree
from ...datasets import streams
from ..framework.data import is_on_this_machine, missing_data_as_user_error
from .config import Config

_mnist = functools.cache(datasets.mnist)
TRAINING_ROWS = 200
"""The number of training rows of each class on which the training accuracy is measured."""


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
        return streams.rounds(self.data, size=config.batch, plan=plan, seed=self.seed)

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
    with missing_data_as_user_error():
        return Stream(_data(config, seed), config, seed)


def is_synthetic(config: Config) -> bool:
    """Return whether this configuration uses generated data on this machine."""
    if config.source == "synthetic":
        return True
    if config.data == "tadpole":
        return datasets.find("TADPOLE_D1_D2.csv") is None
    name = "adult" if config.data == "adult" else "mnist"
    return config.source == "auto" and not is_on_this_machine(name)


def _data(config: Config, seed: int) -> datasets.Split:
    synthetic = is_synthetic(config)
    if config.data == "tadpole":
        return datasets.tadpole(seed=seed, synthetic=synthetic)
    if config.data == "adult":
        return stand_in_table(seed) if synthetic else datasets.adult(seed=seed)
    images = stand_in_images(config.train_images, config.valid_images) if synthetic else _mnist()
    # A shift needs pools from which every phase can draw.
    split = datasets.mnist_imbalanced(
        images,
        profile=config.imbalance if config.data == "mnist" else 1.0,
        train=config.train_images,
        valid=config.valid_images,
        seed=seed,
    )
    return dataclasses.replace(
        split,
        synthetic=synthetic,
        train_inputs=_averaged(split.train_inputs, config.downsample),
        valid_inputs=_averaged(split.valid_inputs, config.downsample),
        test_inputs=_averaged(split.test_inputs, config.downsample),
    )


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
    return datasets.Tabular(
        *train,
        *valid,
        *test,
        classes=2,
        name="Adult-like (synthetic)",
        synthetic=True,
        features=tuple(f"feature {i + 1}" for i in range(11)),
    )
