"""AOBO, online bilevel optimisation with an adaptive number of inner steps.

*Achieving Better Local Regret Bound for Online Non-Convex Bilevel Optimization*, arXiv 2602.06457
(2026), its Algorithm 1. The rule below is our reading of it. In round t, with H = grad^2_yy g_t
and J = grad^2_xy g_t at (x_t, y_{t+1}):

    y_{t+1} : from y_t,  z - beta_t grad_y g_t(x_t, z)  until |grad_y g_t(x_t, z)| <= epsilon,
              at most K times
    v_t     : H v = grad_y f_t(x_t, y_{t+1})
    x_{t+1} = projection on X of  x_t - alpha_t (grad_x f_t(x_t, y_{t+1}) - J v_t)

Easy rounds are cheap: a follower that is near its answer takes no step at all.

| symbol | name | symbol | name |
|---|---|---|---|
| x_t, y_t | `outer_var`, `inner_var` | epsilon | `tolerance` |
| alpha_t, beta_t | `outer_step_size`, `inner_step_size` | K | `max_inner_steps` |
| v_t | `hypergradient`, `state.carry` | X | `problem.domain` |
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array

from .._support import trees, validation
from .._support.trees import PyTree
from ..hypergradient import CG, Hypergradient
from ..problem import Problem
from ..rounds import RoundSpec
from .base import Algorithm, State
from .descent import Descent, Number
from .follower import Follower, start_of
from .oracles import estimate_at, pointwise, with_follower
from .record import Info, record


class AOBOState(State):
    """The pair (x_t, y_t) and what the estimator carries."""

    buffers: PyTree
    carry: PyTree


class AOBO(Algorithm):
    """Online bilevel optimisation with as many inner steps as a tolerance asks for.

    **Arguments:**

    - `problem`: with a follower.
    - `outer_step_size`, `inner_step_size`: a number or a schedule t -> number; t counts from 1.
    - `tolerance`: the follower stops when |grad_y g_t| is at most this.
    - `max_inner_steps`: it stops after that many steps anyway.
    - `hypergradient`: how v is found; by default CG.

    >>> problem = Problem(
    ...     outer=lambda x, y, round: 0.5 * (y - round) ** 2,
    ...     inner=lambda x, y, round: 0.5 * (y - x) ** 2,
    ... )
    >>> algorithm = AOBO(problem, 0.5, 0.5, tolerance=0.1)
    >>> state = algorithm.init(0.0, 0.0, jnp.zeros(()))
    >>> for target in (1.0, 1.0, 1.0):
    ...     state, info = algorithm.step(state, jnp.asarray(target))
    ...     print(f"{state.outer_var:.4f} {state.inner_var:.4f} {info.gradients}")
    0.5000 0.0000 2
    0.7812 0.4375 5
    0.9336 0.6953 4
    """

    problem: Problem
    outer: Descent
    inner: Descent
    tolerance: Array
    max_inner_steps: int = eqx.field(static=True)
    hypergradient: Hypergradient

    def __init__(
        self,
        problem: Problem,
        outer_step_size: Number,
        inner_step_size: Number,
        tolerance: float | Array = 1e-3,
        max_inner_steps: int = 100,
        hypergradient: Hypergradient | None = None,
    ):
        self.problem = with_follower(problem, "AOBO")
        self.outer = Descent(outer_step_size, None, "outer")
        self.inner = Descent(inner_step_size, None, "inner")
        self.outer.check("outer_step_size")
        self.inner.check("inner_step_size")
        self.tolerance = validation.positive_number(tolerance, "tolerance")
        self.max_inner_steps = validation.count(max_inner_steps, "max_inner_steps")
        self.hypergradient = pointwise(CG() if hypergradient is None else hypergradient, "AOBO")

    def fresh_state(
        self, outer_var: PyTree, inner_var: PyTree, buffers: PyTree, round_spec: RoundSpec
    ) -> AOBOState:
        return AOBOState(
            t=jnp.asarray(1, jnp.int32),
            outer_var=outer_var,
            inner_var=inner_var,
            round_spec=round_spec,
            buffers=buffers,
            carry=self.hypergradient.init(inner_var),
        )

    def update(self, state: AOBOState, round: PyTree) -> tuple[AOBOState, Info]:
        t, x = state.t, state.outer_var
        before = start_of(self.problem, x, Follower(state.inner_var, (), state.buffers), self.inner)
        after, steps = self._follow(x, before, round, t)
        estimate = estimate_at(self.problem, self.hypergradient, x, after, round, state.carry)
        moved, _ = self.outer.apply(x, estimate.value, (), self.outer.rate(t))
        new = AOBOState(
            t=t + 1,
            outer_var=self.problem.domain.project(moved),
            inner_var=after.inner_var,
            round_spec=state.round_spec,
            buffers=after.buffers,
            carry=estimate.carry,
        )
        info = record(
            self.problem,
            t,
            x,
            before,
            after,
            round,
            hypergradient=estimate.value,
            residual=estimate.residual,
            # One to look at the start, one after each step, one of the leader.
            gradients=steps + 2,
            hvps=estimate.hvps,
            cross_products=estimate.cross_products,
        )
        return new, info

    def _follow(
        self, x: PyTree, start: Follower, round: PyTree, t: Array
    ) -> tuple[Follower, Array]:
        """The follower once it is near enough, and how many steps it took."""
        differentiate = jax.grad(self.problem.inner_loss, argnums=1, has_aux=True)
        rate, enough = self.inner.rate(t), self.tolerance

        def look(y: PyTree, buffers: PyTree) -> tuple[PyTree, PyTree]:
            return differentiate(x, y, round, buffers)

        def unfinished(now: tuple) -> Any:
            steps, _, slope, _ = now
            size = trees.norm(slope)
            # Not `>`: a NaN goes on into y, where the guard sees it.
            return (steps < self.max_inner_steps) & ~(size <= enough.astype(size.dtype))

        def one(now: tuple) -> tuple:
            steps, y, slope, buffers = now
            y, _ = self.inner.apply(y, slope, (), rate)
            return steps + 1, y, *look(y, buffers)

        y = start.inner_var
        first = (jnp.asarray(0, jnp.int32), y, *look(y, start.buffers))
        steps, y, _, buffers = jax.lax.while_loop(unfinished, one, first)
        return Follower(y, (), buffers), steps
