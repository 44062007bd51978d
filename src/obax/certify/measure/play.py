"""Playing and measuring many problems of one shape at once: vmapped, compiled once, in float64.

Everything here takes stacks of problems (leading axis) and calls the library as a user would:
`OAGD` with `Dense()` and the prescribed steps, `run`, and the regrets of `obax.regret`.

Playing is vmapped over problems. Measuring is vectorised over rounds already, and goes problem by
problem (`lax.map`): see `evidence.WIDTH` for what happens to calls that are too wide.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypedDict

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike

from ... import regret
from ..._support.trees import PyTree
from ...algorithms import OAGD
from ...hypergradient import Dense
from ...online import run
from ...problem import Problem
from ...problems import Instance
from ...theory import Setting
from ...theory.setting import Curve
from ...window import Window
from .evidence import SOLVER, Evidence, Points, gather

Schedule = Callable[[Array], Array]


class Steps(NamedTuple):
    """alpha_t, beta and K_t as they go to the algorithm: numbers, arrays or schedules."""

    alpha: float | Array | Schedule
    beta: float | Array
    K: int | Array | Schedule


class Batch(NamedTuple):
    """Problems of one shape, stacked, with the steps prescribed for each."""

    problem: Problem
    rounds: PyTree
    outer_var: Array
    inner_var: Array
    steps: "Steps"


def stack(instances: Sequence[Instance], prescribed: Sequence[Setting]) -> Batch:
    """One batch. The numbers in schedules become arrays; K is an array, to be traced."""
    steps = [Steps(s.outer_step_size, s.inner_step_size, s.inner_steps) for s in prescribed]
    parts = [
        (i.problem, i.rounds, i.outer_var, i.inner_var, step)
        for i, step in zip(instances, steps, strict=True)
    ]
    return Batch(*jax.tree.map(_stacked, *parts))


def _stacked(*leaves: ArrayLike) -> Array:
    array = np.stack([np.asarray(leaf) for leaf in leaves])
    # K is an int32 once it is traced.
    return jnp.asarray(array.astype(np.int32) if array.dtype.kind == "i" else array)


class Played(NamedTuple):
    """The pair before and after every round: x_t, x_{t+1}, y_t, y_{t+1}."""

    x: Array
    x_next: Array
    y: Array
    y_next: Array


@eqx.filter_jit
def play(batch: Batch, window: Window, steps: Steps) -> tuple[Played, Array]:
    """OAGD on every problem with these steps, and which rounds were accepted."""

    def one(batch: Batch, steps: Steps) -> tuple[Played, Array]:
        algorithm = OAGD(batch.problem, steps.alpha, steps.beta, steps.K, window, Dense())
        example = jax.tree.map(lambda leaf: leaf[0], batch.rounds)
        state = algorithm.init(batch.outer_var, batch.inner_var, example)
        _, history = run(
            algorithm,
            state,
            batch.rounds,
            on_rejected="skip",
            record=lambda state: (state.outer_var, state.inner_var),
        )
        x_next, y_next = history.recorded
        y = jnp.concatenate([batch.inner_var[None], y_next[:-1]])
        return Played(history.outer_var, x_next, y, y_next), history.accepted

    return eqx.filter_vmap(one)(batch, steps)


@eqx.filter_jit
def evidence(batch: Batch, played: Array, points: Points, kind: str) -> Evidence:
    """`gather` for every problem."""

    def one(of: tuple[Batch, Array, Points]) -> Evidence:
        batch, played, points = of
        start = batch.outer_var, batch.inner_var
        return gather(batch.problem, batch.rounds, *start, played, points, kind)

    return jax.lax.map(one, (batch, played, points))


class Starts(TypedDict):
    """Where the searches of `obax.regret` start, and how they go."""

    outer_start: Array
    inner_start: Array
    solver: regret.Solver


class Measured(NamedTuple):
    """A regret curve with the path lengths that its bound takes; how exact the comparators are,
    and where they are in each round."""

    curve: Array
    arguments: dict[str, Array]
    residual: Array
    best: Array


def _starts(batch: Batch) -> Starts:
    return {"outer_start": batch.outer_var, "inner_start": batch.inner_var, "solver": SOLVER}


@eqx.filter_jit
def dynamic(batch: Batch, played: Array, bound: Callable[..., Curve]) -> Measured:
    """BD-Reg_t at every t."""

    def one(of: tuple[Batch, Array]) -> Measured:
        batch, played = of
        starts = _starts(batch)
        curve = regret.dynamic(batch.problem, played, batch.rounds, **starts)
        arguments = regret.bound_arguments(bound, batch.problem, batch.rounds, **starts)
        assert curve.comparators is not None
        best, residual = curve.comparators, curve.comparators.residual
        assert residual is not None
        return Measured(curve.cumulative, arguments, residual.max(), best.outer_var)

    return jax.lax.map(one, (batch, played))


@eqx.filter_jit
def static(batch: Batch, played: Array, horizons: Array) -> Measured:
    """BS-Reg_t at every t against the x* of rounds 1..h, for each h: axes (problem, h, t)."""

    def one(batch: Batch, played: Array, h: Array) -> Measured:
        starts = _starts(batch)
        seen = jnp.arange(played.shape[0]) < h
        prefix = batch.rounds | {"scale": jnp.where(seen, batch.rounds["scale"], 0.0)}
        best = regret.static_solution(batch.problem, prefix, **starts)
        curve = regret.static(batch.problem, played, batch.rounds, comparators=best, **starts)
        lengths = regret.path_lengths(
            batch.problem, batch.rounds, order=1, with_H=False, static=best, **starts
        )
        steps = jnp.diff(lengths.Y_bar, prepend=jnp.zeros(1, lengths.Y_bar.dtype))
        arguments = {"Y_bar_1": lengths.Y_bar, "Y_bar_2": jnp.cumsum(steps**2)}
        assert best.residual is not None
        everywhere = jnp.broadcast_to(best.outer_var, played.shape)
        return Measured(curve.cumulative, arguments, best.residual, everywhere)

    def all_of(of: tuple[Batch, Array]) -> Measured:
        return jax.lax.map(lambda h: one(*of, h), horizons)

    return jax.lax.map(all_of, (batch, played))


@eqx.filter_jit
def local(batch: Batch, played: Array, window: Window) -> Measured:
    """BL-Reg_t at every t, with H measured along the trajectory only.

    The proof meets y*_t - y*_{t-1} only at x_{t-1} and x_t. This H is at most the one with the
    supremum, and the bound grows with H: what holds with the smaller one holds with the larger.
    """

    def one(of: tuple[Batch, Array]) -> Measured:
        batch, played = of
        curve = regret.local(
            batch.problem,
            played,
            batch.rounds,
            window,
            inner_start=batch.inner_var,
            solver=SOLVER,
        )
        # x_t in round t - 1, and x_{t-1} in round t.
        at = jnp.concatenate([played[1:], played[:-1]])
        other = jax.tree.map(lambda leaf: jnp.concatenate([leaf[:-1], leaf[1:]]), batch.rounds)
        there = regret.inner_solution(
            batch.problem, at, other, inner_start=batch.inner_var, solver=SOLVER
        )
        assert curve.decisions is not None
        here = curve.decisions.inner_var
        own = jnp.concatenate([here[1:], here[:-1]])
        steps = jnp.linalg.norm(there.inner_var - own, axis=1).reshape(2, -1).max(axis=0)
        steps = jnp.concatenate([jnp.zeros(1, steps.dtype), steps])
        residual = jnp.maximum(there.inner_residual.max(), curve.decisions.inner_residual.max())
        H = {"H_1": jnp.cumsum(steps), "H_2": jnp.cumsum(steps**2)}
        # There is no comparator: that of round t is x_t itself, and what depends on it is zero.
        return Measured(curve.cumulative, H, residual, played)

    return jax.lax.map(one, (batch, played))
