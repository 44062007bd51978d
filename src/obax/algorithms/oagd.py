"""OAGD, online alternating gradient descent.

Tarzanagh, Nazari, Hou, Shen, Balzano: *Online Bilevel Optimization: Regret Analysis of Online
Alternating Gradient Methods*, AISTATS 2024, Algorithm 1. In round t:

    z^1 = y_t,  z^{k+1} = z^k - beta_t grad_z g_t(x_t, z^k)  for k = 1..K_t,  y_{t+1} = z^{K_t+1}
    x_{t+1} = projection on X of  x_t - alpha_t grad~F_{t,u}(x_t, y_{t+1})

with the time-averaged hypergradient (Definition 1)

    grad~F_{t,u}(x, y) = (1/W) sum_{i<w} u_i (grad_x f_{t-i} + M_{t-i} grad_y f_{t-i})(x, y),
    M_t H_t + J_t = 0,   H_t = grad^2_yy g_t,   J_t = grad^2_xy g_t.

| symbol | name | symbol | name |
|---|---|---|---|
| x_t, y_t | `outer_var`, `inner_var` | w, u_i | `window` |
| alpha_t, beta_t | `outer_step_size`, `inner_step_size` | K_t | `inner_steps` |
| M_t grad_y f | `hypergradient` | X | `problem.domain` |
"""

from typing import ClassVar

import equinox as eqx

from .._support.trees import PyTree
from ..hypergradient import CG, Hypergradient, Unrolled
from .arguments import ESTIMATOR, AnyWindow, StepCount, When, any_estimator
from .base import State, TwoLevels
from .record import Move
from .window_modes import Turn, check_unrolled, play, train


class OAGDState(State):
    """The pair (x_t, y_t), and the rounds of the window in `past`."""


class OAGD(TwoLevels):
    """Online alternating gradient descent with a time-averaged hypergradient.

    **Arguments:**

    - `problem`: with a follower, or without one (then this is time-smoothed OGD).
    - `outer_step_size`, `inner_step_size`: a number or a schedule t -> number; t counts from 1.
    - `inner_steps`: K_t, an integer or a schedule. An `int` is compiled in; a schedule or an
      integer JAX array is traced and may change without recompiling.
    - `window`: the past rounds that a round learns from, see `obax.Window`.
    - `hypergradient`: an estimator of `obax.hypergradient`.
    - `outer_optimiser`, `inner_optimiser`: an optax transformation in place of the plain step; its
      update is scaled by the step size, which is then 1 unless given.
    - `outer_when`: `t -> bool`, the rounds in which the leader moves, such as `lambda t: t >= 80`
      for a warm-up. In the others no hypergradient is computed, and x and its optimiser stay as
      they are; the record shows a direction of norm zero. By default, every round.

    >>> import jax.numpy as jnp
    >>> import obax
    >>> problem = obax.Problem(
    ...     outer=lambda x, y, round: 0.5 * (y - round) ** 2,
    ...     inner=lambda x, y, round: 0.5 * (y - x) ** 2,
    ... )
    >>> algorithm = obax.OAGD(problem, outer_step_size=0.5, inner_step_size=0.5, inner_steps=1)
    >>> algorithm
    OAGD(alpha=0.5, beta=0.5, CG())
    >>> state = algorithm.init(0.0, 0.0, jnp.zeros(()))
    >>> for target in (1.0, 1.0, 1.0):
    ...     state, info = algorithm.step(state, jnp.asarray(target))
    ...     print(f"{state.outer_var:.4f} {state.inner_var:.4f} {info.played_value:.4f}")
    0.5000 0.0000 0.5000
    0.8750 0.2500 0.5000
    1.0938 0.5625 0.2812
    """

    followers: ClassVar[tuple[str, ...]] = ("none", "free", "constrained")

    inner_steps: StepCount = 1
    window: AnyWindow = eqx.field(default=None)
    hypergradient: Hypergradient = any_estimator(CG(), ESTIMATOR)
    outer_when: When | None = eqx.field(default=None, kw_only=True)

    def __check_init__(self) -> None:
        if isinstance(self.hypergradient, Unrolled):
            check_unrolled(self.window, self.inner_steps)

    def check_sweep(self, field: str) -> None:
        if field == ".inner_steps" and isinstance(self.hypergradient, Unrolled):
            raise ValueError(
                "inner_steps must be the same in all algorithms with hypergradient=Unrolled(), "
                "whose loop must have a fixed length; sweep over it with several calls."
            )

    def remember(self, start: State) -> State:
        past, carry = self.window.past(start.round_spec.example()), start.carry
        if past is not None and self.window.curvature == "own":
            # Each round of the window carries something of its own.
            carry = self.window.for_each_past(carry)
        return OAGDState(**vars(start) | {"past": past, "carry": carry})

    def update(self, state: State, round: PyTree) -> Move:
        # Line 2: acquire f_t and g_t, the newest of the window's rounds.
        terms = self.terms(state, round)
        # Lines 3-7 move the follower; with it comes the time-averaged hypergradient of line 8.
        learned, estimate = play(Turn(self, state, round, terms))
        # Line 8: the projected step of the leader.
        leader = self.lead(state, estimate.value)
        move = Move(leader, learned.follower, estimate, learned.gradients)
        return move.with_terms(terms, learned.terms)

    def hold(self, state: State, round: PyTree) -> Move:
        terms = self.terms(state, round)
        learned = train(Turn(self, state, round, terms), self.start(state))
        move = self.held(state, round, learned.follower, learned.gradients)
        return move.with_terms(terms, learned.terms)
