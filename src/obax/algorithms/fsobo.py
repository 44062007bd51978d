"""FSOBO, fully single-loop online bilevel optimisation.

*Achieving Better Local Regret Bound for Online Non-Convex Bilevel Optimization*, arXiv 2602.06457
(2026), its Algorithm 2. The rule below is our reading of it. In round t, with H = grad^2_yy g_t
and J = grad^2_xy g_t at (x_t, y_{t+1}):

    y_{t+1} = y_t - beta_t grad_y g_t(x_t, y_t)
    v_{t+1} = v_t - delta_t (H v_t - grad_y f_t(x_t, y_{t+1}))
    x_{t+1} = projection on X of  x_t - alpha_t (grad_x f_t(x_t, y_{t+1}) - J v_{t+1})

One step of each: nothing is iterated and nothing is solved.

| symbol | name | symbol | name |
|---|---|---|---|
| x_t, y_t, v_t | `outer_var`, `inner_var`, `dual_var` | delta_t | `dual_step_size` |
| alpha_t, beta_t | `outer_step_size`, `inner_step_size` | X | `problem.domain` |
"""

from typing import ClassVar

import jax
import jax.numpy as jnp

from .._support import trees
from .._support.trees import PyTree
from ..hypergradient import Estimate, Remedy
from ..hypergradient.base import Pair, relative
from .arguments import AdaptiveSize, LeaderSize, StepSize
from .base import Algorithm, State
from .descent import Descent
from .record import Move


class FSOBOState(State):
    """The triple (x_t, y_t, v_t)."""

    dual_var: PyTree


class FSOBO(Algorithm):
    """Fully single-loop online bilevel optimisation: one step each of y, of v and of x.

    **Arguments:**

    - `problem`: with a follower.
    - `outer_step_size`, `inner_step_size`, `dual_step_size`: of x, y and v; a number or a schedule
      t -> number, with t from 1. Without a `dual_step_size` v takes that of y: both steps are
      stable below 2 / |H|.

    >>> import jax.numpy as jnp
    >>> import obax
    >>> problem = obax.Problem(
    ...     outer=lambda x, y, round: 0.5 * (y - round) ** 2,
    ...     inner=lambda x, y, round: 0.5 * (y - x) ** 2,
    ... )
    >>> algorithm = obax.FSOBO(problem, outer_step_size=0.5, inner_step_size=0.5)
    >>> state = algorithm.init(0.0, 0.0, jnp.zeros(()))
    >>> for target in (1.0, 1.0, 1.0):
    ...     state, info = algorithm.step(state, jnp.asarray(target))
    ...     print(f"{state.outer_var:.4f} {state.inner_var:.4f} {state.dual_var:.4f}")
    0.2500 0.0000 -0.5000
    0.5938 0.1250 -0.6875
    0.9258 0.3594 -0.6641
    """

    followers: ClassVar[tuple[str, ...]] = ("free",)

    outer_step_size: LeaderSize = None
    inner_step_size: AdaptiveSize = None
    dual_step_size: StepSize | None = None

    @property
    def dual(self) -> Descent:
        """How v moves."""
        return self.inner if self.dual_step_size is None else Descent(self.dual_step_size)

    @property
    def remedy(self) -> Remedy:
        return Remedy(
            "v, which takes one step a round towards H v = grad_y f, was left with",
            "a larger dual_step_size where it stays about 1, a smaller one where it grows (steps "
            "are stable below 2 / |H|), or obax.SOBOW, which solves the system in every round",
        )

    def remember(self, start: State) -> FSOBOState:
        return FSOBOState(**vars(start), dual_var=jax.tree.map(jnp.zeros_like, start.inner_var))

    def update(self, state: FSOBOState, round: PyTree) -> Move:
        x, v = state.outer_var, state.dual_var
        follower = self.follow(state, round)
        y = follower.inner_var
        pair = Pair(self.problem, x, y, follower.buffers)
        gradient_x, gradient_y = pair.outer_gradient(round)
        _, pull = jax.vjp(jax.grad(pair.inner_of(round), 1), x, y)
        error = trees.difference(pull(v)[1], gradient_y)
        v = trees.scaled_add(v, -self.dual.rate(state.t), error)
        direction = trees.difference(gradient_x, pull(v)[0])
        # The residual is that of v_t, before its step: it costs no product of its own.
        estimate = Estimate(direction, relative(error, gradient_y), None, 1, 1)
        leader = self.lead(state, direction)
        return Move(leader, follower, estimate, gradients=1, memory={"dual_var": v})
