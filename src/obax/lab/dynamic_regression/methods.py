"""The methods of the experiment, each played with the whole grid of step sizes on all seeds.

A window that a detector cuts depends on the losses suffered, so that its moments cannot be computed
beforehand. But the moments of consecutive rounds are a difference of running sums, which all runs
on a seed share: such an OAGD costs what w = 1 costs.
"""

import dataclasses
import itertools
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Int

from ... import hypergradient
from ..._support.compiling import compiled
from ..._support.trees import PyTree, select
from ...algorithms import OAGD, OGD
from ...algorithms.base import State
from ...detectors import ScaleChange
from ...hypergradient import Hypergradient
from ...online import sweep
from ...problem import Problem
from ...problems import Instance, regression, windowed
from ...problems.moments import RunningMoments, moments_problem
from ...window import Window
from .config import Config, Method, Stream
from .measures import comparators, instances, stack, start, take

# Exact for five features, whatever the penalty.
ESTIMATOR = hypergradient.CG(max_steps=5)
CUT_BY = {"never": None, "changes": "reset", "detected": ScaleChange()}
Setting = tuple[int, float, float]


def grid(config: Config, method: Method) -> list[Setting]:
    """Return the settings (K, alpha, beta). OGD has no alpha."""
    alphas = (float("nan"),) if method.kind == "OGD" else config.outer_step_sizes
    return list(itertools.product(config.inner_steps, alphas, config.inner_step_sizes))


class Trajectories(NamedTuple):
    """Decisions x_t and models y_t as they were when round t arrived, [settings, seeds, T, d].

    `lengths` are the numbers of rounds in a window that a detector cuts, [settings, seeds, T].
    """

    settings: list[Setting]
    outer_vars: np.ndarray
    inner_vars: np.ndarray
    lengths: np.ndarray | None = None


def _inner_var(state: Any) -> Any:
    return state.inner_var


def _oracle_outer(x: Array, y: Array, round: PyTree) -> Array:
    return regression.outer(round["oracle"], y, round)


def _oracle_inner(x: Array, y: Array, round: PyTree) -> Array:
    return regression.inner(round["oracle"], y, round)


def play(
    config: Config, stream: Stream, method: Method, settings: list[Setting] | None = None
) -> Trajectories:
    """Play all settings of the grid, or the given ones, on all seeds.

    The oracle is OGD whose penalty is the best x of the stage, which is only known in hindsight.
    """
    settings = grid(config, method) if settings is None else settings
    every, window = instances(config, stream), Window(1)
    if method.cut == "detected":
        first = start(config, stream)
        return Trajectories(settings, *play_cut(every, _window(method), ESTIMATOR, settings, first))
    if method.curvature == "own":
        window = _window(method)
    elif method.kind == "OAGD":
        # The rounds contain the window: the same decisions at the cost of w = 1.
        every = tuple(windowed(instance, _window(method)) for instance in every)
    problem, rounds = every[0].problem, stack(instance.rounds for instance in every)
    if method.x == "oracle":
        best, _ = comparators(config, stream).per_round()
        rounds |= {"oracle": jnp.asarray(best, float)}
        problem = Problem(_oracle_outer, _oracle_inner, problem.domain)
    algorithms: list[OGD | OAGD] = [
        OGD(problem, None, beta, k)
        if method.kind == "OGD"
        # K as an array is traced: one compilation serves the whole grid and any part of it.
        else OAGD(problem, alpha, beta, jnp.asarray(k), window, ESTIMATOR)
        for k, alpha, beta in settings
    ]
    first, example = every[0].inner_var, take(rounds, (0, 0))
    state = algorithms[0].init(start(config, stream), first, example)
    _, history = sweep(algorithms, state, rounds, seeds=True, record=_inner_var)
    outer_vars, after = np.asarray(history.outer_var), np.asarray(history.recorded)
    if method.x == "oracle":
        outer_vars = np.broadcast_to(best, outer_vars.shape)
    at_start = np.broadcast_to(first, (*after.shape[:2], 1, len(first)))
    inner_vars = np.concatenate([at_start, after[:, :, :-1]], axis=2)
    return Trajectories(settings, outer_vars, inner_vars)


def with_current_curvature(method: Method) -> Method:
    """Return the same method with one linear system in a round."""
    return dataclasses.replace(method, curvature="current")


def _window(method: Method) -> Window:
    if method.w == 1:
        return Window(1)
    size = method.w
    assert size and method.u
    if method.u < 1:
        # Beyond this age u_i is less than 1e-9 of the total, which float32 cannot hold.
        size = min(size, int(np.ceil(np.log(1e-9 * (1 - method.u)) / np.log(method.u))))
    names = ("normalise", "follower", "curvature")
    options: dict[str, Any] = {name: str(getattr(method, name)) for name in names}
    return Window(size, method.u, **options, cut=CUT_BY[str(method.cut)])


OFFLINE_OPTIMISER = optax.adam(0.05)
OFFLINE_STEPS = 200
OFFLINE_INNER_STEPS = 100


def offline(config: Config, stream: Stream) -> tuple[np.ndarray, np.ndarray]:
    """Optimise the penalty offline on all data so far. Return t and x(t), [points, seeds, d1].

    Each of `offline_points` rounds has OFFLINE_STEPS outer steps from the last solution. Each takes
    the hypergradient of OFFLINE_INNER_STEPS gradient steps on all training data so far by reverse
    mode (Franceschi et al., 2018), with the inner step 1 / L. Adam moves x, because the
    hypergradient shrinks with exp(x).
    """
    everything = Window(config.horizon, normalise="seen", follower="average")
    views = tuple(windowed(instance, everything) for instance in instances(config, stream))
    spaced = np.linspace(0, config.horizon - 1, config.offline_points + 1)
    points = np.unique(spaced[1:].astype(int))
    steps = np.repeat(points, OFFLINE_STEPS)
    rounds = stack(take(view.rounds, steps) for view in views)
    largest = np.linalg.eigvalsh(np.asarray(rounds["training"][0], np.float64))[..., -1].max()
    algorithm = OAGD(
        views[0].problem,
        None,
        float(1 / (largest + 2 * np.exp(config.upper))),
        OFFLINE_INNER_STEPS,
        hypergradient=hypergradient.Unrolled(),
        outer_optimiser=OFFLINE_OPTIMISER,
    )
    state = algorithm.init(start(config, stream), views[0].inner_var, views[0].example_round)
    _, history = sweep(algorithm, state, rounds, seeds=True)
    solved = np.asarray(history.outer_var)[:, OFFLINE_STEPS - 1 :: OFFLINE_STEPS]
    return points + 1, np.swapaxes(solved, 0, 1)


class Run(NamedTuple):
    """A run between two rounds: its state, the detector's state and the length of its window."""

    state: State
    detector: PyTree
    length: Int[Array, ""]


def play_cut(
    streams: Sequence[Instance],
    window: Window,
    estimator: Hypergradient,
    settings: Sequence[Setting],
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
    steps, *sizes = zip(*settings, strict=True)
    chosen = (jnp.asarray(steps), *(jnp.asarray(size, float) for size in sizes))
    # The size is traced, so that one program serves all windows.
    detector, longest = Window(2, cut=window.cut), jnp.asarray(window.size, jnp.int32)
    played = _play(streams[0], detector, longest, estimator, chosen, outer_start, samples, sums)
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
