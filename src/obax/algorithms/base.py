"""The base class of all algorithms: interface, state and guard.

An algorithm is a frozen Equinox module. `init` makes a state without consuming a round; `step`
plays one round. A subclass writes `update`, the mathematics of a round, and `remember` if it keeps
more from round to round than `State` does. The base class checks arguments, makes the next state
and the record, rejects rounds that are not finite, keeps past rounds, counts gradients, and holds
the leader in the rounds in which `outer_when` says so.
"""

import dataclasses
from typing import Annotated, Any, ClassVar, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Int

from .._support import trees
from .._support.checks import Arrays, Checked, check, instance_of
from .._support.packing import Lazy
from .._support.trees import PyTree, as_variable
from ..domain import Domain
from ..hypergradient import Estimate, Hypergradient, Remedy
from ..leader_check import warn_unreached
from ..problem import Problem
from ..round_buffer import RingBuffer, Terms
from ..rounds import RoundSpec
from ..steps import CurvatureStep, NormalisedStep
from ..steps.curvature import ITERATIONS
from ..steps.leader import dowg, normalised
from ..window import Window
from .arguments import AdaptiveSize, LeaderSize, Optimiser
from .descent import Descent, Follower, descending
from .record import Info, Leader, Move, record
from .stepping import stepping
from .words import algorithm_words, state_words


class State(Lazy):
    """What the next step needs. Algorithms add fields of their own."""

    t: Int[Array, ""]
    """Number of the next round, from 1."""
    outer_var: PyTree
    inner_var: PyTree
    round_spec: RoundSpec = eqx.field(static=True)
    buffers: PyTree
    outer_optimiser: PyTree
    inner_optimiser: PyTree
    carry: PyTree
    """What the estimator of the hypergradient carries from round to round."""
    detector: PyTree
    """The memory of the detector that cuts the window."""
    past: RingBuffer | None
    """Past rounds, or what is kept of them; `None` for an algorithm that keeps none."""

    def __repr__(self) -> str:
        return state_words(self)


S = TypeVar("S", bound=State)
LAST, SOME_WAY = 2**31 - 2, 2**20
"""The last t that has a next one in 32 bits, and how far t goes back there."""


