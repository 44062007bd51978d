"""SOBOW, single-loop online bilevel optimiser with window averaging.

Lin, Sow, Ji, Liang, Shroff: *Non-Convex Bilevel Optimization with Time-Varying Objective
Functions*, NeurIPS 2023. The rule below is our reading of it. In round t, with
H = grad^2_yy g_t and J = grad^2_xy g_t at (x_t, y_{t+1}):

    y_{t+1} = y_t - beta_t grad_y g_t(x_t, y_t)
    v_t     : a few steps of CG on  H v = grad_y f_t(x_t, y_{t+1}), from v_{t-1}
    h_t     = grad_x f_t(x_t, y_{t+1}) - J v_t
    x_{t+1} = projection on X of  x_t - (alpha_t / W) sum_{i<w} eta^i h_{t-i},  W = sum_{i<w} eta^i

Past terms are *stored*, as they were at the points where they were computed: one hypergradient a
round, where OAGD computes w. With w = 1 this is OAGD with K = 1. The projection is ours.

| symbol | name | symbol | name |
|---|---|---|---|
| x_t, y_t | `outer_var`, `inner_var` | w, eta | `window` |
| alpha_t, beta_t | `outer_step_size`, `inner_step_size` | v_t | `hypergradient`, `state.carry` |
| h_{t-i} | `state.past` | X | `problem.domain` |
"""

import jax.numpy as jnp

from .._support.trees import PyTree
from ..hypergradient import CG, Hypergradient
from ..problem import Problem
from ..rounds import RoundSpec
from ..window import Window
from .base import Algorithm, State
from .descent import Descent, Number
from .follower import Follower, learn, start_of
from .oracles import averaged, estimate_at, no_past, pointwise, stored_window, with_follower
from .record import Info, record


class SOBOWState(State):
    """The pair (x_t, y_t), the hypergradients of the last w - 1 rounds, and the estimator's v."""

    buffers: PyTree
    past: PyTree
    carry: PyTree


class SOBOW(Algorithm):
    """Single-loop online bilevel optimiser with window averaging.

    **Arguments:**

    - `problem`: with a follower.
    - `outer_step_size`, `inner_step_size`: a number or a schedule t -> number; t counts from 1.
    - `window`: its size w and weights, such as `obax.Window(10, decay=0.9)`; `normalise="seen"`
      divides by the weight of the rounds seen so far. By default w = 1.
    - `hypergradient`: how v is found; by default five steps of CG from the last round's v. Where
      the follower is not convex a v that is carried on may grow until rounds are rejected: a CG
      without `warm_start` begins anew.

    >>> problem = Problem(
    ...     outer=lambda x, y, round: 0.5 * (y - round) ** 2,
    ...     inner=lambda x, y, round: 0.5 * (y - x) ** 2,
    ... )
    >>> algorithm = SOBOW(problem, 0.5, 0.5, Window(2))
    >>> state = algorithm.init(0.0, 0.0, jnp.zeros(()))
    >>> for target in (1.0, 1.0, 1.0):
    ...     state, info = algorithm.step(state, jnp.asarray(target))
    ...     print(f"{state.outer_var:.4f} {state.inner_var:.4f} {info.played_value:.4f}")
    0.2500 0.0000 0.5000
    0.7188 0.1250 0.5000
    1.0820 0.4219 0.3828
    """

    problem: Problem
    outer: Descent
    inner: Descent
    window: Window
    hypergradient: Hypergradient

    def __init__(
        self,
        problem: Problem,
        outer_step_size: Number,
        inner_step_size: Number,
        window: Window | None = None,
        hypergradient: Hypergradient | None = None,
    ):
        self.problem = with_follower(problem, "SOBOW")
        self.outer = Descent(outer_step_size, None, "outer")
        self.inner = Descent(inner_step_size, None, "inner")
        self.outer.check("outer_step_size")
        self.inner.check("inner_step_size")
        self.window = stored_window(window, "SOBOW")
        estimator = CG(max_steps=5, warm_start=True) if hypergradient is None else hypergradient
        self.hypergradient = pointwise(estimator, "SOBOW")

    def fresh_state(
        self, outer_var: PyTree, inner_var: PyTree, buffers: PyTree, round_spec: RoundSpec
    ) -> SOBOWState:
        return SOBOWState(
            t=jnp.asarray(1, jnp.int32),
            outer_var=outer_var,
            inner_var=inner_var,
            round_spec=round_spec,
            buffers=buffers,
            past=no_past(self.window, outer_var),
            carry=self.hypergradient.init(inner_var),
        )

    def update(self, state: SOBOWState, round: PyTree) -> tuple[SOBOWState, Info]:
        t, x = state.t, state.outer_var
        before = start_of(self.problem, x, Follower(state.inner_var, (), state.buffers), self.inner)
        after = learn(self.problem, x, before, self.inner, 1, t, round, Window())
        estimate = estimate_at(self.problem, self.hypergradient, x, after, round, state.carry)
        direction, past = averaged(self.window, state.past, estimate.value, t)
        moved, _ = self.outer.apply(x, direction, (), self.outer.rate(t))
        new = SOBOWState(
            t=t + 1,
            outer_var=self.problem.domain.project(moved),
            inner_var=after.inner_var,
            round_spec=state.round_spec,
            buffers=after.buffers,
            past=past,
            carry=estimate.carry,
        )
        info = record(
            self.problem,
            t,
            x,
            before,
            after,
            round,
            hypergradient=direction,
            residual=estimate.residual,
            gradients=2,
            hvps=estimate.hvps,
            cross_products=estimate.cross_products,
        )
        return new, info
