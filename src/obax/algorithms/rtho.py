"""RTHO, real-time hyperparameter optimisation by forward hypergradients.

Franceschi, Donini, Frasconi, Pontil: *Forward and Reverse Gradient-Based Hyperparameter
Optimization*, ICML 2017. There the leader moves within one training run; here a round of the stream
is a step of that run. How the follower depends on x through all rounds so far is carried along,
S_t = dy_t/dx (and that of buffers, if the losses keep any). In round t, in this order,

    h_t     = grad_x f_t(x_t, y_t) + S_t' grad_y f_t(x_t, y_t)
    y_{t+1} = Phi_t(x_t, y_t),   S_{t+1} = gamma (d_x Phi_t + d_y Phi_t S_t)
    x_{t+1} = projection on X of  x_t - alpha_t h_t

The leader follows the gradient of the loss *suffered*, before the round is learned. Phi_t is either

    K_t steps  z - beta_t grad_z g_t(x_t, z)  from y_t,  S -> (I - beta H) S - beta d_x grad_z g,
    or  argmin_u G(x_t, u, y_t)  with  G = g_t(x, u) + D(x, u, y)  and  D = |u - y|^2 / (2 beta_t),
        S -> -(grad^2_uu G)^{-1} (d_x grad_u G + d_y grad_u G S).

With x held still and gamma = 1, h_t is the derivative of the loss of round t in x, exactly. S has a
number for each entry of x and each of y, and a step costs a product with H and one with the cross
derivative for each entry of x: a method for few hyperparameters.

| symbol | name | symbol | name |
|---|---|---|---|
| x_t, y_t | `outer_var`, `inner_var` | S_t | `state.sensitivity.inner_var` |
| alpha_t, beta_t | `outer_step_size`, `inner_step_size` | K_t | `inner_steps` |
| D | `proximal` | gamma | 1 - 1 / `horizon` |
"""

import dataclasses
from collections.abc import Callable
from typing import Annotated

import equinox as eqx
import jax
from jaxtyping import Array

from .._support import trees
from .._support.checks import function_of, within
from .._support.trees import PyTree
from ..hypergradient import Estimate, Remedy
from ..steps import CurvatureStep
from .arguments import StepCount
from .base import State, TwoLevels
from .descent import Follower, Steps
from .forward import Learned, at_rest, descended, directions, faded, moving, nearest, pulled_back
from .record import Move

Tie = Annotated[Callable[..., Array], function_of("(x, y, start, round) -> scalar")]
Horizon = Annotated[float | Array, within("a number of rounds > 1", lambda value: value > 1)]


class RTHOState(State):
    """The pair (x_t, y_t), and how the follower moves with x."""

    sensitivity: Follower
    """The derivative of y, and of what its optimiser and the losses keep, in each entry of x (the
    first axis)."""


