"""A live round of `obax.play` against the bare dispatch of a jitted function."""

import time
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

import obax

from . import workload
from .harness import Result, Timing, compare


def play_against_dispatch(quick: bool) -> list[Result]:
    """Median of a live round, for rounds that arrive as numpy and as JAX arrays."""
    stream = workload.instance()
    results = []
    for kind in ("numpy", "jax"):
        rounds = workload.unstacked(stream.rounds, as_numpy=kind == "numpy")
        ours, bare = _alternating(stream, rounds[: 200 if quick else None])
        name = f"live round of play, rounds as {kind} arrays, against a bare dispatch"
        results.append(compare(name, ours, bare, 3.0, 1))
    return results


def _alternating(stream: Any, rounds: list[Any]) -> tuple[Timing, Timing]:
    """One round of each in turn. Both end when `accepted` is there: play looks at it itself, and
    what XLA computes on CPU arrives all at once."""
    algorithm = workload.oagd(stream.problem)
    state = workload.start(algorithm, stream)
    bare = bare_dispatch(algorithm, state, rounds[0])
    dynamic = eqx.filter(algorithm, eqx.is_array)
    jax.clear_caches()
    player = obax.play(algorithm, state, rounds)
    times: tuple[list[float], list[float]] = [], []
    passed = state
    for round in rounds:
        begin = time.perf_counter()
        next(player)
        times[0].append(time.perf_counter() - begin)
        begin = time.perf_counter()
        passed, info = bare(dynamic, passed, round)
        info.accepted.block_until_ready()
        times[1].append(time.perf_counter() - begin)
    warm = len(rounds) // 10
    ours, theirs = (Timing(runs[0], runs[warm:]) for runs in times)
    return ours, theirs


def bare_dispatch(algorithm: obax.OAGD, state: Any, round: Any) -> Any:
    """A jitted function with play's arguments and outputs that does next to nothing.

    Every output is a new array: JAX would hand an argument that comes out unchanged straight back.
    """
    info = jax.eval_shape(algorithm.step, state, round)[1]

    def function(dynamic: Any, state: Any, round: Any) -> tuple[Any, Any]:
        outputs = jax.tree.map(
            lambda leaf: jnp.broadcast_to(state.t > 0, leaf.shape).astype(leaf.dtype), info
        )
        return jax.tree.map(lambda leaf: leaf + jnp.ones((), leaf.dtype), state), outputs

    # Arguments that are not used would be dropped before the call.
    return jax.jit(function, keep_unused=True)