class Algorithm(Checked, eqx.Module):
    """An online bilevel algorithm: `init` and `step`, pure functions on a state."""

    followers: ClassVar[tuple[str, ...]] = ("free", "constrained")
    """The kinds of followers that a problem may have: "none", "free", "constrained" to a set."""

    problem: Annotated[Problem, instance_of(Problem, "an obax.Problem")]

    # To write.

    def update(self, state: Any, round: PyTree) -> Move:
        """Return the move of one round: the mathematics, without the guard."""
        raise NotImplementedError

    def remember(self, start: State) -> State:
        """Return the state before the first round: `start` itself, or `MyState(**vars(start),
        mine=...)`. With `past` in it, a `RingBuffer`, rounds are kept in that."""
        return start

    # To use in `update`.

    def moves_level(self, level: str) -> bool:
        """Return whether "outer" or "inner" moves: the follower where there is one."""
        return level == "outer" or self.problem.inner is not None

    @property
    def outer(self) -> Descent:
        """How x moves: `outer_step_size` and `outer_optimiser`, where the algorithm has them."""
        return self._descent("outer")

    @property
    def inner(self) -> Descent:
        """How y moves: `inner_step_size` and `inner_optimiser`."""
        return self._descent("inner")

    def start(self, state: State) -> Follower:
        """Return the follower at the start of the round: y_t, or `problem.inner_start(x_t)` (line 3
        of Algorithm 1)."""
        if self.problem.inner_start is None:
            return Follower(state.inner_var, state.inner_optimiser, state.buffers)
        inner_var = self.problem.inner_start(state.outer_var)
        return Follower(inner_var, self.inner.init(inner_var), state.buffers)

    def follow(self, state: State, round: PyTree, steps: int | Array = 1) -> Follower:
        """Return the follower after its steps  z - beta_t grad_z g_t(x_t, z)."""
        return self.learn(state.outer_var, self.start(state), round, state.t, steps)

    def learn(
        self,
        x: PyTree,
        start: Follower,
        round: PyTree,
        t: Int[Array, ""],
        steps: int | Array,
        rematerialise: bool = False,
    ) -> Follower:
        """Return a follower after this many steps of round t at this x (lines 4-7 of Algorithm 1).

        A fixed number of steps can be differentiated in reverse mode: the loop is then a scan. With
        `rematerialise` they are computed again on the way back.
        """
        slope = lambda _, z, buffers: self.problem.inner_slope(x, z, round, buffers)  # noqa: E731
        step = descending(slope, self.inner, t)
        return jax.lax.fori_loop(0, steps, jax.checkpoint(step) if rematerialise else step, start)

    def estimate(
        self, estimator: Hypergradient, state: State, follower: Follower, round: PyTree
    ) -> Estimate:
        """Return grad_x f_t - J v with H v = grad_y f_t, at x_t and this follower."""
        y, buffers = follower.inner_var, follower.buffers
        return estimator.at(self.problem, state.outer_var, y, round, buffers, state.carry)

    def terms(self, state: State, round: PyTree) -> Terms | None:
        """Return the window's terms: past rounds and the current one; `None` where w = 1."""
        if self._window is None or state.past is None:
            return None
        return self._window.terms(state.past, round, state.t)

    def average(self, state: State, newest: PyTree) -> tuple[PyTree, int | Array]:
        """Return (1/W) sum_i u_i h_{t-i} of what `state.past` has stored and the newest, and how
        many terms that are."""
        terms = self.terms(state, newest)
        return (newest, 1) if terms is None else (terms.mean(terms.rounds), terms.number)

    def lead(self, state: State, direction: PyTree) -> Leader:
        """Return the leader after its step: the projection on X of  x_t - alpha_t direction."""
        rate = self.outer.rate(state.t)
        x, optimiser = self.outer.apply(state.outer_var, direction, state.outer_optimiser, rate)
        return Leader(self.problem.domain.project(x), optimiser)

    # Called by drivers.

    def init(
        self, outer_var: PyTree, inner_var: PyTree, example_round: PyTree, *, buffers: PyTree = None
    ) -> State:
        """Return the state before the first round.

        `example_round` gives structure, shapes and dtypes only (arrays or `jax.ShapeDtypeStruct`):
        no round is consumed.
        """
        outer_var = as_variable(outer_var, "outer_var")
        if inner_var is not None:
            inner_var = as_variable(inner_var, "inner_var")
        buffers = check(buffers, "buffers", Arrays)
        buffers = jax.tree.map(lambda leaf: trees.strong(jnp.asarray(leaf)), buffers)
        spec = RoundSpec.of(example_round)
        self.problem.check(outer_var, inner_var, spec.example(), buffers)
        if self._window is not None:
            self._window.check_round(spec.example())
        _check_start(self.problem.domain, outer_var, "outer_var", "domain")
        if inner_var is not None:
            _check_start(self.problem.inner_domain, inner_var, "inner_var", "inner_domain")
        if inner_var is not None and self.outer.moves:
            warn_unreached(self.problem, outer_var, inner_var, spec.example(), buffers)
        return self.first_state(outer_var, inner_var, buffers, spec)

    @stepping
    def step(self, state: S, round: PyTree) -> tuple[S, Info]:
        """Play one round. Called with numbers it is compiled first; `play` is faster still.

        A round with NaN or Inf, or one that would make any part of the state so, leaves the state
        exactly as it was, t included, and is reported as `info.accepted = False`.
        """
        state.round_spec.check(round)
        met, dropped = self.cut_past(state, round)
        move = self.move(met, round)
        changes, stored = move.changes(_next(state)), round if move.stored is None else move.stored
        # The projection onto a bounded set would hide an infinite step, so the norm is looked at.
        norm = trees.norm(move.estimate.value)
        accepted = trees.all_finite((round, changes, stored, norm))
        changes["detector"] = met.detector
        new = trees.select(accepted, changes, {name: getattr(state, name) for name in changes})
        if state.past is not None and met.past is not None:
            replay = None if self._window is None else self._window.replay
            kept = state.past, move.refused, replay
            new["past"] = met.past.push(state.t, stored, accepted, *kept)
        info = record(self.problem, state, self.start(state), round, move, accepted, norm, dropped)
        return dataclasses.replace(state, **new), info

    def move(self, state: State, round: PyTree) -> Move:
        """Return what the round would do, before the guard: `update`, or in rounds in which
        `outer_when` holds the leader the follower's part of it."""
        if isinstance(self.inner.step_size, CurvatureStep):
            return self.move_adapted(state, round)
        outer_when = getattr(self, "outer_when", None)
        if outer_when is None:
            return self.update(state, round)
        return jax.lax.cond(
            outer_when(state.t),
            lambda: self.update(state, round),
            lambda: self.hold(state, round),
        )

    def move_adapted(self, state: State, round: PyTree) -> Move:
        """Return the move with the step size of the follower that suits this round."""
        start, rule = self.start(state), self.inner.step_size
        assert isinstance(rule, CurvatureStep)
        gradient = lambda y: self.problem.inner_slope(  # noqa: E731
            state.outer_var, y, round, start.buffers
        )[0]
        size, direction = rule.size(gradient, start.inner_var, state.inner_optimiser)
        sized = eqx.tree_at(lambda a: a.inner_step_size, self, size, is_leaf=_is_size)
        move = sized.move(dataclasses.replace(state, inner_optimiser=()), round)
        estimate = move.estimate._replace(hvps=move.estimate.hvps + ITERATIONS)
        follower = move.follower._replace(optimiser=direction)
        return move._replace(follower=follower, estimate=estimate, inner_step_size=size)

    def hold(self, state: Any, round: PyTree) -> Move:
        """Return the move of a round in which the leader is held: no hypergradient is computed."""
        raise NotImplementedError

    def held(self, state: State, round: PyTree, follower: Follower, gradients: int | Array) -> Move:
        """Return a move that holds the leader, shaped like what `update` returns."""
        like = jax.eval_shape(self.update, state, round).estimate
        zero = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), like)
        leader = Leader(state.outer_var, state.outer_optimiser)
        return Move(leader, follower, zero._replace(carry=state.carry), gradients)

    def cut_past(self, state: S, round: PyTree) -> tuple[S, int | Array]:
        """Return the state without the past rounds that a cut of the window drops, and how many it
        drops."""
        window = self._window
        if window is None or window.cut is None or state.past is None:
            return state, 0
        start = self.start(state)
        loss = self.problem.outer_loss(state.outer_var, start.inner_var, round, start.buffers)
        detector, kept = window.detect(state.detector, round, loss)
        past = state.past.keep_recent(state.t, kept)
        dropped = jnp.sum(state.past.present & ~past.present)
        return dataclasses.replace(state, past=past, detector=detector), dropped

    def attempt(self, state: State, round: PyTree) -> Move:
        """Return what the round would do, whether the guard accepts it or not."""
        return self.move(self.cut_past(state, round)[0], round)

    def check_state(self, state: State) -> None:
        """Raise a `ValueError` if the state was not made by an algorithm with this structure.

        Looks at structure and shapes when a function is traced; costs nothing when it runs.
        """
        start = state.outer_var, state.inner_var, state.buffers
        expected = jax.eval_shape(
            lambda x, y, b: self.first_state(x, y, b, state.round_spec), *start
        )
        if RoundSpec.of(state) is not RoundSpec.of(expected):
            if state.past is not None and state.past.lies_over_mesh:
                raise ValueError(
                    "state must come from a run without a mesh, but its window lies over one; pass "
                    "the mesh, or bring it to one device: obax.online.collect(algorithm, state)."
                )
            raise ValueError(
                f"state must come from the init of an algorithm like this {type(self).__name__}, "
                f"with the same window, estimator and optimisers, but it does not; call init again."
            )

    def check_sweep(self, field: str) -> None:
        """Raise a `ValueError` if `field` may not be turned from a fixed number into a traced one,
        as a sweep does with numbers that differ."""

    @property
    def remedy(self) -> Remedy:
        """What a large `info.solver_residual` means, and what to try."""
        return getattr(self, "hypergradient", Hypergradient).remedy

    @property
    def has_window(self) -> bool:
        """Whether it looks at more than the current round."""
        return self._window is not None

    # Only used here.

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "step" in vars(cls):
            cls.step = stepping(vars(cls)["step"])  # type: ignore[method-assign]

    def __check_init__(self) -> None:
        if "none" not in self.followers and self.problem.inner is None:
            raise ValueError(
                f"problem must have a follower for {type(self).__name__}, but problem.inner is "
                f"None; use obax.OGD, or obax.OAGD for a window."
            )
        if "constrained" not in self.followers and self.problem.constrains_follower:
            raise ValueError(
                f"problem.inner_domain must be left out for {type(self).__name__}, whose y and v "
                f"move together and know no faces; use obax.OAGD, SOBOW, OBBO or AOBO."
            )

    def __repr__(self) -> str:
        return algorithm_words(self)

    @property
    def _window(self) -> Window | None:
        """The window, where the algorithm has one that looks at more than the current round."""
        window = getattr(self, "window", None)
        return window if isinstance(window, Window) and window.size > 1 else None

    def _descent(self, level: str) -> Descent:
        constrained = level == "inner" and self.problem.constrains_follower
        step_size = getattr(self, f"{level}_step_size", None)
        optimiser = getattr(self, f"{level}_optimiser", None)
        left_out = step_size is None and optimiser is None and hasattr(self, f"{level}_step_size")
        if left_out and self.moves_level(level):
            optimiser = dowg() if level == "outer" else None
            step_size = CurvatureStep() if level == "inner" else None
        if isinstance(step_size, NormalisedStep):
            step_size, optimiser = step_size.scale, normalised()
        project = self.problem.inner_domain.project if constrained else None
        return Descent(step_size, optimiser, project)

    def first_state(self, x: PyTree, y: PyTree, buffers: PyTree, round_spec: RoundSpec) -> State:
        """Return the state before the first round, from values that have been checked."""
        estimator = getattr(self, "hypergradient", None)
        start = State(
            t=jnp.asarray(1, jnp.int32),
            outer_var=x,
            inner_var=y,
            round_spec=round_spec,
            buffers=buffers,
            outer_optimiser=self.outer.init(x),
            inner_optimiser=self.inner.init(y),
            carry=None if estimator is None or y is None else estimator.init(y),
            detector=None if self._window is None else self._window.init_detector(),
            past=None,
        )
        return self.remember(start)