class RTHO(TwoLevels):
    """Forward hypergradients of the loss suffered.

    **Arguments:**

    - `problem`: with a follower, and a leader of few entries.
    - `outer_step_size`, `inner_step_size`, `inner_steps`, `outer_optimiser`, `inner_optimiser`: as
      in `obax.OAGD`. S goes through what an inner optimiser keeps, too; for `optax.adam` give an
      `eps_root`, without which its derivative at a zero gradient is not finite.
    - `proximal`: `True` for an exact proximal step in place of gradient steps, `inner_step_size`
      being beta; or D itself, a function `(x, y, start, round) -> scalar` (and `buffers`, where the
      problem has them). The Hessian is formed: for a follower of some thousand entries at most. A
      round in which no minimum is found is rejected.
    - `horizon`: S fades by 1 - 1 / horizon in a round, because x moves; without it, not at all.

    >>> import jax.numpy as jnp
    >>> import obax
    >>> problem = obax.Problem(
    ...     outer=lambda x, y, round: 0.5 * (y - round) ** 2,
    ...     inner=lambda x, y, round: 0.5 * (y - x) ** 2,
    ... )
    >>> algorithm = obax.RTHO(problem, outer_step_size=0.5, inner_step_size=0.5)
    >>> state = algorithm.init(0.0, 0.0, jnp.zeros(()))
    >>> for target in (1.0, 1.0, 1.0):
    ...     state, info = algorithm.step(state, jnp.asarray(target))
    ...     S = state.sensitivity.inner_var[0]
    ...     print(f"{state.outer_var:.4f} {state.inner_var:.4f} {S:.4f}")
    0.0000 0.0000 0.5000
    0.2500 0.0000 0.7500
    0.6250 0.1250 0.8750
    """

    inner_steps: StepCount = 1
    proximal: Tie | bool = eqx.field(default=False, static=True, kw_only=True)
    horizon: Horizon | None = eqx.field(default=None, kw_only=True)

    @property
    def remedy(self) -> Remedy:
        # Gradient steps leave no residual.
        return Remedy(
            "the proximal step of the follower was left with",
            "a smaller inner_step_size, which ties y closer to y_t, or gradient steps: "
            "proximal=False",
        )

    def moves_level(self, level: str) -> bool:
        return level == "outer" or not callable(self.proximal)

    def check_levels(self) -> None:
        super().check_levels()
        if callable(self.proximal) and self.inner_step_size is not None:
            raise ValueError("inner_step_size must be left out: proximal says what ties y to y_t.")
        if self.proximal is True and self.inner_step_size is None:
            raise ValueError(
                "inner_step_size must be a number > 0 or a schedule with proximal=True: it says "
                "how closely y is tied to y_t."
            )
        if self.proximal and self.problem.constrains_follower:
            raise ValueError(
                "problem.inner_domain must be left out with proximal, whose step is that of a free "
                "follower; leave proximal out: gradient steps are projected."
            )
        once = isinstance(self.inner_steps, int) and self.inner_steps == 1
        if self.proximal and not (once and self.inner_optimiser is None):
            raise ValueError(
                "inner_steps and inner_optimiser must be left out: a proximal step is exact."
            )

    def remember(self, start: State) -> RTHOState:
        x, y = start.outer_var, start.inner_var
        if callable(self.proximal):
            behind = (start.buffers,) if self.problem.has_buffers else ()
            came = jax.eval_shape(self.proximal, x, y, y, start.round_spec.example(), *behind)
            trees.check_scalar_loss(came, "proximal")
        # A step size that adapts is a constant in a round: nothing is differentiated through it.
        optimiser = () if isinstance(self.inner.step_size, CurvatureStep) else start.inner_optimiser
        follower = Follower(y, optimiser, start.buffers)
        sensitivity = at_rest(x, follower, squared=bool(self.proximal))
        return RTHOState(**vars(start), sensitivity=sensitivity)

    def update(self, state: RTHOState, round: PyTree) -> Move:
        x, each = state.outer_var, directions(state.outer_var)
        start, S = self.start(state), self._sensitivity(state, each)
        suffered = lambda x, f: self.problem.outer_loss(x, f.inner_var, round, f.buffers)  # noqa: E731
        h = pulled_back(suffered, x, start, S)
        learned = self._learned(state, start, round, (each, S))
        S = learned.moved if self.horizon is None else faded(learned.moved, 1 - 1 / self.horizon)
        estimate = Estimate(h, learned.residual, None, learned.hvps, learned.cross_products)
        leader, memory = self.lead(state, h), {"sensitivity": S}
        return Move(leader, learned.follower, estimate, learned.gradients, memory=memory)

    def _sensitivity(self, state: RTHOState, each: PyTree) -> Follower:
        """Return S_t; where the problem says where y starts, the derivative of that start."""
        if self.problem.inner_start is None:
            return state.sensitivity
        start = lambda x: moving(self.start(dataclasses.replace(state, outer_var=x)))  # noqa: E731
        return jax.vmap(lambda dx: jax.jvp(start, (state.outer_var,), (dx,))[1])(each)

    def _learned(
        self, state: State, before: Follower, round: PyTree, along: tuple[PyTree, Follower]
    ) -> Learned:
        """Return the follower after Phi_t, and its derivative."""
        x, t = state.outer_var, state.t
        if not self.proximal:
            steps = Steps(self.inner_steps).at(t)
            learn = lambda x, start: self.learn(x, start, round, t, steps)  # noqa: E731
            return descended(learn, x, before, along, steps)

        def tie(x: PyTree, u: PyTree, y: PyTree, buffers: PyTree) -> Array:
            if callable(self.proximal):
                behind = (buffers,) if self.problem.has_buffers else ()
                return self.proximal(x, u, y, round, *behind)
            gap = trees.squared_norm(trees.difference(u, y))
            return (0.5 / self.inner.rate(t)).astype(gap.dtype) * gap

        def tied(x: PyTree, u: PyTree, y: PyTree, buffers: PyTree) -> tuple[Array, PyTree]:
            value, after = self.problem.inner_loss(x, u, round, buffers)
            return value + tie(x, u, y, buffers), after

        return nearest(tied, x, before, along)
