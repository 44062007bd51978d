"""Playing a problem, measuring its regret, and lengths along the run; compiled, in float64.

Everything here calls the library as a user would: `OAGD` with `Dense()` and the prescribed steps,
`run`, and the regrets of `obax.regret`. What differs between problems of one shape is an array, so
that all of them share one compilation.
"""

from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike

from ... import implicit, regret
from ..._support.trees import PyTree
from ...algorithms import OAGD
from ...hypergradient import Hypergradient
from ...online import run
from ...problems import Instance
from ...theory import Setting
from ...theory.setting import Curve
from ...window import Window
from .evidence import SOLVER, Vector

Schedule = Callable[[Array], Array]


class Steps(NamedTuple):
    """alpha_t, beta and K_t as they go to the algorithm: arrays, or schedules of arrays."""

    alpha: Array | Schedule
    beta: Array
    K: Array | Schedule

    @classmethod
    def of(cls, prescribed: Setting) -> "Steps":
        """Return the steps that a setting prescribes, as arrays: Python's numbers would be
        compiled in."""
        p = prescribed
        return cls(*jax.tree.map(_traced, (p.outer_step_size, p.inner_step_size, p.inner_steps)))


def _traced(number: ArrayLike) -> Array:
    # K is an int32 once it is traced.
    return jnp.asarray(number, jnp.int32 if isinstance(number, int) else jnp.float64)


class Played(NamedTuple):
    """Leader and follower before and after every round: x_t, x_{t+1}, y_t, y_{t+1}."""

    x: Array
    x_next: Array
    y: Array
    y_next: Array


@eqx.filter_jit
def play(
    instance: Instance,
    window: Window,
    steps: Steps,
    hypergradient: Hypergradient,
    kind: type[OAGD] = OAGD,
) -> tuple[Played, Array]:
    """Play OAGD with these steps; also return which rounds were accepted. A mutant has its own
    `hypergradient`, where others have `Dense()`, or `kind` of OAGD."""
    algorithm = kind(instance.problem, steps.alpha, steps.beta, steps.K, window, hypergradient)
    state = algorithm.init(instance.outer_var, instance.inner_var, instance.example_round)
    _, history = run(
        algorithm,
        state,
        instance.rounds,
        on_rejected="skip",
        record=lambda state: (state.outer_var, state.inner_var),
    )
    x_next, y_next = history.recorded
    y = jnp.concatenate([instance.inner_var[None], y_next[:-1]])
    return Played(history.outer_var, x_next, y, y_next), history.accepted


class Measured(NamedTuple):
    """A regret curve, the path lengths that its bound takes, the largest residual of the
    comparators, and the comparators."""

    curve: Array
    arguments: dict[str, Array]
    residual: Array
    best: Array


def _starts(instance: Instance) -> dict[str, PyTree]:
    """Return the keywords of the searches of `obax.regret`."""
    starts = {"outer_start": instance.outer_var, "inner_start": instance.inner_var}
    return {**starts, "solver": SOLVER}


@eqx.filter_jit
def dynamic(instance: Instance, played: Array, bound: Callable[..., Curve]) -> Measured:
    """Measure BD-Reg_t at every t."""
    starts = _starts(instance)
    curve = regret.dynamic(instance.problem, played, instance.rounds, **starts)
    arguments = regret.bound_arguments(bound, instance.problem, instance.rounds, **starts)
    best = curve.comparators
    assert best is not None
    assert best.residual is not None
    return Measured(curve.cumulative, arguments, best.residual, best.outer_var)


@eqx.filter_jit
def static(instance: Instance, played: Array, horizons: Array) -> Measured:
    """Measure BS-Reg_t at every t against the x* of rounds 1..h, for each h: axes (h, t)."""
    problem, rounds, starts = instance.problem, instance.rounds, _starts(instance)

    def against(h: Array) -> Measured:
        seen = jnp.arange(played.shape[0]) < h
        prefix = rounds | {"scale": jnp.where(seen, rounds["scale"], 0.0)}
        best = regret.static_solution(problem, prefix, **starts)
        curve = regret.static(problem, played, rounds, comparators=best, **starts)
        lengths = regret.path_lengths(problem, rounds, order=1, with_H=False, static=best, **starts)
        steps = jnp.diff(lengths.Y_bar, prepend=jnp.zeros(1, lengths.Y_bar.dtype))
        arguments = {"Y_bar_1": lengths.Y_bar, "Y_bar_2": jnp.cumsum(steps**2)}
        assert best.residual is not None
        everywhere = jnp.broadcast_to(best.outer_var, played.shape)
        return Measured(curve.cumulative, arguments, best.residual, everywhere)

    return jax.lax.map(against, horizons)


