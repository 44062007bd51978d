"""WOBO, window-averaged online bilevel optimisation.

Jia, Wang, Chen: *Achieving Better Local Regret Bound for Online Non-Convex Bilevel Optimization*,
arXiv 2602.06457 (2026), its method for the window-averaged local regret (its Algorithms 1 and 2 are
`AOBO` and `FSOBO`). The rule below is our reading of its abstract (regret O(T / W^2), or O(T / W)
with one loop and O(W T) gradients) and of the single-level method of Hazan, Singh and Zhang (*Efficient
Regret Minimization in Non-Convex Games*, ICML 2017) whose rates these are. In round t, every round
of the window has a follower y^i of its own, which goes on from where round t - 1 left it; that of
round t starts from y_t. From x = x_t,

    y^i : K steps of  z - beta_t grad_z g_{t-i}(x, z),    i < w
    h   = (1/W) sum_{i<w} u_i (grad_x f_{t-i} - J_{t-i} v^i)(x, y^i),    H_{t-i} v^i = grad_y f_{t-i}
    x   = projection on X of  x - alpha_t h,    unless |h| <= epsilon / w

again and again until |h| <= epsilon / w, at most N times. x_{t+1} is the last x and y_{t+1} = y^0.
All terms are at the current x and have their own y*: SOBOW and OBBO remember them as they were,
OAGD evaluates them at one y. N = 1 is the single loop: then, if followers start anew in every round
(`problem.inner_start`), this is OAGD with `follower="each"`, and with w = 1 OAGD itself.

| symbol | name | symbol | name |
|---|---|---|---|
| x_t, y_t | `outer_var`, `inner_var` | w, u_i | `window` |
| alpha_t, beta_t | `outer_step_size`, `inner_step_size` | K, N | `inner_steps`, `max_outer_steps` |
| y^i, v^i | `state.followers` | epsilon | `tolerance` |
"""  # noqa: E501

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from .._support import spread, trees, validation
from .._support.trees import PyTree
from ..hypergradient import CG, Estimate, Hypergradient
from ..past import RingBuffer, Terms
from ..window import Window
from .arguments import any_estimator, any_window, checked, number_of_steps, positive, step_size
from .base import Algorithm, State
from .descent import Count, Follower, Number, Steps
from .record import Leader, Move
from .wobo_window import mean_of_own, of_terms, past_of


class WOBOState(State):
    """The pair (x_t, y_t), the last w - 1 rounds, and for each its follower and what the estimator
    carries."""

    window: RingBuffer | None
    followers: PyTree


