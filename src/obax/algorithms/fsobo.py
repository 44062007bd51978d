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

import jax
import jax.numpy as jnp

from .._support import trees
from .._support.trees import PyTree
from ..hypergradient.average import outer_gradient
from ..hypergradient.base import relative
from ..problem import Problem
from ..rounds import RoundSpec
from ..window import Window
from .base import Algorithm, State
from .descent import Descent, Number
from .follower import Follower, learn, start_of
from .oracles import with_follower
from .record import Info, record


class FSOBOState(State):
    """The triple (x_t, y_t, v_t)."""

    buffers: PyTree
    dual_var: PyTree


class FSOBO(Algorithm):
    """Fully single-loop online bilevel optimisation: one step each of y, of v and of x.

    **Arguments:**

    - `problem`: with a follower.
    - `outer_step_size`, `inner_step_size`, `dual_step_size`: of x, y and v; a number or a schedule
      t -> number, with t from 1. Without a `dual_step_size` v takes that of y: both steps are
      stable below 2 / |H|.

    >>> problem = Problem(
    ...     outer=lambda x, y, round: 0.5 * (y - round) ** 2,
    ...     inner=lambda x, y, round: 0.5 * (y - x) ** 2,
    ... )
    >>> algorithm = FSOBO(problem, outer_step_size=0.5, inner_step_size=0.5)
    >>> state = algorithm.init(0.0, 0.0, jnp.zeros(()))
    >>> for target in (1.0, 1.0, 1.0):
    ...     state, info = algorithm.step(state, jnp.asarray(target))
    ...     print(f"{state.outer_var:.4f} {state.inner_var:.4f} {state.dual_var:.4f}")
    0.2500 0.0000 -0.5000
    0.5938 0.1250 -0.6875
    0.9258 0.3594 -0.6641
    """

    problem: Problem
    outer: Descent
    inner: Descent
    dual: Descent

    def __init__(
        self,
        problem: Problem,
        outer_step_size: Number,
        inner_step_size: Number,
        dual_step_size: Number | None = None,
    ):
        self.problem = with_follower(problem, "FSOBO")
        self.outer = Descent(outer_step_size, None, "outer")
        self.inner = Descent(inner_step_size, None, "inner")
        step_size = inner_step_size if dual_step_size is None else dual_step_size
        self.dual = Descent(step_size, None, "dual")
        self.outer.check("outer_step_size")
        self.inner.check("inner_step_size")
        self.dual.check("dual_step_size")

    def fresh_state(
        self, outer_var: PyTree, inner_var: PyTree, buffers: PyTree, round_spec: RoundSpec
    ) -> FSOBOState:
        return FSOBOState(
            t=jnp.asarray(1, jnp.int32),
            outer_var=outer_var,
            inner_var=inner_var,
            round_spec=round_spec,
            buffers=buffers,
            dual_var=jax.tree.map(jnp.zeros_like, inner_var),
        )

    def update(self, state: FSOBOState, round: PyTree) -> tuple[FSOBOState, Info]:
        t, x = state.t, state.outer_var
        before = start_of(self.problem, x, Follower(state.inner_var, (), state.buffers), self.inner)
        after = learn(self.problem, x, before, self.inner, 1, t, round, Window())
        y, buffers = after.inner_var, after.buffers

        def inner(x: PyTree, y: PyTree) -> jax.Array:
            return self.problem.inner_loss(x, y, round, buffers)[0]

        gradient_x, gradient_y = outer_gradient(self.problem, x, y, round, buffers)
        _, pull = jax.vjp(jax.grad(inner, 1), x, y)
        error = trees.difference(pull(state.dual_var)[1], gradient_y)
        v, _ = self.dual.apply(state.dual_var, error, (), self.dual.rate(t))
        hypergradient = trees.difference(gradient_x, pull(v)[0])
        moved, _ = self.outer.apply(x, hypergradient, (), self.outer.rate(t))
        new = FSOBOState(
            t=t + 1,
            outer_var=self.problem.domain.project(moved),
            inner_var=y,
            round_spec=state.round_spec,
            buffers=buffers,
            dual_var=v,
        )
        info = record(
            self.problem,
            t,
            x,
            before,
            after,
            round,
            hypergradient=hypergradient,
            # That of v_t, before its step: it costs no product of its own.
            residual=relative(error, gradient_y),
            gradients=2,
            hvps=1,
            cross_products=1,
        )
        return new, info
