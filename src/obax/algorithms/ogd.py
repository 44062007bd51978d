"""OGD, projected online gradient descent, in both of its roles in the paper.

Zinkevich: *Online convex programming and generalized infinitesimal gradient ascent*, ICML 2003.
On a problem without a follower,

    x_{t+1} = projection on X of  x_t - alpha_t grad f_t(x_t);

on a problem with one it is the baseline that holds the hyperparameters and trains the follower,

    x_{t+1} = x_t,    y_{t+1} = K_t steps of  z - beta_t grad_z g_t(x_t, z)  from y_t.

| symbol | name | symbol | name |
|---|---|---|---|
| x_t, y_t | `outer_var`, `inner_var` | alpha_t, beta_t | `outer_step_size`, `inner_step_size` |
| K_t | `inner_steps` | X | `problem.domain` |
"""

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array

from .._support import validation
from .._support.trees import PyTree
from ..problem import Problem
from ..rounds import RoundSpec
from ..window import Window
from .base import Algorithm, State
from .descent import Descent, Number, Steps, check_steps, checked_steps, steps_at
from .follower import Follower, learn, start_of
from .record import Info, record


class OGDState(State):
    """The pair (x_t, y_t) and the state of the one optimiser that moves."""

    optimiser: PyTree
    buffers: PyTree


class OGD(Algorithm):
    """Projected online gradient descent.

    **Arguments:**

    - `problem`: without a follower the leader moves; with one, only the follower does.
    - `outer_step_size`, `outer_optimiser`: for a problem without a follower.
    - `inner_step_size`, `inner_steps`, `inner_optimiser`: for a problem with one.

    Step sizes, schedules, numbers of steps and optimisers are as in `obax.OAGD`.

    >>> problem = Problem(outer=lambda x, y, round: 0.5 * (x - round) ** 2)
    >>> algorithm = OGD(problem, outer_step_size=lambda t: 1.0 / t)
    >>> state = algorithm.init(0.0, None, jnp.zeros(()))
    >>> for target in (3.0, 1.0, 2.0):
    ...     state, info = algorithm.step(state, jnp.asarray(target))
    ...     print(f"{state.outer_var:.4f} {info.played_value:.4f}")
    3.0000 4.5000
    2.0000 2.0000
    2.0000 0.0000
    """

    problem: Problem
    descent: Descent
    inner_steps: Steps

    def __init__(
        self,
        problem: Problem,
        outer_step_size: Number | None = None,
        inner_step_size: Number | None = None,
        inner_steps: Steps = 1,
        *,
        outer_optimiser: optax.GradientTransformation | None = None,
        inner_optimiser: optax.GradientTransformation | None = None,
    ):
        validation.instance(problem, Problem, "problem", "an obax.Problem")
        self.problem = problem
        self.inner_steps = checked_steps(inner_steps)
        outer, inner = (outer_step_size, outer_optimiser), (inner_step_size, inner_optimiser)
        moving, still = ("outer", "inner") if problem.inner is None else ("inner", "outer")
        given = {"outer": outer, "inner": inner}
        if any(argument is not None for argument in given[still]):
            why = "has no follower" if problem.inner is None else "has a follower: x is held fixed"
            raise ValueError(
                f"{still}_step_size and {still}_optimiser must be left out, because the problem "
                f"{why}."
            )
        self.descent = Descent(*given[moving], moving)
        self.descent.check(f"{moving}_step_size")
        if problem.inner is not None:
            check_steps(self.inner_steps)

    def fresh_state(
        self, outer_var: PyTree, inner_var: PyTree, buffers: PyTree, round_spec: RoundSpec
    ) -> OGDState:
        return OGDState(
            t=jnp.asarray(1, jnp.int32),
            outer_var=outer_var,
            inner_var=inner_var,
            round_spec=round_spec,
            optimiser=self.descent.init(outer_var if inner_var is None else inner_var),
            buffers=buffers,
        )

    def update(self, state: OGDState, round: PyTree) -> tuple[OGDState, Info]:
        t, x = state.t, state.outer_var
        before = Follower(state.inner_var, state.optimiser, state.buffers)
        if self.problem.inner is None:
            gradient = jax.grad(self.problem.outer_loss)(x, None, round, state.buffers)
            moved, optimiser = self.descent.apply(
                x, gradient, state.optimiser, self.descent.rate(t)
            )
            new_x, after = self.problem.domain.project(moved), before._replace(optimiser=optimiser)
            steps: int | Array = 1
        else:
            before = start_of(self.problem, x, before, self.descent)
            gradient = jax.tree.map(jnp.zeros_like, x)
            steps = steps_at(self.inner_steps, t)
            new_x = x
            after = learn(self.problem, x, before, self.descent, steps, t, round, window=Window())
        new = OGDState(
            t + 1, new_x, after.inner_var, state.round_spec, after.optimiser, after.buffers
        )
        info = record(
            self.problem, t, x, before, after, round, hypergradient=gradient, gradients=steps
        )
        return new, info