class WOBO(Algorithm):
    """Window-averaged online bilevel optimisation: as many steps of the leader as a tolerance asks
    for, along the mean hypergradient of the last w rounds at the current x.

    **Arguments:**

    - `problem`: with a follower.
    - `outer_step_size`, `inner_step_size`: a number or a schedule t -> number; t counts from 1.
    - `inner_steps`: K, an integer or a schedule, of every follower for every step of the leader.
    - `window`: its size w and weights; by default w = 1.
    - `tolerance`: epsilon; in a domain, of the length of a projected step of size 1.
    - `max_outer_steps`: N. A round costs up to N w hypergradients.
    - `hypergradient`: how v is found; by default CG.

    What `info` says of the follower is at x_t, though it answers to the last x of the round.

    >>> import jax.numpy as jnp
    >>> import obax
    >>> problem = obax.Problem(
    ...     outer=lambda x, y, round: 0.5 * (y - round) ** 2,
    ...     inner=lambda x, y, round: 0.5 * (y - x) ** 2,
    ... )
    >>> algorithm = obax.WOBO(problem, 0.5, 0.5, 2, obax.Window(2, normalise="seen"), tolerance=0.2)
    >>> state = algorithm.init(0.0, 0.0, jnp.zeros(()))
    >>> for target in (1.0, 1.0, 1.0):
    ...     state, info = algorithm.step(state, jnp.asarray(target))
    ...     print(f"{state.outer_var:.4f} {state.inner_var:.4f} {info.gradients}")
    1.0127 0.9836 15
    1.0127 1.0054 6
    1.0127 1.0109 6
    """

    outer_step_size: Number = step_size("outer")
    inner_step_size: Number = step_size("inner")
    inner_steps: Count = number_of_steps()
    window: Window = any_window()
    tolerance: float | Array = positive("tolerance", 1e-2)
    max_outer_steps: int = checked(validation.count, "max_outer_steps", 10, static=True)
    hypergradient: Hypergradient = any_estimator(CG(), "WOBO")

    def __check_init__(self) -> None:
        if self.window.follower not in ("current", "each") or self.window.curvature != "own":
            raise ValueError(
                f"window.follower and window.curvature must be left at 'current' and 'own' for "
                f"WOBO, which gives every round of the window a follower and a curvature of its "
                f"own, but are {self.window.follower!r} and {self.window.curvature!r}."
            )
        if self.window.replay is not None:
            raise ValueError(
                "window.replay must be left out for WOBO, whose followers go on with the rounds of "
                f"the window, but is {self.window.replay!r}; use obax.OAGD."
            )

    def remember(self, start: State) -> WOBOState:
        past = self.window.past(start.round_spec.example())
        each = (start.inner_var, start.carry)
        followers = None if past is None else self.window.for_each_past(each)
        return WOBOState(**vars(start), window=past, followers=followers)

    def update(self, state: WOBOState, round: PyTree) -> Move:
        before, t = self.start(state), state.t
        past = RingBuffer.like(round, 0) if state.window is None else state.window
        terms = self.window.terms(past, round, t)
        followers = of_terms(state.followers, (before.inner_var, state.carry))
        end = jax.lax.while_loop(
            lambda now: (now.looks < self.max_outer_steps) & ~now.near,
            lambda now: self._again(state, terms.only(now.there), now),
            _Now.start(state, terms, followers),
        )
        y, carry = spread.pick(end.followers, self.window.size - 1)
        left = terms.only(end.there)
        memory = {"followers": past_of(end.followers, terms, like=state.followers)}
        gradients = end.looks * terms.number * (1 + Steps(self.inner_steps).at(t))
        estimate = Estimate(end.direction, end.residual, carry, end.hvps, end.cross_products)
        leader, after = Leader(end.outer_var), Follower(y, (), end.buffers)
        move = Move(leader, before, after, estimate, gradients, memory=memory, terms=left.number)
        return move._replace(refused={"window": terms.lost(left, past)})

    def _again(self, state: WOBOState, terms: Terms, now: "_Now") -> "_Now":
        """All followers after their steps at this x, and x after its own unless it is near."""
        x, t, steps = now.outer_var, state.t, Steps(self.inner_steps).at(state.t)
        here = dataclasses.replace(state, outer_var=x)

        def term(round: PyTree, follower: tuple[PyTree, PyTree]) -> tuple[Estimate, Follower]:
            start = self.start(dataclasses.replace(here, inner_var=follower[0]))
            after = self.learn(x, start, round, t, steps)
            own = dataclasses.replace(here, carry=follower[1])
            return self.estimate(self.hypergradient, own, after, round), after

        h, followers, buffers, left = mean_of_own(self.window, term, terms, now.followers)
        size = self.problem.domain.gradient_norm(x, h.value)
        near = size <= jnp.asarray(self.tolerance, size.dtype) / self.window.size
        return _Now(
            now.looks + 1,
            near,
            trees.select(near, x, self.lead(here, h.value).outer_var),
            left.there,
            followers,
            buffers,
            h.value,
            jnp.asarray(h.residual, now.residual.dtype),
            now.hvps + h.hvps,
            now.cross_products + h.cross_products,
        )


class _Now(NamedTuple):
    """What moves within a round; `direction` and `residual` are the last."""

    looks: Int[Array, ""]
    near: Bool[Array, ""]
    outer_var: PyTree
    there: Bool[Array, " w"]
    followers: PyTree
    buffers: PyTree
    direction: PyTree
    residual: Float[Array, ""]
    hvps: Int[Array, ""]
    cross_products: Int[Array, ""]

    @classmethod
    def start(cls, state: State, terms: Terms, followers: PyTree) -> "_Now":
        """Before the first look."""
        x, zero = state.outer_var, jnp.zeros((), jnp.int32)
        still = jax.tree.map(jnp.zeros_like, x)
        begun = zero, jnp.asarray(False), x, terms.there, followers, state.buffers
        return cls(*begun, still, trees.norm(still), zero, zero)
