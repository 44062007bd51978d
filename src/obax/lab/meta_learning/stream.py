"""The tasks of the experiments: a stream to learn from, and held-out ones to be judged on."""

import dataclasses
import functools
import itertools
import math
from collections.abc import Iterator

import jax
import numpy as np

from ..._support.errors import UserError
from ..._support.trees import PyTree
from ...datasets import fewshot
from ..kit.data import at_hand, needed
from .config import Config

# Seeds of the three streams of a run; they must not meet.
LEARNING, TRAINING, TESTING = 0, 1, 2
EVALUATED_AT_ONCE = 10


@dataclasses.dataclass(frozen=True)
class Tasks:
    """The tasks of one seed."""

    data: fewshot.FewShot
    config: Config
    seed: int

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """Height, width, channels."""
        height, width, channels = self.data.train.images.shape[1:]
        return height, width, channels

    @property
    def blocks(self) -> int:
        """The config's blocks, or as many as the images can be halved."""
        return min(self.config.blocks, int(math.log2(min(self.image_shape[:2]))))

    def rounds(self, count: int) -> Iterator[fewshot.Task]:
        """The stream, `count` rounds of it."""
        return itertools.islice(self._stream(self.data.train, LEARNING), count)

    @functools.cached_property
    def test(self) -> list[PyTree]:
        """Held-out tasks, of classes that the stream does not show: stacked, a few at a time."""
        return self._some(self.data.test, TESTING, self.config.test_tasks)

    @functools.cached_property
    def training(self) -> list[PyTree]:
        """Tasks of the stream's classes, not those of the stream."""
        return self._some(self.data.train, TRAINING, self.config.train_tasks)

    def _some(self, part: fewshot.Labelled, kind: int, count: int) -> list[PyTree]:
        tasks = list(itertools.islice(self._stream(part, kind), count))
        size = math.gcd(count, EVALUATED_AT_ONCE)
        groups = (tasks[i : i + size] for i in range(0, count, size))
        return [jax.tree.map(lambda *leaves: np.stack(leaves), *some) for some in groups]

    def _stream(self, part: fewshot.Labelled, kind: int) -> fewshot.TaskStream:
        c = self.config
        return fewshot.TaskStream(
            part.images,
            part.labels,
            ways=c.ways,
            shots=c.shots,
            queries=c.queries,
            seed=3 * self.seed + kind,
            names=part.names,
        )


# One seed is in memory at a time: parts go through the methods of a seed before the next one.
@functools.lru_cache(maxsize=1)
def tasks(config: Config, seed: int) -> Tasks:
    """The tasks of a seed. A `UserError` where the data cannot make them."""
    try:
        with needed():
            found = Tasks(_data(config), config, seed)
            found.test, found.training  # noqa: B018 (made now, so that errors come now)
            next(found.rounds(1))
    except (ValueError, ImportError) as error:
        source = "the generated stand-in" if is_synthetic(config) else config.data
        raise UserError(f"{source} cannot make these tasks: {error}") from error
    return found


def is_synthetic(config: Config) -> bool:
    """Whether this config runs on generated data, on this machine."""
    if config.source != "auto":
        return config.source == "synthetic"
    if config.data == "miniimagenet":
        return not config.folder and not at_hand("miniimagenet")
    return not at_hand("cifar-100")


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
