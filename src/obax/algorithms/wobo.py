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

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from .._support import sharding, trees
from .._support.checks import Count, Positive
from .._support.trees import PyTree
from ..hypergradient import CG, Estimate, Hypergradient
from ..hypergradient.average import average_of_terms
from ..round_buffer import RingBuffer, Terms, expand, with_current, written
from .arguments import AnyWindow, StepCount, StepSize, any_estimator
from .base import Algorithm, State
from .descent import Follower, Steps
from .record import Leader, Move


class WOBOState(State):
    """The pair (x_t, y_t) and the last w - 1 rounds."""

    followers: PyTree
    """The follower of each past round, and what the estimator carries for it."""


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

    outer_step_size: StepSize
    inner_step_size: StepSize
    inner_steps: StepCount = 1
    window: AnyWindow = eqx.field(default=None)
    tolerance: Positive = 1e-2
    max_outer_steps: Count = 10
    hypergradient: Hypergradient = any_estimator(CG())

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
        return WOBOState(**vars(start) | {"past": past}, followers=followers)

    def update(self, state: WOBOState, round: PyTree) -> Move:
        current = self.start(state).inner_var, state.carry
        past = RingBuffer.like(round, 0) if state.past is None else state.past
        terms = self.window.terms(past, round, state.t)
        followers = jax.tree.map(lambda leaf: jnp.asarray(leaf)[None], current)
        if state.past is not None:
            followers = with_current(state.followers, current)
        end = jax.lax.while_loop(
            lambda now: (now.looks < self.max_outer_steps) & ~now.near,
            lambda now: self._again(state, terms._replace(present=now.present), now),
            _Now.start(state, terms, followers),
        )
        y, carry = sharding.entry(end.followers, self.window.size - 1)
        looks = end.looks * terms.number
        counts = end.hvps, end.cross_products, looks
        estimate = Estimate(end.direction, end.residual, carry, *counts)
        gradients = looks * Steps(self.inner_steps).at(state.t)
        leader, follower = Leader(end.outer_var), Follower(y, (), end.buffers)
        memory = {"followers": _of_past(end.followers, terms, like=state.followers)}
        move = Move(leader, follower, estimate, gradients, memory=memory)
        return move.with_terms(terms, terms._replace(present=end.present))

    def _again(self, state: WOBOState, terms: Terms, now: "_Now") -> "_Now":
        """Return what follows a look: all followers after their steps at this x, and x after its
        own step unless it is near."""
        x, t, steps = now.outer_var, state.t, Steps(self.inner_steps).at(state.t)
        here = dataclasses.replace(state, outer_var=x)

        def term(round: PyTree, start: tuple[PyTree, PyTree]) -> tuple[Estimate, PyTree]:
            own = dataclasses.replace(here, inner_var=start[0], carry=start[1])
            follower = self.learn(x, self.start(own), round, t, steps)
            estimate = self.estimate(self.hypergradient, own, follower, round)
            kept = follower.inner_var, estimate.carry
            return estimate._replace(carry=kept), follower.buffers

        h, buffers, left = average_of_terms(self.window, term, terms, now.followers)
        present = sharding.shard_terms(left.present)
        # What was computed from a slot that does not count may be anything.
        moved = lambda new, old: jnp.where(expand(present, old), new, old)  # noqa: E731
        size = self.problem.domain.gradient_norm(x, h.value)
        near = size <= jnp.asarray(self.tolerance, size.dtype) / self.window.size
        return _Now(
            now.looks + 1,
            near,
            trees.select(near, x, self.lead(here, h.value).outer_var),
            left.present,
            jax.tree.map(moved, h.carry, now.followers),
            buffers,
            h.value,
            jnp.asarray(h.residual, now.residual.dtype),
            now.hvps + h.hvps,
            now.cross_products + h.cross_products,
        )


class _Now(NamedTuple):
    """The state of the loop within a round; `direction` and `residual` are of the last look."""

    looks: Int[Array, ""]
    near: Bool[Array, ""]
    outer_var: PyTree
    present: Bool[Array, " w"]
    followers: PyTree
    buffers: PyTree
    direction: PyTree
    residual: Float[Array, ""]
    hvps: Int[Array, ""]
    cross_products: Int[Array, ""]

    @classmethod
    def start(cls, state: State, terms: Terms, followers: PyTree) -> "_Now":
        """Return the state of the loop before the first look."""
        x, zero = state.outer_var, jnp.zeros((), jnp.int32)
        still = jax.tree.map(jnp.zeros_like, x)
        begun = zero, jnp.asarray(False), x, terms.present, followers, state.buffers
        return cls(*begun, still, trees.norm(still), zero, zero)


def _of_past(stacked: PyTree, terms: Terms, like: PyTree) -> PyTree:
    """Return what is kept for the slots of the buffer: that of the current round, which is last,
    takes the place of the oldest. `like` is what the round began with."""
    if like is None:
        return None
    kept = jax.tree.map(lambda leaf, old: leaf[: len(old)], stacked, like)
    newest = sharding.entry(stacked, len(terms.present) - 1)
    return written(kept, terms.slot, newest, jnp.asarray(True))
