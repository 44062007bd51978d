"""The methods of the experiment, each played with the whole grid of step sizes on all seeds."""

import dataclasses
import itertools
from typing import Any

import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array

from ... import hypergradient
from ..._support.trees import PyTree
from ...algorithms import OAGD, OGD
from ...detectors import ScaleChange
from ...online import sweep
from ...problem import Problem
from ...problems import regression, windowed
from ...window import Window
from .config import Config, Method, Stream
from .cutting import play_cut
from .measures import comparators, instances, stack, start, take

# Exact for five features, whatever the penalty.
ESTIMATOR = hypergradient.CG(max_steps=5)
CUT_BY = {"never": None, "changes": "reset", "detected": ScaleChange()}
Setting = tuple[int, float, float]


def grid(config: Config, method: Method) -> list[Setting]:
    """Return the settings (K, alpha, beta). OGD has no alpha."""
    alphas = (float("nan"),) if method.kind == "OGD" else config.outer_step_sizes
    return list(itertools.product(config.inner_steps, alphas, config.inner_step_sizes))


@dataclasses.dataclass(frozen=True)
class Trajectories:
    """Decisions x_t and models y_t as they were when round t arrived, [settings, seeds, T, d].

    `lengths` are the numbers of rounds in a window that a detector cuts, [settings, seeds, T].
    """

    settings: list[Setting]
    outer_vars: np.ndarray
    inner_vars: np.ndarray
    lengths: np.ndarray | None = None

    def first(self, seeds: int) -> "Trajectories":
        """Return the trajectories of the first seeds."""
        lengths = None if self.lengths is None else self.lengths[:, :seeds]
        kept = (self.outer_vars[:, :seeds], self.inner_vars[:, :seeds], lengths)
        return Trajectories(self.settings, *kept)


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
    assert method.w is not None
    assert method.u is not None
    size = method.w
    if method.u < 1:
        # Beyond this age u_i is less than 1e-9 of the total, which float32 cannot hold.
        size = min(size, int(np.ceil(np.log(1e-9 * (1 - method.u)) / np.log(method.u))))
    return Window(
        size,
        method.u,
        normalise=str(method.normalise),
        follower=str(method.follower),
        curvature=str(method.curvature),
        cut=CUT_BY[str(method.cut)],
    )


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
