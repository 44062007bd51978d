"""The algorithms and the problems that `test_conformance.py` plays against each other.

Everything is built on demand and once in a process. A new algorithm is one line in ALGORITHMS and
gets the whole suite.
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax

import obax
from obax import hypergradient as hg
from obax.problems import comparability, dynamic_regression, lower_bound_game, quadratic
from obax.testing.cases import HORIZON, Case, huge, named_leaves, no_follower, running_mean


def _ready(instance, outer_step, inner_step, overflow=None):
    return Case(
        instance.problem,
        instance.rounds,
        instance.outer_var,
        instance.inner_var,
        outer_step,
        inner_step,
        overflow=overflow,
    )


def _simplex():
    """A follower behind a leader on the simplex, whose best decision is inside it."""
    rng = np.random.default_rng(6)
    target = rng.uniform(0.5, 1.0, (HORIZON, 3))
    rounds = jnp.asarray(target / target.sum(axis=1, keepdims=True))
    problem = obax.Problem(
        lambda x, y, round: 0.5 * jnp.sum((y - 2.0 * round) ** 2),
        lambda x, y, round: 0.5 * jnp.sum((y - 2.0 * x) ** 2),
        obax.Simplex(),
        lambda x, round: 2.0 * x,
        lambda round: round,
    )
    return Case(problem, rounds, jnp.array([0.6, 0.3, 0.1]), jnp.zeros(3), 0.1, 0.5)


PROBLEMS: dict[str, Callable[[], Case]] = {
    "comparability": lambda: _ready(comparability(HORIZON), 0.2, 0.5),
    "lower-bound-game": lambda: _ready(lower_bound_game(HORIZON), 0.02, 0.5),
    "quadratic": lambda: _ready(quadratic(HORIZON, 2, 3), 0.2, 0.3, huge),
    "quadratic-active-box": lambda: _ready(
        quadratic(HORIZON, 3, 2, box=0.05, outer_condition=3.0), 0.1, 0.3, huge
    ),
    "regression": lambda: _ready(dynamic_regression(HORIZON, 2, 2, 2, samples=3), 0.1, 0.1, huge),
    "pytrees": named_leaves,
    "buffers": running_mean,
    "no-follower": no_follower,
    "simplex": _simplex,
}


@functools.cache
def problem_case(name):
    return PROBLEMS[name]()


class Decaying(eqx.Module):
    """scale / sqrt(t): a schedule whose number is a leaf, so that it can be swept over."""

    scale: jax.Array

    def __call__(self, t):
        return self.scale / jnp.sqrt(t.astype(self.scale.dtype))


def growing_steps(t):
    return 1 + t // 2


@dataclass(frozen=True)
class AlgorithmCase:
    """How to build an algorithm for a problem, with its step sizes times `scale`."""

    make: Callable[[Case, float], obax.Algorithm]
    needs_follower: bool = True
    exact: bool = True
    """Whether it reaches the known answer when one round is repeated."""
    moves_leader: bool = True
    domain: type = obax.Domain

    def applies(self, case):
        follower = case.problem.inner is not None or not self.needs_follower
        return follower and isinstance(case.problem.domain, self.domain)


def _oagd(window=None, estimator=None, steps=2, *, needs_follower=True, exact=True):
    def make(case, scale=1.0):
        inner = {}
        if case.problem.inner is not None:
            inner = {"inner_step_size": case.inner_step * scale, "inner_steps": steps}
        return obax.OAGD(
            case.problem,
            case.outer_step * scale,
            window=None if window is None else window(),
            hypergradient=None if estimator is None else estimator(case),
            **inner,
        )

    return AlgorithmCase(make, needs_follower, exact)


# One object each: transformations are compared by identity, and a sweep shares what is not varied.
MOMENTUM = optax.sgd(1.0, momentum=0.5)
ADAM = optax.adam(1.0)


def _with_optax(case, scale=1.0):
    inner = {}
    if case.problem.inner is not None:
        inner = {
            "inner_step_size": 0.5 * case.inner_step * scale,
            "inner_steps": 2,
            "inner_optimiser": MOMENTUM,
        }
    return obax.OAGD(case.problem, 0.01 * scale, outer_optimiser=ADAM, **inner)


def _ogd(case, scale=1.0):
    if case.problem.inner is None:
        return obax.OGD(case.problem, outer_step_size=case.outer_step * scale)
    return obax.OGD(case.problem, inner_step_size=case.inner_step * scale, inner_steps=2)


def _scheduled(case, scale=1.0):
    inner = {}
    if case.problem.inner is not None:
        inner = {
            "inner_step_size": Decaying(jnp.asarray(case.inner_step * scale)),
            "inner_steps": growing_steps,
        }
    return obax.OAGD(
        case.problem, Decaying(jnp.asarray(case.outer_step * scale)), window=obax.Window(2), **inner
    )


def _autobalance(case, scale=1.0):
    return obax.AutoBalance(
        case.problem,
        case.outer_step * scale,
        case.inner_step * scale,
        capacity=4,
        outer_every=1,
        outer_rounds=2,
    )


def _itd(case, scale=1.0):
    steps = case.outer_step * scale, case.inner_step * scale, 2
    return obax.ITD(case.problem, *steps, capacity=3, tasks=2)


def late(t):
    return t >= 2


def _warmed_up(case, scale=1.0):
    inner = {}
    if case.problem.inner is not None:
        inner = {"inner_step_size": case.inner_step * scale}
    window = obax.Window(2)
    return obax.OAGD(case.problem, case.outer_step * scale, window=window, outer_when=late, **inner)


def _window(**options):
    return lambda: obax.Window(3, **options)


def _sobow(**options):
    def make(case, scale=1.0):
        window = obax.Window(3, 0.9, **options)
        return obax.SOBOW(case.problem, case.outer_step * scale, case.inner_step * scale, window)

    return make


class Jumps(eqx.Module):
    """A detector: the window ends where the loss suffered is `factor` times the last one."""

    factor: jax.Array

    def init(self):
        return jnp.asarray(jnp.inf)

    def observe(self, memory, loss):
        jump = loss > self.factor.astype(loss.dtype) * memory.astype(loss.dtype)
        return loss.astype(memory.dtype), jnp.where(jump, 1, 2**31 - 1)


def _cut():
    return obax.Window(3, 0.9, cut=Jumps(jnp.asarray(1.2)))


def _replay(**options):
    return lambda: obax.Window(2, replay=obax.Replay(4, recency=5, seed=1), **options)


def _sogd(kind, **options):
    def make(case, scale=1.0):
        # alpha_t begins near the outer step.
        offset = (0.5 * case.outer_step * scale) ** -3
        ratio = 2 * case.inner_step / case.outer_step
        return kind(case.problem, offset, ratio, ratio, outer_momentum=5.0, **options)

    return make


def _fsobo(case, scale=1.0):
    step = case.inner_step * scale
    return obax.FSOBO(case.problem, 0.7 * case.outer_step * scale, step, 1.1 * step)


def _rtho(proximal=False):
    def make(case, scale=1.0):
        steps = case.outer_step * scale, case.inner_step * scale
        return obax.RTHO(case.problem, *steps, proximal=proximal)

    return make


def _rtho_optax(case, scale=1.0):
    inner = {"inner_steps": growing_steps, "inner_optimiser": MOMENTUM, "horizon": 10.0}
    steps = 0.01 * scale, 0.5 * case.inner_step * scale
    return obax.RTHO(case.problem, *steps, outer_optimiser=ADAM, **inner)


def _aobo(case, scale=1.0):
    steps = case.outer_step * scale, case.inner_step * scale
    return obax.AOBO(case.problem, *steps, tolerance=1e-10, max_inner_steps=5)


def _f2obo(case, scale=1.0):
    steps = case.outer_step * scale, case.inner_step * scale
    return obax.F2OBO(case.problem, *steps, 20.0, max_inner_steps=5)


def _wobo(case, scale=1.0):
    steps = case.outer_step * scale, case.inner_step * scale
    return obax.WOBO(case.problem, *steps, 1, obax.Window(3, 0.9), 1e-10, 2)


def _obbo(geometry, outer=1.0):
    def make(case, scale=1.0):
        steps = outer * case.outer_step * scale, case.inner_step * scale, 2
        return obax.OBBO(case.problem, *steps, obax.Window(2), geometry=geometry)

    return make


def _adaptive(case, scale=1.0):
    step = obax.steps.CurvatureStep(0.5 * scale)
    return obax.OAGD(case.problem, inner_step_size=step, window=obax.Window(2))


def _race(case, scale=1.0):
    algorithm = obax.OAGD(case.problem)
    return obax.Race(algorithm, outer_scales=(0.01, 0.1), inner_factors=(0.5 * scale,), trial=2)


ALGORITHMS: dict[str, AlgorithmCase] = {
    "OAGD": _oagd(needs_follower=False),
    "OAGD-own": _oagd(_window(decay=0.9), needs_follower=False),
    "OAGD-current": _oagd(_window(curvature="current", normalise="seen"), needs_follower=False),
    "OAGD-chunked": _oagd(
        lambda: obax.Window(3, weights=[1.0, 0.5, 0.5], chunk=2), lambda _: hg.Dense()
    ),
    "OAGD-follower-window": _oagd(_window(follower="window", decay=0.5)),
    "OAGD-follower-each": _oagd(_window(follower="each")),
    "OAGD-follower-average": _oagd(_window(follower="average", curvature="current")),
    "OAGD-optax": AlgorithmCase(_with_optax, needs_follower=False, exact=False),
    "OAGD-scheduled": AlgorithmCase(_scheduled, needs_follower=False, exact=False),
    "OAGD-warm": _oagd(_window(), lambda _: hg.CG(warm_start=True)),
    "OAGD-Nystrom": _oagd(_window(), lambda _: hg.Nystrom(1, damping=0.5, seed=1), exact=False),
    "OAGD-Neumann": _oagd(None, lambda case: hg.Neumann(3, case.inner_step), exact=False),
    "OAGD-FixedPoint": _oagd(None, lambda case: hg.FixedPoint(case.inner_step)),
    "OAGD-GMRES": _oagd(None, lambda _: hg.GMRES()),
    "OAGD-Unrolled": _oagd(None, lambda _: hg.Unrolled(), 3, exact=False),
    "OAGD-Unrolled-window": _oagd(
        _window(follower="window", curvature="current"), lambda _: hg.Unrolled(), exact=False
    ),
    "OAGD-warm-up": AlgorithmCase(_warmed_up, needs_follower=False, exact=False),
    "AutoBalance": AlgorithmCase(_autobalance, exact=False),
    "ITD": AlgorithmCase(_itd, exact=False),
    "OGD": AlgorithmCase(_ogd, needs_follower=False, moves_leader=False),
    "SOBOW": AlgorithmCase(_sobow()),
    "OAGD-cut": _oagd(_cut, needs_follower=False),
    "OAGD-replay": _oagd(_replay(), lambda _: hg.CG(warm_start=True)),
    "OAGD-replay-each": _oagd(_replay(follower="each", curvature="own")),
    "SOGD": AlgorithmCase(_sogd(obax.SOGD)),
    "ZOSOGD": AlgorithmCase(_sogd(obax.ZOSOGD, directions_per_round=2), exact=False),
    "FSOBO": AlgorithmCase(_fsobo),
    "AOBO": AlgorithmCase(_aobo),
    "F2OBO": AlgorithmCase(_f2obo, exact=False),
    "WOBO": AlgorithmCase(_wobo),
    "RTHO": AlgorithmCase(_rtho()),
    "OAGD-adaptive": AlgorithmCase(_adaptive, exact=False),
    "Race": AlgorithmCase(_race, exact=False),
    "RTHO-proximal": AlgorithmCase(_rtho(proximal=True)),
    "RTHO-optax": AlgorithmCase(_rtho_optax, exact=False),
    "OBBO": AlgorithmCase(_obbo("euclidean")),
    "OBBO-adaptive": AlgorithmCase(_obbo("adaptive", 5.0), exact=False),
    "OBBO-entropy": AlgorithmCase(_obbo("entropy"), domain=obax.Simplex),
}

PAIRS = [(algorithm, problem) for problem in PROBLEMS for algorithm in ALGORITHMS]


def applicable_pairs():
    return [
        (algorithm, problem)
        for algorithm, problem in PAIRS
        if ALGORITHMS[algorithm].applies(problem_case(problem))
    ]
