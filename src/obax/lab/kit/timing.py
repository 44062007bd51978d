"""Rounds played one by one, and the time of their steps alone."""

import time
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp

from ... import Algorithm


class Timed(NamedTuple):
    """After round t. `state` must be read before the next round: its memory is used again."""

    t: int
    state: Any
    seconds: float
    """Of all steps so far: without compilation, data, and what is done between rounds."""
    processor_seconds: float
    """The same on the processor's clock, all threads; other programs do not slow it down much."""
    rejected: int


def timed(algorithm: Algorithm, state: Any, rounds: Iterable[Any]) -> Iterator[Timed]:
    """Play the rounds; the first is compiled for before the clock starts."""
    wall = processor = 0.0
    rejected = 0
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


@eqx.filter_jit(donate="all-except-first")
def _advance(algorithm: Algorithm, state: Any, round: Any) -> tuple[Any, jax.Array]:
    """One step. Only the state and whether the round counted leave it, so that XLA drops what the
    record would cost: two losses and a gradient."""
    new, info = algorithm.step(state, round)
    return new, info.accepted
