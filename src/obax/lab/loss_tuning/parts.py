"""The work of the experiments, cut into parts: one method with one pair of steps on one seed."""

import functools
import itertools
from collections.abc import Iterator

import numpy as np
import pandas as pd

from ..kit.experiment import Part
from .config import Config, Method
from .methods import play
from .stream import stream

Row = tuple[str, str, int, int, str, float]


def parts(config: Config) -> list[Part]:
    """Seed by seed, so that the data of one seed is loaded once."""
    steps = list(itertools.product(config.outer_step_sizes, config.inner_step_sizes))
    return [
        Part(
            f"seed{seed}-{text}-alpha{outer:g}-beta{inner:g}",
            functools.partial(compare, config, Method.parse(text), outer, inner, seed),
        )
        for seed in range(config.seeds)
        for text in config.methods
        for outer, inner in _steps(text, steps)
        if seed < config.seeds_of(Method.parse(text))
    ]


def _steps(text: str, steps: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """OGD does not look at the outer step size: once for each inner one."""
    if Method.parse(text).kind != "ogd":
        return steps
    first = {inner: (outer, inner) for outer, inner in reversed(steps)}
    return [pair for pair in steps if first[pair[1]] == pair]


def compare(config: Config, method: Method, outer: float, inner: float, seed: int) -> pd.DataFrame:
    """The rows of one run."""
    data = stream(config, seed)
    at = (method.label(), setting(data.data.name, outer, inner), seed)
    rows = [
        (*at, moment.t, metric, value)
        for moment in play(config, method, data, outer, inner)
        for metric, value in _metrics(moment._asdict())
    ]
    return pd.DataFrame(rows, columns=["method", "setting", "seed", "t", "metric", "value"])


def setting(data: str, outer: float, inner: float) -> str:
    """The label of a run in the table."""
    return f"data={data}; alpha={outer:g}; beta={inner:g}"


def _metrics(moment: dict) -> Iterator[tuple[str, float]]:
    yield "seconds", moment["seconds"]
    yield "processor_seconds", moment["processor_seconds"]
    yield "rejected", float(moment["rejected"])
    for name in ("gamma", "delta"):
        yield from ((f"{name}_{j}", float(value)) for j, value in enumerate(moment[name]))
    for name in ("train", "test"):
        if (shares := moment[name]) is not None:
            yield f"{name}_accuracy", float(np.nanmean(shares))
            yield from ((f"{name}_class_{j}", float(share)) for j, share in enumerate(shares))
