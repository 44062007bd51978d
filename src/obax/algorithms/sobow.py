"""SOBOW, single-loop online bilevel optimiser with window averaging.

Lin, Sow, Ji, Liang, Shroff: *Non-Convex Bilevel Optimization with Time-Varying Objective
Functions*, NeurIPS 2023. The rule below is our reading of it. In round t, with
H = grad^2_yy g_t and J = grad^2_xy g_t at (x_t, y_{t+1}):

    y_{t+1} = y_t - beta_t grad_y g_t(x_t, y_t)
    v_t     : a few steps of CG on  H v = grad_y f_t(x_t, y_{t+1}), from v_{t-1}
    h_t     = grad_x f_t(x_t, y_{t+1}) - J v_t
    x_{t+1} = projection on X of  x_t - (alpha_t / W) sum_{i<w} eta^i h_{t-i},  W = sum_{i<w} eta^i

Past terms are *stored*, as they were at the points where they were computed: one hypergradient
per round, where OAGD computes w. With w = 1 this is OAGD with K = 1. The projection is ours.

| symbol | name | symbol | name |
|---|---|---|---|
| x_t, y_t | `outer_var`, `inner_var` | w, eta | `window` |
| alpha_t, beta_t | `outer_step_size`, `inner_step_size` | v_t | `hypergradient`, `state.carry` |
| h_{t-i} | `state.past` | X | `problem.domain` |
"""

import equinox as eqx

from .._support.trees import PyTree
from ..hypergradient import CG, Hypergradient
from .arguments import AdaptiveSize, AnyWindow, LeaderSize, any_estimator, check_stored
from .base import Algorithm, State
from .record import Move


class SOBOWState(State):
    """The pair (x_t, y_t), the hypergradients of the last w - 1 rounds in `past`, and v."""


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

    >>> import jax.numpy as jnp
    >>> import obax
    >>> problem = obax.Problem(
    ...     outer=lambda x, y, round: 0.5 * (y - round) ** 2,
    ...     inner=lambda x, y, round: 0.5 * (y - x) ** 2,
    ... )
    >>> algorithm = obax.SOBOW(problem, 0.5, 0.5, obax.Window(2))
    >>> state = algorithm.init(0.0, 0.0, jnp.zeros(()))
    >>> for target in (1.0, 1.0, 1.0):
    ...     state, info = algorithm.step(state, jnp.asarray(target))
    ...     print(f"{state.outer_var:.4f} {state.inner_var:.4f} {info.played_value:.4f}")
    0.2500 0.0000 0.5000
    0.7188 0.1250 0.5000
    1.0820 0.4219 0.3828
    """

    outer_step_size: LeaderSize = None
    inner_step_size: AdaptiveSize = None
    window: AnyWindow = eqx.field(default=None)
    hypergradient: Hypergradient = any_estimator(CG(max_steps=5, warm_start=True))

    def __check_init__(self) -> None:
        check_stored(self.window, "SOBOW")

    def remember(self, start: State) -> State:
        return SOBOWState(**vars(start) | {"past": self.window.past(start.outer_var)})

    def update(self, state: State, round: PyTree) -> Move:
        follower = self.follow(state, round)
        estimate = self.estimate(self.hypergradient, state, follower, round)
        h = estimate.value
        mean, terms = self.average(state, h)
        leader, followed = self.lead(state, mean), estimate._replace(value=mean)
        return Move(leader, follower, followed, gradients=1, terms=terms, stored=h)
