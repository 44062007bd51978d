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
from jaxtyping import Array, Bool, Int

from .._support import spread, trees, validation
from .._support.trees import PyTree
from ..hypergradient import CG, Estimate, Hypergradient
from ..window import RingBuffer, Window
from .arguments import any_estimator, any_window, checked, number_of_steps, positive, step_size
from .base import Algorithm, State
from .descent import Count, Follower, Number, Steps
from .record import Leader, Move


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

    def remember(self, start: State) -> WOBOState:
        past = self.window.past(start.round_spec.example())
        each = (start.inner_var, start.carry)
        followers = None if past is None else self.window.for_each_past(each)
        return WOBOState(**vars(start), window=past, followers=followers)

    def update(self, state: WOBOState, round: PyTree) -> Move:
        before, t, w = self.start(state), state.t, self.window.size
        rounds = _all(state.window, round)
        past = _by_slot(state.followers, state.followers)
        followers = _all(past, (before.inner_var, state.carry))
        end = jax.lax.while_loop(
            lambda now: (now.looks < self.max_outer_steps) & ~now.near,
            lambda now: self._look(state, rounds, now),
            _Now.start(state, followers),
        )
        y, carry = newest = spread.pick(end.followers, w - 1)
        leader, after = Leader(end.outer_var), Follower(y, (), end.buffers)
        past, yes = _by_slot(end.followers, state.followers), jnp.asarray(True)
        memory = {"followers": None if past is None else past.push(t, newest, yes).rounds}
        gradients = end.looks * jnp.minimum(t, w) * (1 + Steps(self.inner_steps).at(t))
        estimate = end.estimate._replace(carry=carry)
        return Move(leader, before, after, estimate, gradients, memory=memory)

    def _look(self, state: WOBOState, rounds: PyTree, now: "_Now") -> "_Now":
        """All followers after their steps at this x, and x after its own unless it is near."""
        x, window, t = now.outer_var, self.window, state.t
        here, steps = dataclasses.replace(state, outer_var=x), Steps(self.inner_steps).at(t)

        def term(round: PyTree, follower: tuple[PyTree, PyTree]) -> tuple[Estimate, Follower]:
            y, carry = follower
            start = self.start(dataclasses.replace(here, inner_var=y))
            after = self.learn(x, start, round, t, steps)
            y, buffers = after.inner_var, after.buffers
            return self.hypergradient.at(self.problem, x, y, round, buffers, carry), after

        found, after = window.map(term, rounds, now.followers)
        _, seen = window.shares(t)
        # What was computed from a slot that no round has filled may be anything.
        total = lambda counts: jnp.sum(jnp.where(seen, counts, 0), dtype=jnp.int32)  # noqa: E731
        h, so_far = window.mean(found.value, t), now.estimate
        residual = jnp.max(jnp.where(seen, found.residual, 0)).astype(so_far.residual.dtype)
        counts = (
            so_far.hvps + total(found.hvps),
            so_far.cross_products + total(found.cross_products),
        )
        size = self.problem.domain.gradient_norm(x, h)
        near = size <= jnp.asarray(self.tolerance, size.dtype) / window.size
        return _Now(
            now.looks + 1,
            near,
            trees.select(near, x, self.lead(here, h).outer_var),
            _where(seen, (after.inner_var, found.carry), now.followers),
            spread.pick(after.buffers, window.size - 1),
            Estimate(h, residual, None, *counts),
        )


class _Now(NamedTuple):
    """What moves within a round."""

    looks: Int[Array, ""]
    near: Bool[Array, ""]
    outer_var: PyTree
    followers: PyTree
    """Of all rounds of the window, and what the estimator carries for each."""
    buffers: PyTree
    estimate: Estimate

    @classmethod
    def start(cls, state: State, followers: PyTree) -> "_Now":
        """Before the first look."""
        x, zero = state.outer_var, jnp.zeros((), jnp.int32)
        still = jax.tree.map(jnp.zeros_like, x)
        nothing = Estimate(still, trees.norm(still), None, zero, zero)
        return cls(zero, jnp.asarray(False), x, followers, state.buffers, nothing)


def _by_slot(followers: PyTree, slots: PyTree) -> RingBuffer | None:
    """Followers of past rounds by slot, of which there are as many as in `slots`."""
    if slots is None:
        return None
    past = jax.tree.map(lambda leaf, like: leaf[: len(like)], followers, slots)
    return RingBuffer(past, spread.is_spread())


def _all(past: RingBuffer | None, current: PyTree) -> PyTree:
    """Of all rounds of the window, the current one last."""
    if past is None:
        return jax.tree.map(lambda leaf: jnp.asarray(leaf)[None], current)
    return past.with_current(current)


def _where(seen: Bool[Array, " w"], new: PyTree, old: PyTree) -> PyTree:
    def leaf_where(new: Array, old: Array) -> Array:
        return jnp.where(seen.reshape((-1,) + (1,) * (old.ndim - 1)), new, old)

    return jax.tree.map(leaf_where, new, old)
