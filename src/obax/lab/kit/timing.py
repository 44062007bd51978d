"""Rounds played one by one: the time of their steps alone, and what is measured between them."""

import functools
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

import jax
import jax.numpy as jnp

from ... import Algorithm
from ..._support.compiling import compiled
from ..._support.trees import PyTree

Metrics = Mapping[str, float]


class Timed(NamedTuple):
    """After round t. `state` must be read before the next round: its memory is used again."""

    t: int
    state: PyTree
    seconds: float
    """Of all steps so far: without compilation, data, and what is done between rounds."""
    processor_seconds: float
    """The same on the processor's clock, all threads; other programs do not slow it down much."""
    rejected: int


def timed(algorithm: Algorithm, state: PyTree, rounds: Iterable[PyTree]) -> Iterator[Timed]:
    """Play the rounds; the first is compiled for before the clock starts."""
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
    at: Callable[[int], bool],
    record: Callable[[PyTree], Metrics] = lambda state: {},
) -> Iterator[tuple[int, Metrics]]:
    """Play the rounds and give t and what was measured after it.

    Of every round: `seconds`, `processor_seconds`, `rejected` (all so far) and `record(state)`; of
    those with `at(t)`, where t = 0 is before the first one, also `evaluate(state)`.
    """
    if at(0):
        yield 0, evaluate(state)
    for now in timed(algorithm, state, rounds):
        clocks = {"seconds": now.seconds, "processor_seconds": now.processor_seconds}
        found = {"rejected": float(now.rejected), **record(now.state)}
        yield now.t, {**clocks, **found, **(evaluate(now.state) if at(now.t) else {})}


@functools.partial(compiled, donate="all-except-first")
def _advance(algorithm: Algorithm, state: PyTree, round: PyTree) -> tuple[PyTree, jax.Array]:
    """One step. Only the state and whether the round counted leave it, so that XLA drops what the
    record would cost: two losses and a gradient."""
    new, info = algorithm.step(state, round)
    return new, info.accepted
