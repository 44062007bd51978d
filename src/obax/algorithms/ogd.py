"""OGD, projected online gradient descent, in both of its roles in the paper.

Zinkevich: *Online convex programming and generalized infinitesimal gradient ascent*, ICML 2003.
On a problem without a follower,

    x_{t+1} = projection on X of  x_t - alpha_t grad f_t(x_t);

on a problem with one it is the baseline that keeps x fixed and trains the follower,

    x_{t+1} = x_t,    y_{t+1} = K_t steps of  z - beta_t grad_z g_t(x_t, z)  from y_t.

| symbol | name | symbol | name |
|---|---|---|---|
| x_t, y_t | `outer_var`, `inner_var` | alpha_t, beta_t | `outer_step_size`, `inner_step_size` |
| K_t | `inner_steps` | X | `problem.domain` |
"""

from typing import ClassVar

import jax
import jax.numpy as jnp

from .._support.trees import PyTree
from ..hypergradient import Estimate
from .arguments import StepCount
from .base import State, TwoLevels
from .descent import Steps
from .record import Leader, Move

OGDState = State


class OGD(TwoLevels):
    """Projected online gradient descent.

    **Arguments:**

    - `problem`: without a follower the leader moves; with one, only the follower does.
    - `outer_step_size`, `outer_optimiser`: for a problem without a follower.
    - `inner_step_size`, `inner_steps`, `inner_optimiser`: for a problem with one.

    Step sizes, schedules, numbers of steps and optimisers are as in `obax.OAGD`.

    >>> import jax.numpy as jnp
    >>> import obax
    >>> problem = obax.Problem(outer=lambda x, y, round: 0.5 * (x - round) ** 2)
    >>> algorithm = obax.OGD(problem, outer_step_size=lambda t: 1.0 / t)
    >>> state = algorithm.init(0.0, None, jnp.zeros(()))
    >>> for target in (3.0, 1.0, 2.0):
    ...     state, info = algorithm.step(state, jnp.asarray(target))
    ...     print(f"{state.outer_var:.4f} {info.played_value:.4f}")
    3.0000 4.5000
    2.0000 2.0000
    2.0000 0.0000
    """

    followers: ClassVar[tuple[str, ...]] = ("none", "free", "constrained")

    inner_steps: StepCount = 1

    def moves_level(self, level: str) -> bool:
        return (level == "inner") == (self.problem.inner is not None)

    def update(self, state: State, round: PyTree) -> Move:
        x = state.outer_var
        if self.problem.inner is None:
            gradient = jax.grad(self.problem.outer_loss)(x, None, round, state.buffers)
            return Move(self.lead(state, gradient), self.start(state), Estimate(gradient))
        steps = Steps(self.inner_steps).at(state.t)
        zero = Estimate(jax.tree.map(jnp.zeros_like, x), gradients=0)
        return Move(Leader(x), self.follow(state, round, steps), zero, steps)
