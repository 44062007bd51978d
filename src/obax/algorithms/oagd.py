"""OAGD, online alternating gradient descent.

Tarzanagh, Nazari, Hou, Shen, Balzano: *Online Bilevel Optimization: Regret Analysis of Online
Alternating Gradient Methods*, AISTATS 2024, Algorithm 1. In round t:

    z^1 = y_t,  z^{k+1} = z^k - beta_t grad_z g_t(x_t, z^k)  for k = 1..K_t,  y_{t+1} = z^{K_t+1}
    x_{t+1} = projection on X of  x_t - alpha_t grad~F_{t,u}(x_t, y_{t+1})

with the time-averaged hypergradient (Definition 1)

    grad~F_{t,u}(x, y) = (1/W) sum_{i<w} u_i (grad_x f_{t-i} + M_{t-i} grad_y f_{t-i})(x, y),
    M_t H_t + J_t = 0,   H_t = grad^2_yy g_t,   J_t = grad^2_xy g_t.

| symbol | name | symbol | name |
|---|---|---|---|
| x_t, y_t | `outer_var`, `inner_var` | w, u_i | `window` |
| alpha_t, beta_t | `outer_step_size`, `inner_step_size` | K_t | `inner_steps` |
| M_t grad_y f | `hypergradient` | X | `problem.domain` |
"""

from collections.abc import Callable
from typing import ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int

from .._support import mending
from .._support.trees import PyTree
from ..hypergradient import CG, Estimate, Hypergradient, Unrolled
from ..hypergradient.average import (
    average_inner,
    average_of_gradients,
    average_of_terms,
    with_finite_inner,
)
from ..hypergradient.base import Inner, OuterGradient, inner_at, kept, outer_gradient
from ..hypergradient.unrolled import through_steps
from ..past import RingBuffer, Terms
from ..window import Window
from .arguments import any_estimator, any_window, leader_when, number_of_steps, optimiser, step_size
from .base import Algorithm, State
from .descent import Count, Follower, Number, Optimiser, Steps, When
from .oagd_window import check_unrolled, over_window
from .record import Leader, Move

Known = tuple[Array, Array] | None
"""Which terms are there, and how many: what a branch hands over of them."""
Pullback = Callable[[PyTree], tuple[PyTree, PyTree]] | None


class OAGDState(State):
    """The pair (x_t, y_t), the window's rounds, and what optimisers and estimator carry."""

    window: RingBuffer | None


