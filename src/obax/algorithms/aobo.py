"""AOBO, online bilevel optimisation with an adaptive number of inner steps.

*Achieving Better Local Regret Bound for Online Non-Convex Bilevel Optimization*, arXiv 2602.06457
(2026), its Algorithm 1. The rule below is our reading of it. In round t, with H = grad^2_yy g_t
and J = grad^2_xy g_t at (x_t, y_{t+1}):

    y_{t+1} : from y_t,  z - beta_t grad_y g_t(x_t, z)  until |grad_y g_t(x_t, z)| <= epsilon,
              at most K times
    v_t     : H v = grad_y f_t(x_t, y_{t+1})
    x_{t+1} = projection on X of  x_t - alpha_t (grad_x f_t(x_t, y_{t+1}) - J v_t)

Easy rounds are cheap: a follower near its optimum takes no step at all.

| symbol | name | symbol | name |
|---|---|---|---|
| x_t, y_t | `outer_var`, `inner_var` | epsilon | `tolerance` |
| alpha_t, beta_t | `outer_step_size`, `inner_step_size` | K | `max_inner_steps` |
| v_t | `hypergradient`, `state.carry` | X | `problem.domain` |
"""

from .._support.checks import Count, Positive
from .._support.trees import PyTree
from ..hypergradient import CG, Hypergradient
from .arguments import AdaptiveSize, LeaderSize, any_estimator
from .base import Algorithm, State
from .descent import settled
from .record import Move

AOBOState = State


class AOBO(Algorithm):
    """Online bilevel optimisation with as many inner steps as a tolerance asks for.

    **Arguments:**

    - `problem`: with a follower.
    - `outer_step_size`, `inner_step_size`: a number or a schedule t -> number; t counts from 1.
    - `tolerance`: the follower stops when |grad_y g_t| is at most this.
    - `max_inner_steps`: it stops after that many steps anyway.
    - `hypergradient`: how v is found; by default CG.

    >>> import jax.numpy as jnp
    >>> import obax
    >>> problem = obax.Problem(
    ...     outer=lambda x, y, round: 0.5 * (y - round) ** 2,
    ...     inner=lambda x, y, round: 0.5 * (y - x) ** 2,
    ... )
    >>> algorithm = obax.AOBO(problem, 0.5, 0.5, tolerance=0.1)
    >>> state = algorithm.init(0.0, 0.0, jnp.zeros(()))
    >>> for target in (1.0, 1.0, 1.0):
    ...     state, info = algorithm.step(state, jnp.asarray(target))
    ...     print(f"{state.outer_var:.4f} {state.inner_var:.4f} {info.gradients}")
    0.5000 0.0000 2
    0.7812 0.4375 5
    0.9336 0.6953 4
    """

    outer_step_size: LeaderSize = None
    inner_step_size: AdaptiveSize = None
    tolerance: Positive = 1e-3
    max_inner_steps: Count = 100
    hypergradient: Hypergradient = any_estimator(CG())

    def update(self, state: State, round: PyTree) -> Move:
        follower, steps, _ = settled(
            lambda y, buffers: self.problem.inner_slope(state.outer_var, y, round, buffers),
            self.start(state),
            descent=self.inner,
            t=state.t,
            size=self.problem.inner_domain.gradient_norm,
            tolerance=self.tolerance,
            most=self.max_inner_steps,
        )
        estimate = self.estimate(self.hypergradient, state, follower, round)
        # One gradient at the start and one after each step.
        return Move(self.lead(state, estimate.value), follower, estimate, steps + 1)
