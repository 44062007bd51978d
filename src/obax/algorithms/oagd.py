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

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Int

from .._support import validation
from .._support.trees import PyTree
from ..hypergradient import CG, Estimate, Hypergradient, Unrolled
from ..hypergradient.average import (
    average_inner,
    average_of_gradients,
    average_of_terms,
    outer_gradient,
)
from ..hypergradient.unrolled import through_steps
from ..problem import Problem
from ..rounds import RoundSpec
from ..window import RingBuffer, Window
from .base import Algorithm, State
from .descent import (
    Descent,
    Number,
    Schedule,
    Steps,
    When,
    check_steps,
    checked_steps,
    checked_when,
    steps_at,
)
from .follower import Follower, learn, start_of
from .record import Info, record

Pullback = Callable[[PyTree], tuple[PyTree, PyTree]] | None


class OAGDState(State):
    """The pair (x_t, y_t), the window's rounds, and what optimisers and estimator carry."""

    outer_optimiser: PyTree
    inner_optimiser: PyTree
    buffers: PyTree
    window: RingBuffer | None
    carry: PyTree


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

    >>> problem = Problem(
    ...     outer=lambda x, y, round: 0.5 * (y - round) ** 2,
    ...     inner=lambda x, y, round: 0.5 * (y - x) ** 2,
    ... )
    >>> algorithm = OAGD(problem, outer_step_size=0.5, inner_step_size=0.5, inner_steps=1)
    >>> state = algorithm.init(0.0, 0.0, jnp.zeros(()))
    >>> for target in (1.0, 1.0, 1.0):
    ...     state, info = algorithm.step(state, jnp.asarray(target))
    ...     print(f"{state.outer_var:.4f} {state.inner_var:.4f} {info.played_value:.4f}")
    0.5000 0.0000 0.5000
    0.8750 0.2500 0.5000
    1.0938 0.5625 0.2812
    """

    problem: Problem
    outer: Descent
    inner: Descent | None
    inner_steps: Steps
    window: Window
    hypergradient: Hypergradient
    outer_when: When | None

    def __init__(
        self,
        problem: Problem,
        outer_step_size: Number | None = None,
        inner_step_size: Number | None = None,
        inner_steps: Steps = 1,
        window: Window | None = None,
        hypergradient: Hypergradient | None = None,
        *,
        outer_optimiser: optax.GradientTransformation | None = None,
        inner_optimiser: optax.GradientTransformation | None = None,
        outer_when: When | None = None,
    ):
        validation.instance(problem, Problem, "problem", "an obax.Problem")
        self.problem = problem
        self.outer_when = checked_when(outer_when)
        self.window = Window() if window is None else window
        validation.instance(self.window, Window, "window", "an obax.Window such as Window(100)")
        self.hypergradient = CG() if hypergradient is None else hypergradient
        validation.instance(
            self.hypergradient, Hypergradient, "hypergradient", "an estimator such as CG()"
        )
        self.outer = Descent(outer_step_size, outer_optimiser, "outer")
        self.inner_steps = checked_steps(inner_steps)
        self.inner = None
        if problem.inner is None:
            if inner_step_size is not None or inner_optimiser is not None:
                raise ValueError(
                    "inner_step_size and inner_optimiser must be left out for a problem without a "
                    "follower (problem.inner is None)."
                )
        else:
            self.inner = Descent(inner_step_size, inner_optimiser, "inner")
        self.outer.check("outer_step_size")
        if self.inner is not None:
            self.inner.check("inner_step_size")
            check_steps(self.inner_steps)
        if isinstance(self.hypergradient, Unrolled):
            self._check_unrolled()

    @property
    def outer_step_size(self) -> Array | Schedule:
        """alpha_t, as given."""
        return self.outer.step_size

    @property
    def inner_step_size(self) -> Array | Schedule | None:
        """beta_t, as given; `None` without a follower."""
        return None if self.inner is None else self.inner.step_size

    def _check_unrolled(self) -> None:
        if not isinstance(self.inner_steps, int):
            raise ValueError(
                "inner_steps must be a fixed int with hypergradient=Unrolled(), whose loop must "
                f"have a fixed length, but got {self.inner_steps!r}; use CG() for a K_t that "
                "varies with t."
            )
        own = self.window.curvature == "own" and self.window.follower != "each"
        if self.window.size > 1 and own:
            raise ValueError(
                "window.curvature must be 'current' with hypergradient=Unrolled() and size > 1, "
                "but is 'own': only the steps that the follower took can be differentiated."
            )
        if self.window.curvature == "window" and self.window.follower != "average":
            raise ValueError(
                "window.curvature must be 'current' with hypergradient=Unrolled(), but is "
                "'window': the follower's steps are differentiated, whatever they were taken on."
            )

    def check_sweep(self, field: str) -> None:
        if field == ".inner_steps" and isinstance(self.hypergradient, Unrolled):
            raise ValueError(
                "inner_steps must be the same in all algorithms with hypergradient=Unrolled(), "
                "whose loop must have a fixed length; sweep over it with several calls."
            )

    def fresh_state(
        self, outer_var: PyTree, inner_var: PyTree, buffers: PyTree, round_spec: RoundSpec
    ) -> OAGDState:
        x, y, spec = outer_var, inner_var, round_spec
        size, window = self.window.size, self.window
        carry = None if self.inner is None else self.hypergradient.init(y)
        if carry is not None and size > 1 and window.curvature == "own":
            # One for each past round of the window.
            carry = jax.tree.map(
                lambda leaf: jnp.broadcast_to(leaf, (size - 1, *leaf.shape)), carry
            )
        return OAGDState(
            t=jnp.asarray(1, jnp.int32),
            outer_var=x,
            inner_var=y,
            round_spec=spec,
            outer_optimiser=self.outer.init(x),
            inner_optimiser=() if self.inner is None else self.inner.init(y),
            buffers=buffers,
            window=None if size == 1 else RingBuffer.like(spec.example(), size - 1),
            carry=carry,
        )

    def update(self, state: OAGDState, round: PyTree) -> tuple[OAGDState, Info]:
        t, x = state.t, state.outer_var
        # Line 2: acquire f_t and g_t.
        rounds = None if state.window is None else state.window.with_current(round)
        # Line 3: start from y_t.
        held = Follower(state.inner_var, state.inner_optimiser, state.buffers)
        start = start_of(self.problem, x, held, self.inner)

        def both() -> tuple[Follower, Estimate, PyTree, PyTree]:
            # Lines 4-7 move the follower; with it comes the time-averaged hypergradient of line 8.
            follower, estimate = self._play(state, start, round, rounds)
            # Line 8: the projected step of the leader.
            moved, optimiser = self.outer.apply(
                x, estimate.value, state.outer_optimiser, self.outer.rate(t)
            )
            return follower, estimate, self.problem.domain.project(moved), optimiser

        def follower_only() -> tuple[Follower, Estimate, PyTree, PyTree]:
            follower = self._learn(x, start, round, t, rounds)
            nothing = jax.tree.map(
                lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), jax.eval_shape(both)[1]
            )
            return follower, nothing._replace(carry=state.carry), x, state.outer_optimiser

        moves = None if self.outer_when is None else self.outer_when(t)
        follower, estimate, new_x, outer_optimiser = (
            both() if moves is None else jax.lax.cond(moves, both, follower_only)
        )
        new = OAGDState(
            t=t + 1,
            outer_var=new_x,
            inner_var=follower.inner_var,
            round_spec=state.round_spec,
            outer_optimiser=outer_optimiser,
            inner_optimiser=follower.optimiser,
            buffers=follower.buffers,
            window=state.window,
            carry=estimate.carry,
        )
        info = record(
            self.problem,
            t,
            x,
            start,
            follower,
            round,
            hypergradient=estimate.value,
            residual=estimate.residual,
            gradients=self._gradients(t, moves),
            hvps=estimate.hvps,
            cross_products=estimate.cross_products,
        )
        return new, info

    def _play(
        self, state: OAGDState, start: Follower, round: PyTree, rounds: PyTree
    ) -> tuple[Follower, Estimate]:
        """The follower after the round and the time-averaged hypergradient at it."""
        t, x, window = state.t, state.outer_var, self.window

        def term(follower: Follower, pull: Pullback, round: PyTree, carry: PyTree) -> Estimate:
            y, buffers = follower.inner_var, follower.buffers
            gradient = outer_gradient(self.problem, x, y, round, buffers)
            return self._estimate(
                self._inner(round, buffers), x, follower, pull, gradient, carry, t
            )

        if rounds is not None and window.follower == "each":

            def adapted_term(round: PyTree, carry: PyTree) -> tuple[Estimate, Follower]:
                follower, pull = self._follow(x, start, round, t)
                return term(follower, pull, round, carry), follower

            estimate, follower = average_of_terms(window, adapted_term, rounds, state.carry, t)
            return follower, estimate

        follower, pull = self._follow(x, start, round, t, rounds)
        if rounds is None:
            return follower, term(follower, pull, round, state.carry)
        if window.curvature == "own" and self.inner is not None:
            own_term = lambda round, carry: (term(follower, pull, round, carry), None)  # noqa: E731
            estimate, _ = average_of_terms(window, own_term, rounds, state.carry, t)
            return follower, estimate
        y, buffers = follower.inner_var, follower.buffers
        gradient = average_of_gradients(self.problem, window, x, y, rounds, buffers, t)
        inner = self._inner(round, buffers)
        if window.curvature == "window" and self.inner is not None:
            inner = average_inner(self.problem, window, rounds, buffers, t)
        return follower, self._estimate(inner, x, follower, pull, gradient, state.carry, t)

    def _inner(self, round: PyTree, buffers: PyTree) -> Callable[[PyTree, PyTree], Array]:
        return lambda x, y: self.problem.inner_loss(x, y, round, buffers)[0]

    def _estimate(
        self,
        inner: Callable[[PyTree, PyTree], Array],
        x: PyTree,
        follower: Follower,
        pull: Pullback,
        gradient: tuple[PyTree, PyTree],
        carry: PyTree,
        t: Int[Array, ""],
    ) -> Estimate:
        """grad_x f + M grad_y f with the curvature of `inner`."""
        if self.inner is None:
            zero = jnp.zeros((), jnp.int32)
            return Estimate(gradient[0], jnp.zeros(()), carry, zero, zero)
        if pull is not None:
            return through_steps(pull, gradient, carry, self._inner_gradients(t))
        return self.hypergradient(inner, x, follower.inner_var, gradient, carry)

    def _follow(
        self,
        x: PyTree,
        start: Follower,
        round: PyTree,
        t: Int[Array, ""],
        rounds: PyTree = None,
    ) -> tuple[Follower, Pullback]:
        """Lines 4-7: the follower after the round, and for `Unrolled` the pullback to (x, y_t)."""
        estimator = self.hypergradient
        if self.inner is None or not isinstance(estimator, Unrolled):
            return self._learn(x, start, round, t, rounds), None
        arguments = (self.inner, steps_at(self.inner_steps, t), t, round, self.window, rounds)

        def result(x: PyTree, y: PyTree) -> tuple[PyTree, Follower]:
            if self.problem.inner_start is not None:
                # The start is a function of x too: same value, with its derivative.
                begin = self.problem.inner_start(x)
                y = jax.tree.map(lambda a, b: a + (b - jax.lax.stop_gradient(b)), y, begin)
            follower = learn(
                self.problem,
                x,
                start._replace(inner_var=y),
                *arguments,
                fixed_length=True,
                rematerialise=estimator.rematerialise,
            )
            return follower.inner_var, follower

        _, pull, follower = jax.vjp(result, x, start.inner_var, has_aux=True)
        return follower, pull

    def _learn(
        self, x: PyTree, start: Follower, round: PyTree, t: Int[Array, ""], rounds: PyTree
    ) -> Follower:
        """Lines 4-7."""
        if self.inner is None:
            return start
        steps = steps_at(self.inner_steps, t)
        return learn(self.problem, x, start, self.inner, steps, t, round, self.window, rounds)

    def _gradients(self, t: Int[Array, ""], moves: Array | None) -> Array:
        """Outer and inner gradients of round t."""
        seen = jnp.minimum(t, self.window.size)
        one = jnp.ones_like(seen)
        followers = seen if self.window.follower == "each" else one
        if moves is not None:
            seen, followers = jnp.where(moves, seen, 0), jnp.where(moves, followers, one)
        if self.inner is None:
            return seen
        return seen + followers * self._inner_gradients(t)

    def _inner_gradients(self, t: Int[Array, ""]) -> int | Array:
        """Inner gradients that one follower takes in round t."""
        rounds = jnp.minimum(t, self.window.size)
        windowed = self.window.follower in ("window", "average")
        return steps_at(self.inner_steps, t) * (rounds if windowed else 1)