class TwoLevels(Algorithm):
    """An algorithm whose levels move by step sizes, by optax transformations, or both."""

    outer_step_size: LeaderSize = None
    inner_step_size: AdaptiveSize = None
    outer_optimiser: Optimiser | None = eqx.field(default=None, kw_only=True)
    inner_optimiser: Optimiser | None = eqx.field(default=None, kw_only=True)

    def __check_init__(self) -> None:
        self.check_levels()

    def check_levels(self) -> None:
        """Raise a `ValueError` if a level that does not move has a step size."""
        if not self.moves_level("outer"):
            self.outer.check_left_out("outer", "has a follower: x is held fixed")
        if self.problem.inner is None and "none" in self.followers:
            self.inner.check_left_out("inner", "has no follower (problem.inner is None)")
        if isinstance(self.inner.step_size, CurvatureStep) and self.inner_optimiser is not None:
            raise ValueError(
                "inner_step_size must be a number or a schedule with inner_optimiser, whose update "
                "it scales, or left out, but is an obax.steps.CurvatureStep."
            )


def _is_size(value: object) -> bool:
    """Return whether a value is one that a step size takes the place of."""
    return value is None or isinstance(value, CurvatureStep)


def _next(state: State) -> Int[Array, ""]:
    """Return t + 1; at the end of 32 bits, a t some way before it with the same slot of the ring
    buffer. Windows then go on as they were, and schedules keep the values that they have there."""
    slots = state.past.slots if type(state.past) is RingBuffer else 1
    back = slots * -(-SOME_WAY // slots) if slots else SOME_WAY
    return jnp.where(state.t < LAST, state.t + 1, LAST + 1 - back)


def _check_start(domain: Domain, var: PyTree, name: str, field: str) -> None:
    """Raise a `ValueError` if a variable does not start in its set."""
    if trees.is_concrete(var) and not domain.contains(var):
        raise ValueError(
            f"{name} must start in the domain {domain!r}, but is {var}; the nearest point of the "
            f"domain is problem.{field}.project({name}) = {domain.project(var)}."
        )