@eqx.filter_jit
def local(instance: Instance, played: Array, window: Window) -> Measured:
    """Measure BL-Reg_t at every t, with H along the trajectory only.

    The proof meets y*_t - y*_{t-1} only at x_{t-1} and x_t. This H is at most the one with the
    supremum, and the bound grows with H: what holds with the smaller one holds with the larger.
    """
    problem, rounds = instance.problem, instance.rounds
    follower = {"inner_start": instance.inner_var, "solver": SOLVER}
    curve = regret.local(problem, played, rounds, window, **follower)
    # x_t in round t - 1, and x_{t-1} in round t.
    at = jnp.concatenate([played[1:], played[:-1]])
    other = jax.tree.map(lambda leaf: jnp.concatenate([leaf[:-1], leaf[1:]]), rounds)
    there = regret.inner_solution(problem, at, other, **follower)
    assert curve.decisions is not None
    here = curve.decisions.inner_var
    own = jnp.concatenate([here[1:], here[:-1]])
    steps = jnp.linalg.norm(there.inner_var - own, axis=1).reshape(2, -1).max(axis=0)
    steps = jnp.concatenate([jnp.zeros(1, steps.dtype), steps])
    residual = jnp.maximum(there.inner_residual.max(), curve.decisions.inner_residual.max())
    H = {"H_1": jnp.cumsum(steps), "H_2": jnp.cumsum(steps**2)}
    # There is no comparator: that of round t is x_t itself, and what depends on it is zero.
    return Measured(curve.cumulative, H, residual, played)


class Along(NamedTuple):
    """Lengths and differences in every round of a run; F_t is f_t for w = 1. They are arrays of
    JAX while they are measured, of NumPy when they are judged."""

    before: Array
    after: Array
    error: Array
    slope: Array
    step_error: Array
    length: Array
    fall: Array
    gap: Array
    towards: Array
    distance: Array
    next_distance: Array
    path: Array
    inner_path: Array


@eqx.filter_jit
def measure_along(
    instance: Instance, played: Played, best: Array, alpha: Array, window: Window
) -> Along:
    """Measure what `claims.checks` needs. `best` are the comparators x*_t, `alpha` the steps
    that were *prescribed*, whatever was played."""
    flat = implicit.FlatProblem(instance.problem, instance.outer_var, instance.inner_var, SOLVER)
    # The rounds of the window of round t, newest first; f_t = 0 before the first.
    index = jnp.arange(len(alpha))[:, None] - jnp.arange(window.size)
    weights = jnp.where(index >= 0, jnp.asarray(window.weights) / jnp.sum(window.weights), 0.0)
    past = jax.tree.map(lambda leaf: leaf[jnp.maximum(index, 0)], instance.rounds)
    found, answers = flat.map_rounds(
        lambda *of_round: _in_round(flat, *of_round),
        *(instance.rounds, past, weights, played, best, alpha),
    )
    return Along(**found, path=_steps(best), inner_path=_steps(answers))


def _in_round(
    flat: implicit.FlatProblem,
    round: PyTree,
    past: PyTree,
    weights: Array,
    played: Played,
    best: Vector,
    alpha: Array,
) -> tuple[dict[str, Array], Vector]:
    """Return everything of `Along` but the path lengths, and y*_t(best) for these."""
    x, x_next, y, y_next = played

    def average(x: Vector, y: Vector) -> Array:
        return jnp.vdot(weights, jax.vmap(lambda round: flat.outer(x, y, round))(past))

    def gradient(y: Vector) -> Vector:
        slopes = jax.grad(average, (0, 1))(x, y)
        return implicit.at_answer(flat, x, round, y).pull_back(*slopes)

    answer, answer_next, answer_best = (
        implicit.answer(flat, point, round).y for point in (x, x_next, best)
    )
    true, taken = gradient(answer), gradient(y_next)
    value, norm = average(x, answer), jnp.linalg.norm
    return {
        "before": norm(y - answer),
        "after": norm(y_next - answer),
        "error": norm(taken - true),
        "slope": norm(true),
        "step_error": norm(x_next - flat.project(x - alpha * taken)),
        "length": norm(alpha * taken) + norm(x),
        "fall": value - average(x_next, answer_next),
        "gap": value - average(best, answer_best),
        "towards": jnp.vdot(true, x - best),
        "distance": norm(x - best),
        "next_distance": norm(x_next - best),
    }, answer_best


def _steps(points: Array) -> Array:
    moved = jnp.linalg.norm(points[1:] - points[:-1], axis=1)
    return jnp.concatenate([jnp.zeros(1, moved.dtype), moved])
