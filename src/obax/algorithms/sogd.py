"""SOGD, simultaneous online gradient descent with momentum in all three of its directions.

Nazari, Hou, Tarzanagh, Shen, Michailidis: *Stochastic Regret Guarantees for Online Zeroth- and
First-Order Bilevel Optimization*, NeurIPS 2025. Here v solves grad_y f + H v = 0, so that the
hypergradient is grad_x f + J v, with H = grad^2_yy g_t and J = grad^2_xy g_t. At z = (x, y, v),

    D^y_t = grad_y g_t,    D^v_t = grad_y f_t + H v,    D^x_t = grad_x f_t + J v,
    d_t   = D_t(z_t) + (1 - c_t) (d_{t-1} - D_t(z_{t-1}))     for each of y, v and x,

with the functions of *this* round at the present and at the previous point, and d_1 = D_1(z_1).
All three move at once:

    y_{t+1} = y_t - beta_t d^y_t
    v_{t+1} = projection of  v_t - delta_t d^v_t  on the ball of radius p
    x_{t+1} = projection on X of  x_t - alpha_t d^x_t
    alpha_t = a_x (c + t)^(-1/3),  beta_t = a_y alpha_t,  delta_t = a_v alpha_t,
    c_t     = b alpha_t^2, at most 1                          (a_x = 1 in the paper)

| symbol | name | symbol | name |
|---|---|---|---|
| x_t, y_t, v_t | `outer_var`, `inner_var`, `dual_var` | c | `offset` |
| a_y, a_v | `inner_ratio`, `dual_ratio` | b of y, v, x | `inner_momentum`, `dual_`, `outer_` |
| a_x | `scale` | p, X | `radius`, `problem.domain` |
"""

from typing import ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Int

from .._support import trees
from .._support.checks import Positive
from .._support.trees import PyTree
from ..domain import Ball
from ..hypergradient import Estimate, Remedy
from ..hypergradient.base import Pair, relative
from .base import Algorithm, State
from .descent import Follower
from .record import Move


class Point(NamedTuple):
    """A point z = (x, y, v), or a direction in that space."""

    outer_var: PyTree
    inner_var: PyTree
    dual_var: PyTree


class SOGDState(State):
    """The points z_t and z_{t-1}, the momentum d_{t-1}, and the random state `key` of ZO-SOGD."""

    dual_var: PyTree
    previous: Point
    momentum: Point
    key: PyTree


