"""A live round of `obax.play` against the bare dispatch of one packed array.

The reference is the least that a live round can cost in JAX: one small array from the host into a
compiled function that does next to nothing, one array out, read back.
"""

import time
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import obax

from . import workload
from .harness import Result, Timing, compare

# Rounds of each in turn: few enough that a noisy machine is noisy to both of them.
BLOCK = 10
# Words that go into a round of the workload: its numbers, its state and its data.
WORDS = 24
LIMIT = 3.0


def play_against_dispatch(quick: bool) -> list[Result]:
    """A live round, for rounds that arrive as NumPy arrays, as from a live source, and (reported)
    as arrays of JAX; and what it costs to look at the loss of the round as well (reported)."""
    stream = workload.instance()
    results = []
    for kind, look, limit in (("NumPy", False, LIMIT), ("NumPy", True, None), ("JAX", False, None)):
        rounds = workload.unstacked(stream.rounds, as_numpy=kind == "NumPy")
        ours, bare = _alternating(stream, rounds[: 200 if quick else None], look=look)
        also = ", and its loss as a float" if look else ""
        name = f"live round of play, rounds as {kind} arrays{also}, against a packed dispatch"
        results.append(compare(name, ours, bare, limit, BLOCK))
    return results


def _alternating(stream: Any, rounds: list[Any], *, look: bool) -> tuple[Timing, Timing]:
    """A block of rounds of each in turn."""
    algorithm = workload.oagd(stream.problem)
    dispatch = jax.jit(lambda words: words + jnp.ones((), words.dtype))
    random = np.random.default_rng(0)
    host = [random.integers(2**32, size=WORDS, dtype=np.uint32) for _ in rounds]
    jax.clear_caches()
    player = iter(obax.play(algorithm, workload.start(algorithm, stream), rounds))
    times: tuple[list[float], list[float]] = [], []
    for begin in range(0, len(rounds), BLOCK):
        times[0].append(_clock(lambda: _play(player, look)))
        times[1].append(
            _clock(lambda b=begin: [np.asarray(dispatch(w)) for w in host[b : b + BLOCK]])
        )
    warm = len(times[0]) // 10
    ours, theirs = (Timing(runs[0], runs[warm:]) for runs in times)
    return ours, theirs


def _play(player: Iterator[tuple[Any, obax.Info]], look: bool) -> None:
    for _ in range(BLOCK):
        _state, info = next(player)
        if look:
            float(info.played_value)


def _clock(function: Any) -> float:
    begin = time.perf_counter()
    function()
    return time.perf_counter() - begin
