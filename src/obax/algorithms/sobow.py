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

from jaxtyping import Array

from .._support.trees import PyTree
from ..hypergradient import CG, Hypergradient
from ..past import Refused, RingBuffer
from ..window import Window
from .arguments import any_estimator, any_window, step_size
from .base import Algorithm, State
from .descent import Follower, Number
from .memory import averaged, no_past
from .oagd_window import over_window
from .record import Move


class SOBOWState(State):
    """The pair (x_t, y_t), the hypergradients of the last w - 1 rounds, the estimator's v, and the
    rounds that the follower may look at again."""

    past: RingBuffer | None
    replayed: RingBuffer | None


class SOBOW(Algorithm):
    """Single-loop online bilevel optimiser with window averaging.

    **Arguments:**

    - `problem`: with a follower.
    - `outer_step_size`, `inner_step_size`: a number or a schedule t -> number; t counts from 1.
    - `window`: its size w and weights, such as `obax.Window(10, decay=0.9)`; `normalise="seen"`
      divides by the weight of the rounds seen so far. By default w = 1. With `replay` the
      follower's step is on the mean of the w rounds drawn (`follower="average"`), or it takes one
      on each of them (`"window"`); the leader's average is that of the last w rounds as before.
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

    outer_step_size: Number = step_size("outer")
    inner_step_size: Number = step_size("inner")
    window: Window = any_window("SOBOW")
    hypergradient: Hypergradient = any_estimator(CG(max_steps=5, warm_start=True), "SOBOW")

    def remember(self, start: State) -> SOBOWState:
        past = no_past(self.window, start.outer_var)
        rounds = None
        if self.window.replay is not None:
            rounds = self.window.past(start.round_spec.example())
        return SOBOWState(**vars(start), past=past, replayed=rounds)

    def update(self, state: SOBOWState, round: PyTree) -> Move:
        before, after, refused, gradients = self._learned(state, round)
        estimate = self.estimate(self.hypergradient, state, after, round)
        h = estimate.value
        mean, terms = averaged(self.window, state.past, h, state.t)
        leader = self.lead(state, mean)
        move = Move(leader, before, after, estimate, 1 + gradients, direction=mean)
        return move._replace(stored={"past": h}, terms=terms, refused=refused)

    def _learned(
        self, state: SOBOWState, round: PyTree
    ) -> tuple[Follower, Follower, dict[str, Refused], int | Array]:
        """The follower before and after the round, what it refused, and its gradients."""
        if state.replayed is None:
            return *self.follow(state, round), {}, 1
        x, t, before = state.outer_var, state.t, self.start(state)
        terms = self.window.terms(state.replayed, round, t)
        after, left = over_window(self.problem, self.window, x, self.inner, t, 1, before, terms)
        refused = {"replayed": terms.lost(left, state.replayed)}
        return before, after, refused, terms.number