class SOGD(Algorithm):
    """Simultaneous online gradient descent on x, y and v, with recursive momentum.

    **Arguments:**

    - `problem`: with a follower that goes on from round to round (no `inner_start`).
    - `offset`, `scale`: c and a_x of alpha_t = a_x (c + t)^(-1/3), > 0. To begin near a step size
      s, take c = s^-3, or any c that is not small beside the horizon and a_x = s c^(1/3).
    - `inner_ratio`, `dual_ratio`: beta_t and delta_t in units of alpha_t.
    - `inner_momentum`, `dual_momentum`, `outer_momentum`: c_t in units of alpha_t^2. Where it
      reaches 1 there is no momentum.
    - `radius`: p, of the ball that v is kept in; it should hold |H^-1 grad_y f|.

    >>> import jax.numpy as jnp
    >>> import obax
    >>> problem = obax.Problem(
    ...     outer=lambda x, y, round: 0.5 * (y - round) ** 2,
    ...     inner=lambda x, y, round: 0.5 * (y - x) ** 2,
    ... )
    >>> algorithm = obax.SOGD(problem, offset=7.0)
    >>> state = algorithm.init(0.0, 0.0, jnp.zeros(()))
    >>> for target in (1.0, 1.0, 1.0):
    ...     state, info = algorithm.step(state, jnp.asarray(target))
    ...     print(f"{state.outer_var:.4f} {state.inner_var:.4f} {state.dual_var:.4f}")
    0.0000 0.0000 0.5000
    0.2404 0.0000 0.7404
    0.5840 0.1116 0.8609
    """

    followers: ClassVar[tuple[str, ...]] = ("free",)

    offset: Positive = 1.0
    inner_ratio: Positive = 1.0
    dual_ratio: Positive = 1.0
    scale: Positive = eqx.field(default=1.0, kw_only=True)
    inner_momentum: Positive = eqx.field(default=1.0, kw_only=True)
    dual_momentum: Positive = eqx.field(default=1.0, kw_only=True)
    outer_momentum: Positive = eqx.field(default=1.0, kw_only=True)
    radius: Positive = eqx.field(default=100.0, kw_only=True)

    def __check_init__(self) -> None:
        if self.problem.inner_start is not None:
            raise ValueError(
                f"problem.inner_start must be None for {type(self).__name__}, whose momentum "
                f"follows one y from round to round; use obax.OAGD."
            )

    @property
    def remedy(self) -> Remedy:
        return Remedy(
            "v, which takes one step a round towards H v = -grad_y f, was left with",
            "a larger dual_ratio where it stays about 1, a smaller one or a smaller scale where it "
            "grows (delta_t must be below 2 / |H|), or a radius that holds |H^-1 grad_y f|",
        )

    def outer_step_size(self, t: Int[Array, ""]) -> Array:
        """Return alpha_t."""
        offset = jnp.asarray(self.offset)
        decayed = (offset + t.astype(offset.dtype)) ** (-1 / 3)
        return jnp.asarray(self.scale, decayed.dtype) * decayed

    def remember(self, start: State) -> SOGDState:
        v = jax.tree.map(jnp.zeros_like, start.inner_var)
        here = Point(start.outer_var, start.inner_var, v)
        still = jax.tree.map(jnp.zeros_like, here)
        key = self.first_key()
        return SOGDState(**vars(start), dual_var=v, previous=here, momentum=still, key=key)

    def update(self, state: SOGDState, round: PyTree) -> Move:
        alpha = self.outer_step_size(state.t)
        here = Point(state.outer_var, state.inner_var, state.dual_var)
        key, drawn = self.draw(state.key, here)
        now, slope_y, buffers = self.directions(here, round, state.buffers, drawn)
        then, _, _ = self.directions(state.previous, round, state.buffers, drawn)
        momentum = self._momentum(state.t, alpha, now, then, state.momentum)
        y = trees.scaled_add(here.inner_var, -alpha * self.inner_ratio, momentum.inner_var)
        v = trees.scaled_add(here.dual_var, -alpha * self.dual_ratio, momentum.dual_var)
        v = Ball(self.radius).project(v)
        # In the first round there is no previous point.
        gradients, products, evaluations = (jnp.minimum(state.t, 2) * n for n in self.counts())
        residual, direction = relative(now.dual_var, slope_y), momentum.outer_var
        estimate = Estimate(direction, residual, None, products, products, gradients)
        leader, follower = self.lead(state, direction), Follower(y, (), buffers)
        memory = {"dual_var": v, "previous": here, "momentum": momentum, "key": key}
        return Move(leader, follower, estimate, evaluations=evaluations, memory=memory)

    def _momentum(
        self, t: Int[Array, ""], alpha: Array, now: Point, then: Point, before: Point
    ) -> Point:
        """Return d_t for each of x, y and v."""
        units = Point(self.outer_momentum, self.inner_momentum, self.dual_momentum)

        def recursion(unit: Array, now: PyTree, then: PyTree, before: PyTree) -> PyTree:
            kept = jnp.where(t == 1, 0, 1 - jnp.minimum(unit * alpha**2, 1))
            return trees.scaled_add(now, kept, trees.difference(before, then))

        return Point(*map(recursion, units, now, then, before))

    # Overridden by ZO-SOGD.

    def first_key(self) -> PyTree:
        """Return the random state before the first round."""
        return None

    def draw(self, key: PyTree, point: Point) -> tuple[PyTree, PyTree]:
        """Return the next random state, and the random numbers of this round, which are the same at
        both points."""
        return key, None

    def counts(self) -> tuple[int, int, int]:
        """Return how many gradients, products of either kind and function values one call of
        `directions` takes."""
        return 2, 1, 0

    def directions(
        self, point: Point, round: PyTree, buffers: PyTree, drawn: PyTree
    ) -> tuple[Point, PyTree, PyTree]:
        """Return (D^x, D^y, D^v) of this round at a point, grad_y f there, and the buffers after
        it."""
        x, y, v = point

        slope = lambda x, y: self.problem.inner_slope(x, y, round, buffers)  # noqa: E731
        slope_g, pull, after = jax.vjp(slope, x, y, has_aux=True)
        cross, curved = pull(v)
        gradient_x, gradient_y = Pair(self.problem, x, y, after).outer_gradient(round)
        add = lambda a, b: jax.tree.map(jnp.add, a, b)  # noqa: E731
        return Point(add(gradient_x, cross), slope_g, add(gradient_y, curved)), gradient_y, after
