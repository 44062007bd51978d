"""OAGD whose window is cut where a detector says, at the cost of w = 1.

The window depends on the losses suffered, so that its moments cannot be computed beforehand. But
the moments of consecutive rounds are a difference of running sums, which all runs on a seed share.
"""

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int

from ..._support.compiling import compiled
from ..._support.trees import PyTree, select
from ...algorithms import OAGD
from ...algorithms.base import State
from ...hypergradient import Hypergradient
from ...problems import Instance
from ...problems.moments import RunningMoments, moments_problem
from ...window import Window
from .measures import stack


class Run(NamedTuple):
    """A run between two rounds: its state, the detector's state and the length of its window."""

    state: State
    detector: PyTree
    length: Int[Array, ""]


def play_cut(
    streams: Sequence[Instance],
    window: Window,
    estimator: Hypergradient,
    settings: Sequence[tuple[int, float, float]],
    outer_start: Array,
) -> tuple[np.ndarray, ...]:
    """Return x_t and y_t when round t arrives, and the length of the window after it.

    There is one trajectory for every setting (K, alpha, beta) on every stream: [settings, seeds, T,
    ...]. `window` has equal weights divided by the weight seen, and the follower trains on it
    ("average" and curvature "window"). OAGD with this window on the streams themselves makes the
    same decisions.
    """
    sums = stack([RunningMoments.of(stream) for stream in streams])
    samples = stack([stream.rounds["validation"] for stream in streams])
    chosen = (
        jnp.asarray([k for k, _, _ in settings]),
        *(jnp.asarray([setting[i] for setting in settings], float) for i in (1, 2)),
    )
    # The size is traced, so that one program serves all windows.
    detector, size = Window(2, cut=window.cut), jnp.asarray(window.size, jnp.int32)
    played = _play(streams[0], detector, size, estimator, chosen, outer_start, samples, sums)
    return tuple(np.asarray(leaf) for leaf in played)


@compiled
def _play(
    stream: Instance,
    detector: Window,
    size: Int[Array, ""],
    estimator: Hypergradient,
    settings: tuple[Array, ...],
    outer_start: Array,
    samples: PyTree,
    sums: RunningMoments,
) -> tuple[Array, ...]:
    seeds, horizon = len(samples[1]), samples[1].shape[1]
    problem = moments_problem(stream.problem.domain)

    def step(run: Run, setting: tuple[Array, ...], seed: Array, t: Array) -> tuple[Run, PyTree]:
        k, alpha, beta = setting
        x, y = run.state.outer_var, run.state.inner_var
        sample = jax.tree.map(lambda leaf: leaf[seed, t], samples)
        loss = stream.problem.outer_loss(x, y, {"validation": sample})
        memory, kept = detector.detect(run.detector, None, loss)
        length = jnp.minimum(jnp.minimum(run.length, kept) + 1, size)
        round = sums.between((seed, t + 1 - length), (seed, t + 1))
        algorithm = OAGD(problem, alpha, beta, k, Window(1), estimator)
        state, info = algorithm.step(run.state, round)
        seen = select(info.accepted, (memory, length), (run.detector, run.length))
        return Run(state, *seen), (x, y, length)

    example = sums.between((jnp.asarray(0), jnp.asarray(0)), (jnp.asarray(0), jnp.asarray(1)))
    first = OAGD(problem, 1.0, 1.0, settings[0][0], Window(1), estimator)
    start = first.init(outer_start, stream.inner_var, example)
    begun = Run(start, detector.init_detector(), jnp.zeros((), jnp.int32))
    # Settings x seeds in one flat batch, as in `obax.sweep`.
    lanes = len(settings[0]) * seeds
    runs = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (lanes, *leaf.shape)), begun)
    each = jax.tree.map(lambda leaf: jnp.repeat(leaf, seeds), settings)
    seed = jnp.tile(jnp.arange(seeds), len(settings[0]))

    def body(runs: Run, t: Array) -> tuple[Run, PyTree]:
        return jax.vmap(step, in_axes=(0, 0, 0, None))(runs, each, seed, t)

    _, played = jax.lax.scan(body, runs, jnp.arange(horizon, dtype=jnp.int32))
    return jax.tree.map(
        lambda leaf: jnp.swapaxes(leaf, 0, 1).reshape(-1, seeds, horizon, *leaf.shape[2:]), played
    )
