"""F2OBO, fully first-order online bilevel optimisation.

Jia, Chen: *Fully First-Order Algorithms for Online Bilevel Optimization*, arXiv 2602.11665 (2026).
The rule below is our reading of its abstract: a Lagrangian in place of implicit differentiation, a
multiplier that grows with t, inner loops that stop at a tolerance. In round t, with
lambda_t = lambda t^tau,

    y_{t+1} : from y_t,  y - beta_t grad_y g_t(x_t, y)                                until
              lambda_t |grad_y g_t(x_t, y)| <= epsilon,  at most K times
    z_{t+1} : from z_t,  z - (beta_t / lambda_t) grad_y (f_t + lambda_t g_t)(x_t, z)  until
              |grad_y (f_t + lambda_t g_t)(x_t, z)| <= epsilon,  at most K times
    h_t     = grad_x f_t(x_t, z_{t+1}) + lambda_t (grad_x g_t(x_t, z_{t+1}) - grad_x g_t(x_t, y_{t+1}))
    x_{t+1} = projection on X of  x_t - alpha_t h_t

h_t is the gradient of min_z (f_t + lambda_t g_t) - lambda_t min_y g_t, and lambda_t (y - z) what v
with H v = grad_y f is elsewhere. Against the hypergradient it is wrong by O(1 / lambda_t) and by
O(epsilon): there is no product with H or J, and the price is a bias that only a large lambda_t
takes away. The step of z is divided by lambda_t, so that one beta_t suits both followers; the
tolerance of y is too, because its error reaches h_t multiplied. A set Y needs no faces here.

| symbol | name | symbol | name |
|---|---|---|---|
| x_t, y_t, z_t | `outer_var`, `inner_var`, `tilted_var` | lambda, tau | `penalty`, `growth` |
| alpha_t, beta_t | `outer_step_size`, `inner_step_size` | epsilon, K | `tolerance`, `max_inner_steps` |
"""  # noqa: E501

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int

from .._support import trees
from .._support.checks import Count, NonNegative, Positive
from .._support.trees import PyTree
from ..hypergradient import Estimate, Remedy
from ..hypergradient.base import Pair
from .arguments import AdaptiveSize, LeaderSize
from .base import Algorithm, State
from .descent import Follower, settled
from .record import Move


class F2OBOState(State):
    """The triple (x_t, y_t, z_t)."""

    tilted_var: PyTree
    """z_t, the follower that also descends the leader's loss."""


class F2OBO(Algorithm):
    """Fully first-order online bilevel optimisation: two followers in place of a linear system.

    **Arguments:**

    - `problem`: with a follower.
    - `outer_step_size`, `inner_step_size`: a number or a schedule t -> number; t counts from 1. The
      steps of z are stable below 2 / |grad^2_yy (g + f / lambda_t)|.
    - `penalty`, `growth`: lambda and tau of lambda_t = lambda t^tau; `growth=0` keeps it constant.
      Beyond some 10^4 in single precision the difference of two gradients of g is lost to rounding.
    - `tolerance`: epsilon, the error that the followers may leave in h_t.
    - `max_inner_steps`: K, the largest number of steps of each follower.

    `info.solver_residual` is |grad_y (f + lambda_t g)| / |grad_y f| at z, with epsilon in place of
    a smaller |grad_y f|: how far z is from done. Where it stays above 1, `max_inner_steps` are too
    few for this lambda_t, and what the followers have left reaches h_t lambda_t-fold.

    >>> import jax.numpy as jnp
    >>> import obax
    >>> problem = obax.Problem(
    ...     outer=lambda x, y, round: 0.5 * (y - round) ** 2,
    ...     inner=lambda x, y, round: 0.5 * (y - x) ** 2,
    ... )
    >>> algorithm = obax.F2OBO(problem, 0.5, 0.5, penalty=9.0, tolerance=0.1)
    >>> state = algorithm.init(0.0, 0.0, jnp.zeros(()))
    >>> for target in (1.0, 1.0, 1.0):
    ...     state, info = algorithm.step(state, jnp.asarray(target))
    ...     print(f"{state.outer_var:.4f} {state.inner_var:.4f} {info.gradients} {info.hvps}")
    0.4105 0.0000 12 0
    0.7025 0.4041 24 0
    0.8565 0.6979 24 0
    """

    outer_step_size: LeaderSize = None
    inner_step_size: AdaptiveSize = None
    penalty: Positive = 10.0
    growth: NonNegative = 0.5
    tolerance: Positive = 1e-2
    max_inner_steps: Count = 100

    @property
    def remedy(self) -> Remedy:
        return Remedy(
            "the follower z, which minimises f + lambda_t g, was left with",
            "more max_inner_steps, an inner_step_size that suits the curvature of g + f / lambda_t "
            "(steps converge below 2 over it), or a smaller penalty or growth",
        )

    def multiplier(self, t: Int[Array, ""]) -> Array:
        """Return lambda_t."""
        penalty = jnp.asarray(self.penalty)
        growth = jnp.asarray(self.growth, penalty.dtype)
        return penalty * t.astype(penalty.dtype) ** growth

    def remember(self, start: State) -> F2OBOState:
        return F2OBOState(**vars(start), tilted_var=start.inner_var)

    def update(self, state: F2OBOState, round: PyTree) -> Move:
        problem, x, weight = self.problem, state.outer_var, self.multiplier(state.t)
        start = self.start(state)
        slope = lambda y, buffers: problem.inner_slope(x, y, round, buffers)  # noqa: E731
        follower, steps, _ = self._settled(state, start, slope)
        y, buffers = follower.inner_var, follower.buffers
        inner = Pair(problem, x, y, buffers).inner_of(round)

        def tilted(z: PyTree, unused: PyTree) -> tuple[PyTree, PyTree]:
            _, of_leader = Pair(problem, x, z, buffers).outer_gradient(round)
            return trees.scaled_add(jax.grad(inner, 1)(x, z), 1 / weight, of_leader), unused

        if not problem.inner_start:
            start = follower._replace(inner_var=state.tilted_var)
        other, more, left = self._settled(state, start, tilted)
        z = other.inner_var
        gradient_x, gradient_y = Pair(problem, x, z, buffers).outer_gradient(round)
        pull = trees.difference(jax.grad(inner)(x, z), jax.grad(inner)(x, y))
        h = trees.scaled_add(gradient_x, weight, pull)
        size = jnp.maximum(trees.norm(gradient_y), jnp.asarray(self.tolerance, left.dtype))
        estimate = Estimate(h, left * weight.astype(left.dtype) / size)
        # Gradients of g at y_t and after each step, of f and g likewise for z, and twice of g for
        # the leader; the estimate counts that of f.
        gradients = (1 + steps) + 2 * (1 + more) + 2
        return Move(self.lead(state, h), follower, estimate, gradients, memory={"tilted_var": z})

    def _settled(
        self, state: State, start: Follower, slope: Callable[..., tuple[PyTree, PyTree]]
    ) -> tuple[Follower, Array, Array]:
        """Return a follower within the tolerance for this round's lambda_t."""
        return settled(
            slope,
            start,
            descent=self.inner,
            t=state.t,
            size=self.problem.inner_domain.gradient_norm,
            tolerance=self.tolerance / self.multiplier(state.t),
            most=self.max_inner_steps,
        )
