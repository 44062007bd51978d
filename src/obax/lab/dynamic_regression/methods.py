"""The methods that are compared, each over the whole grid of step sizes and all seeds at once."""

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
from .config import Config, Group, Method
from .cutting import play_cut
from .stream import comparators, instances, stack, start, taken

# Exact for five features, whatever the penalty.
ESTIMATOR = hypergradient.CG(max_steps=5)
CUT_BY = {"never": None, "changes": "reset", "detected": ScaleChange()}
Setting = tuple[int, float, float]


def grid(config: Config, method: Method) -> list[Setting]:
    """(K, alpha, beta); OGD has no alpha."""
    alphas = (float("nan"),) if method.kind == "OGD" else config.outer_step_sizes
    return list(itertools.product(config.inner_steps, alphas, config.inner_step_sizes))


@dataclasses.dataclass(frozen=True)
class Trajectories:
    """Decisions x_t and models y_t as they stood when round t arrived: [settings, seeds, T, d].

    Of a window that a detector cuts also how many rounds it had, [settings, seeds, T]."""

    settings: list[Setting]
    outer_vars: np.ndarray
    inner_vars: np.ndarray
    lengths: np.ndarray | None = None

    def first(self, seeds: int) -> "Trajectories":
        """Of the first seeds only."""
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
    config: Config, group: Group, method: Method, settings: list[Setting] | None = None
) -> Trajectories:
    """All settings of the grid (or the given ones) on all seeds. The oracle is OGD whose penalty is
    the best x of the stage, which nobody can know beforehand."""
    settings = grid(config, method) if settings is None else settings
    streams, window = instances(config, group), Window(1)
    if method.cut == "detected":
        found = play_cut(streams, _window(method), ESTIMATOR, settings, start(config, group))
        return Trajectories(settings, *found)
    if method.curvature == "own":
        window = _window(method)
    elif method.kind == "OAGD":
        # The window is in the rounds: the same decisions at the cost of w = 1.
        streams = tuple(windowed(stream, _window(method)) for stream in streams)
    problem, rounds = streams[0].problem, stack(one.rounds for one in streams)
    if method.x == "oracle":
        best, _ = comparators(config, group).per_round()
        rounds |= {"oracle": jnp.asarray(best, float)}
        problem = Problem(_oracle_outer, _oracle_inner, problem.domain)
    algorithms: list[OGD | OAGD] = [
        OGD(problem, None, beta, k)
        if method.kind == "OGD"
        # K as an array is traced: one compilation serves the whole grid and any part of it.
        else OAGD(problem, alpha, beta, jnp.asarray(k), window, ESTIMATOR)
        for k, alpha, beta in settings
    ]
    first, example = streams[0].inner_var, taken(rounds, (0, 0))
    state = algorithms[0].init(start(config, group), first, example)
    _, history = sweep(algorithms, state, rounds, seeds=True, record=_inner_var)
    outer_vars, after = np.asarray(history.outer_var), np.asarray(history.recorded)
    if method.x == "oracle":
        outer_vars = np.broadcast_to(best, outer_vars.shape)
    begun = np.broadcast_to(first, (*after.shape[:2], 1, len(first)))
    return Trajectories(settings, outer_vars, np.concatenate([begun, after[:, :, :-1]], axis=2))


def _window(method: Method) -> Window:
    if method.w == 1:
        return Window(1)
    assert method.w is not None
    assert method.u is not None
    size = method.w
    if method.u < 1:
        # Beyond this age u_i is less than 1e-9 of the total: nothing in float32.
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


def offline(config: Config, group: Group) -> tuple[np.ndarray, np.ndarray]:
    """Offline hyperparameter optimisation on all data so far: t and x(t), [points, seeds, d1].

    At each of `offline_points` rounds: OFFLINE_STEPS outer steps, each with the hypergradient of
    OFFLINE_INNER_STEPS gradient steps on all training data so far by reverse mode (Franceschi et
    al., 2018), from the last solution. The inner step is 1 / L for the data at hand. Adam moves x,
    because the hypergradient shrinks with exp(x).
    """
    everything = Window(config.horizon, normalise="seen", follower="average")
    views = tuple(windowed(stream, everything) for stream in instances(config, group))
    spaced = np.linspace(0, config.horizon - 1, config.offline_points + 1)
    points = np.unique(spaced[1:].astype(int))
    steps = np.repeat(points, OFFLINE_STEPS)
    rounds = stack(taken(view.rounds, steps) for view in views)
    largest = np.linalg.eigvalsh(np.asarray(rounds["training"][0], np.float64))[..., -1].max()
    algorithm = OAGD(
        views[0].problem,
        None,
        float(1 / (largest + 2 * np.exp(config.upper))),
        OFFLINE_INNER_STEPS,
        hypergradient=hypergradient.Unrolled(),
        outer_optimiser=OFFLINE_OPTIMISER,
    )
    state = algorithm.init(start(config, group), views[0].inner_var, views[0].example_round)
    _, history = sweep(algorithm, state, rounds, seeds=True)
    solved = np.asarray(history.outer_var)[:, OFFLINE_STEPS - 1 :: OFFLINE_STEPS]
    return points + 1, np.swapaxes(solved, 0, 1)
