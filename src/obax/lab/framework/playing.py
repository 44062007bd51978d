"""Data of experiments, and rounds played one by one with the time of their steps."""

import contextlib
import functools
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

import jax
import jax.numpy as jnp

from ... import Algorithm, datasets
from ..._support.compiling import compiled
from ..._support.messages import UserError
from ..._support.trees import PyTree

Metrics = Mapping[str, float]


def is_on_this_machine(name: str) -> bool:
    """Return whether the files of a data set are on this machine."""
    entry = next(entry for entry in datasets.DATASETS if entry.name == name)
    return all(path is not None for path in datasets.located(entry).values())


@contextlib.contextmanager
def missing_data_as_user_error() -> Iterator[None]:
    """Turn an error about missing data into a `UserError` that names the generated stand-in."""
    try:
        yield
    except datasets.DataError as error:
        raise UserError(
            f"{error} Without the data, --set source=synthetic runs on a generated stand-in."
        ) from error


class Timed(NamedTuple):
    """The state and the times after round t.

    Read `state` before the next round, which uses its memory again.
    """

    t: int
    state: PyTree
    seconds: float
    """Wall-clock time of all steps so far, without compilation, data and measurements."""
    processor_seconds: float
    """Processor time of the same steps in all threads. Other programs hardly change it."""
    rejected: int


def timed(algorithm: Algorithm, state: PyTree, rounds: Iterable[PyTree]) -> Iterator[Timed]:
    """Play the rounds. The step is compiled before the clock starts."""
    wall = processor = 0.0
    rejected = 0
    # A step uses its state's memory again, and the first state may share arrays with itself.
    state = jax.tree.map(jnp.copy, state)
    for t, round in enumerate(rounds, 1):
        round = jax.block_until_ready(jax.device_put(round))
        if t == 1:
            jax.block_until_ready(_advance(algorithm, *jax.tree.map(jnp.copy, (state, round))))
        begun = time.perf_counter(), time.process_time()
        state, accepted = jax.block_until_ready(_advance(algorithm, state, round))
        wall += time.perf_counter() - begun[0]
        processor += time.process_time() - begun[1]
        rejected += not bool(accepted)
        yield Timed(t, state, wall, processor, rejected)


def measured(
    algorithm: Algorithm,
    state: PyTree,
    rounds: Iterable[PyTree],
    *,
    evaluate: Callable[[PyTree], Metrics],
    is_evaluated: Callable[[int], bool],
    record: Callable[[PyTree], Metrics] = lambda state: {},
) -> Iterator[tuple[int, Metrics]]:
    """Play the rounds and yield t with what was measured after round t.

    Every round has `seconds`, `processor_seconds`, `rejected` (all so far) and `record(state)`.
    Rounds with `is_evaluated(t)` also have `evaluate(state)`; t = 0 is before the first round.
    """
    if is_evaluated(0):
        yield 0, evaluate(state)
    for t, now, *counts in timed(algorithm, state, rounds):
        times = dict(zip(("seconds", "processor_seconds", "rejected"), counts, strict=True))
        yield t, {**times, **record(now), **(evaluate(now) if is_evaluated(t) else {})}


@functools.partial(compiled, donate="all-except-first")
def _advance(algorithm: Algorithm, state: PyTree, round: PyTree) -> tuple[PyTree, jax.Array]:
    """Take one step and return the state, and whether the round was accepted.

    XLA drops the rest of the record: two losses and a gradient.
    """
    new, info = algorithm.step(state, round)
    return new, info.accepted