class OAGD(Algorithm):
    """Online alternating gradient descent with a time-averaged hypergradient.

    **Arguments:**

    - `problem`: with a follower, or without one (then this is time-smoothed OGD).
    - `outer_step_size`, `inner_step_size`: a number or a schedule t -> number; t counts from 1.
    - `inner_steps`: K_t, an integer or a schedule. An `int` is compiled in; a schedule or an
      integer JAX array is traced and may change without recompiling.
    - `window`: how much of the past a round looks at, see `obax.Window`.
    - `hypergradient`: an estimator of `obax.hypergradient`.
    - `outer_optimiser`, `inner_optimiser`: an optax transformation in place of the plain step; its
      update is scaled by the step size, which is then 1 unless given.
    - `outer_when`: `t -> bool`, the rounds in which the leader moves, such as `lambda t: t >= 80`
      for a warm-up. In the others no hypergradient is computed and x and its optimiser stay as
      they are; the record shows a direction of norm zero. Without it, every round.

    >>> import jax.numpy as jnp
    >>> import obax
    >>> problem = obax.Problem(
    ...     outer=lambda x, y, round: 0.5 * (y - round) ** 2,
    ...     inner=lambda x, y, round: 0.5 * (y - x) ** 2,
    ... )
    >>> algorithm = obax.OAGD(problem, outer_step_size=0.5, inner_step_size=0.5, inner_steps=1)
    >>> algorithm
    OAGD(alpha=0.5, beta=0.5, CG())
    >>> state = algorithm.init(0.0, 0.0, jnp.zeros(()))
    >>> for target in (1.0, 1.0, 1.0):
    ...     state, info = algorithm.step(state, jnp.asarray(target))
    ...     print(f"{state.outer_var:.4f} {state.inner_var:.4f} {info.played_value:.4f}")
    0.5000 0.0000 0.5000
    0.8750 0.2500 0.5000
    1.0938 0.5625 0.2812
    """

    needs_follower: ClassVar[bool] = False

    outer_step_size: Number | None = step_size("outer", None)
    inner_step_size: Number | None = step_size("inner", None)
    inner_steps: Count = number_of_steps()
    window: Window = any_window()
    hypergradient: Hypergradient = any_estimator(CG())
    outer_optimiser: Optimiser | None = optimiser("outer")
    inner_optimiser: Optimiser | None = optimiser("inner")
    outer_when: When | None = leader_when()

    def __check_init__(self) -> None:
        self.outer.check("outer")
        if self.problem.inner is None:
            self.inner.check_left_out("inner", "has no follower (problem.inner is None)")
        else:
            self.inner.check("inner")
        if isinstance(self.hypergradient, Unrolled):
            check_unrolled(self.window, self.inner_steps)

    def check_sweep(self, field: str) -> None:
        if field == ".inner_steps" and isinstance(self.hypergradient, Unrolled):
            raise ValueError(
                "inner_steps must be the same in all algorithms with hypergradient=Unrolled(), "
                "whose loop must have a fixed length; sweep over it with several calls."
            )

    def remember(self, start: State) -> OAGDState:
        carry, past = start.carry, self.window.past(start.round_spec.example())
        if past is not None and self.window.curvature == "own":
            # One for each past round of the window.
            carry = self.window.for_each_past(carry)
        return OAGDState(**vars(start) | {"carry": carry}, window=past)

    def update(self, state: OAGDState, round: PyTree) -> Move:
        # Line 2: acquire f_t and g_t.
        terms = None
        if state.window is not None:
            terms = self.window.terms(state.window, round, state.t)
        # Line 3: start from y_t.
        start = self.start(state)

        def both() -> tuple[Follower, Estimate, Leader, Known]:
            # Lines 4-7 move the follower; with it comes the time-averaged hypergradient of line 8.
            follower, estimate, left = self._play(state, start, round, terms)
            # Line 8: the projected step of the leader.
            return follower, estimate, self.lead(state, estimate.value), _known(left)

        def follower_only() -> tuple[Follower, Estimate, Leader, Known]:
            follower, left = self._learn(state.outer_var, start, round, state.t, terms)
            nothing = jax.tree.map(
                lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), jax.eval_shape(both)[1]
            )
            still = Leader(state.outer_var, state.outer_optimiser)
            return follower, nothing._replace(carry=state.carry), still, _known(left)

        moves = None if self.outer_when is None else self.outer_when(state.t)
        follower, estimate, leader, known = (
            both() if moves is None else jax.lax.cond(moves, both, follower_only)
        )
        count = 1 if terms is None else terms.number
        move = Move(leader, start, follower, estimate, self._gradients(state.t, count, moves))
        if terms is None or known is None or state.window is None:
            return move
        left = terms._replace(there=known[0], number=known[1])
        return move._replace(terms=left.number, refused={"window": terms.lost(left, state.window)})

    def _play(
        self, state: OAGDState, start: Follower, round: PyTree, terms: Terms | None
    ) -> tuple[Follower, Estimate, Terms | None]:
        """The follower after the round, the time-averaged hypergradient at it, and the terms that
        it is of: those that are finite."""
        problem, window, t, x = self.problem, self.window, state.t, state.outer_var
        count = 1 if terms is None else terms.number

        def solved(
            inner: Inner, y: PyTree, pull: Pullback, gradient: OuterGradient, carry: PyTree
        ) -> Estimate:
            """grad_x f + M grad_y f with the curvature of `inner`."""
            if problem.inner is None:
                zero = jnp.zeros((), jnp.int32)
                return Estimate(gradient[0], jnp.zeros(()), carry, zero, zero)
            if pull is not None:
                return through_steps(pull, gradient, carry, self._inner_gradients(t, count))
            return self.hypergradient(inner, x, y, gradient, carry, **kept(problem))

        def term(follower: Follower, pull: Pullback, round: PyTree, carry: PyTree) -> Estimate:
            y, buffers = follower.inner_var, follower.buffers
            gradient = outer_gradient(problem, x, y, round, buffers)
            return solved(inner_at(problem, round, buffers), y, pull, gradient, carry)

        if terms is not None and window.follower == "each":

            def adapted_term(round: PyTree, carry: PyTree) -> tuple[Estimate, Follower]:
                follower, pull, _ = self._follow(x, start, round, t)
                return term(follower, pull, round, carry), follower

            estimate, follower, fine = average_of_terms(window, adapted_term, terms, state.carry)
            return follower, estimate, fine

        follower, pull, left = self._follow(x, start, round, t, terms)
        if left is None:
            return follower, term(follower, pull, round, state.carry), None
        if window.curvature == "own" and problem.inner is not None:
            own_term = lambda round, carry: (term(follower, pull, round, carry), None)  # noqa: E731
            estimate, _, left = average_of_terms(window, own_term, left, state.carry)
            return follower, estimate, left
        y, buffers = follower.inner_var, follower.buffers
        of_window = window.curvature == "window" and problem.inner is not None

        def one_system(left: Terms) -> tuple[Estimate, Array, Array]:
            gradient, left = average_of_gradients(problem, window, x, y, left, buffers)
            inner = inner_at(problem, round, buffers)
            if of_window:
                inner = average_inner(problem, window, left, buffers)
            return solved(inner, y, pull, gradient, state.carry), left.there, left.number

        found = one_system(left)
        if of_window and window.follower == "current":
            # The follower has not looked at the inner losses of the past.
            known = lambda: with_finite_inner(problem, window, x, y, left.afresh(), buffers)  # noqa: E731
            found = mending.unless_finite(found, lambda: one_system(known()))
        estimate, there, number = found
        return follower, estimate, left._replace(there=there, number=number)

    def _follow(
        self,
        x: PyTree,
        start: Follower,
        round: PyTree,
        t: Int[Array, ""],
        terms: Terms | None = None,
    ) -> tuple[Follower, Pullback, Terms | None]:
        """Lines 4-7: the follower after the round, for `Unrolled` the pullback to (x, y_t), and the
        terms that it found finite."""
        problem, estimator = self.problem, self.hypergradient
        if problem.inner is None or not isinstance(estimator, Unrolled):
            follower, left = self._learn(x, start, round, t, terms)
            return follower, None, left

        def result(x: PyTree, y: PyTree) -> tuple[PyTree, tuple[Follower, Terms | None]]:
            if problem.inner_start is not None:
                # The start is a function of x too: same value, with its derivative.
                begin = problem.inner_start(x)
                y = jax.tree.map(lambda a, b: a + (b - jax.lax.stop_gradient(b)), y, begin)
            now = start._replace(inner_var=y)
            follower, left = self._learn(x, now, round, t, terms, reverse=estimator)
            return follower.inner_var, (follower, left)

        _, pull, (follower, left) = jax.vjp(result, x, start.inner_var, has_aux=True)
        return follower, pull, left

    def _learn(
        self,
        x: PyTree,
        start: Follower,
        round: PyTree,
        t: Int[Array, ""],
        terms: Terms | None,
        reverse: Unrolled | None = None,
    ) -> tuple[Follower, Terms | None]:
        """Lines 4-7, on what `window.follower` says; `reverse` mode goes through it, if given."""
        if self.problem.inner is None:
            return start, terms
        steps, window = Steps(self.inner_steps).at(t), self.window
        if terms is None or window.follower in ("current", "each"):
            again = reverse is not None and reverse.rematerialise
            return self.learn(x, start, round, t, steps, again), terms
        return over_window(self.problem, window, x, self.inner, t, steps, start, terms, reverse)

    def _gradients(self, t: Int[Array, ""], count: int | Array, moves: Array | None) -> Array:
        """Outer and inner gradients of round t, whose window has so many terms."""
        seen = jnp.asarray(count, jnp.int32)
        one = jnp.ones_like(seen)
        followers = seen if self.window.follower == "each" else one
        if moves is not None:
            seen, followers = jnp.where(moves, seen, 0), jnp.where(moves, followers, one)
        if self.problem.inner is None:
            return seen
        return seen + followers * self._inner_gradients(t, count)

    def _inner_gradients(self, t: Int[Array, ""], count: int | Array) -> int | Array:
        """Inner gradients that one follower takes in round t."""
        windowed = self.window.follower in ("window", "average")
        return Steps(self.inner_steps).at(t) * (count if windowed else 1)


def _known(terms: Terms | None) -> Known:
    return None if terms is None else (terms.there, terms.number)
