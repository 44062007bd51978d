"""The tasks of the experiments: a stream to learn from, and held-out tasks for evaluation."""

import dataclasses
import functools
import itertools
import math
from collections.abc import Iterator

import jax
import numpy as np

from ..._support.messages import UserError
from ..._support.trees import PyTree
from ...datasets import fewshot
from ..framework.data import is_on_this_machine, missing_data_as_user_error
from .config import Config

# Seeds of the three streams of a run, which must be different.
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
        return fewshot.TaskStream(
            part.images,
            part.labels,
            ways=c.ways,
            shots=c.shots,
            queries=c.queries,
            seed=3 * self.seed + kind,
            names=part.names,
        )


# One seed is in memory at a time, because parts are ordered by seed.
@functools.lru_cache(maxsize=1)
def tasks(config: Config, seed: int) -> Tasks:
    """Return the tasks of a seed. Raise a `UserError` if the data cannot make them."""
    try:
        with missing_data_as_user_error():
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
    if config.data == "miniimagenet":
        return not config.folder and not is_on_this_machine("miniimagenet")
    return not is_on_this_machine("cifar-100")


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
