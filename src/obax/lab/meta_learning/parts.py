"""The work of the experiments, cut into parts: one method on one seed."""

import functools
from collections.abc import Iterator

import pandas as pd

from ..kit.experiment import Part
from .config import Config, Method
from .methods import Moment, play
from .stream import tasks


def parts(config: Config) -> list[Part]:
    """Seed by seed, so that the data of one seed is loaded once."""
    return [
        Part(f"seed{seed}-{text}", functools.partial(compare, config, Method.parse(text), seed))
        for seed in range(config.seeds)
        for text in config.methods
        if seed < config.seeds_of(Method.parse(text))
    ]


def compare(config: Config, method: Method, seed: int) -> pd.DataFrame:
    """The rows of one run."""
    found = tasks(config, seed)
    setting = (
        f"data={found.data.name}; alpha={config.outer_step_size:g}; beta={config.inner_step_size:g}"
    )
    rows = [
        (method.label(), setting, seed, moment.t, metric, value)
        for moment in play(config, method, found)
        for metric, value in _metrics(moment)
    ]
    return pd.DataFrame(rows, columns=["method", "setting", "seed", "t", "metric", "value"])


def _metrics(moment: Moment) -> Iterator[tuple[str, float]]:
    if moment.t:
        yield "seconds", moment.seconds
        yield "processor_seconds", moment.processor_seconds
        yield "rejected", float(moment.rejected)
    for name, values in (("train", moment.train), ("test", moment.test)):
        if values is not None:
            yield f"{name}_accuracy", float(values[:, 0].mean())
            yield f"{name}_loss", float(values[:, 1].mean())
            # Of the mean over tasks, for an interval; one task has none.
            spread = values[:, 0].std(ddof=1) if len(values) > 1 else 0.0
            yield f"{name}_accuracy_error", float(spread / len(values) ** 0.5)
