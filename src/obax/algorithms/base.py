"""What every algorithm shares: the interface, the state, the guard.

An algorithm is a frozen Equinox module. `init` makes a state without consuming a round; `step`
plays one round. A subclass writes `update`, the mathematics of a round, and `remember` if it keeps
more from round to round than `State` does. Checks, state, record, guard, ring buffers and
projection are here.
"""

import dataclasses
import math
from typing import Any, ClassVar, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Int

from .._support import trees, validation
from .._support.explicit import automatic
from .._support.lazy import Lazy
from .._support.trees import PyTree
from ..domain import Domain
from ..hypergradient import Estimate, Hypergradient, Remedy, Unrolled
from ..past import RingBuffer
from ..problem import Problem
from ..reach import warn_unreached
from ..rounds import RoundSpec
from ..window import Window
from .arguments import checked
from .descent import Descent, Follower, descending
from .record import Info, Leader, Move, record
from .stepping import stepping
from .words import algorithm_table, algorithm_words, state_words


class State(Lazy):
    """What the next step needs. Algorithms add their own fields."""

    t: Int[Array, ""]
    """Number of the next round, from 1."""
    outer_var: PyTree
    inner_var: PyTree
    round_spec: RoundSpec = eqx.field(static=True)
    buffers: PyTree
    outer_optimiser: PyTree
    inner_optimiser: PyTree
    carry: PyTree
    """What the estimator of the hypergradient carries."""
    detector: PyTree
    """What the detector of changes that cuts the window remembers."""

    def __repr__(self) -> str:
        return state_words(self)


S = TypeVar("S", bound=State)
LAST, SOME_WAY = 2**31 - 2, 2**20
"""The last t from which there is a next one in 32 bits, and how far t goes back there."""


def _problem(value: Problem, name: str) -> Problem:
    validation.instance(value, Problem, name, "an obax.Problem")
    return value


class Algorithm(eqx.Module):
    """An online bilevel algorithm: `init` and `step`, pure functions on a state."""

    needs_follower: ClassVar[bool] = True
    moves_leader: ClassVar[bool] = True
    """Also where there is a follower."""
    keeps_follower_in: ClassVar[bool] = True
    """Whether it can keep the follower in an `inner_domain`."""

    problem: Problem = checked(_problem, "problem")

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "step" in vars(cls):
            cls.step = stepping(vars(cls)["step"])  # type: ignore[method-assign]

    def __check_init__(self) -> None:
        if self.needs_follower and self.problem.inner is None:
            raise ValueError(
                f"problem must have a follower for {type(self).__name__}, but problem.inner is "
                f"None; use obax.OGD, or obax.OAGD for a window."
            )
        if self.problem.constrains_follower and not self.keeps_follower_in:
            raise ValueError(
                f"problem.inner_domain must be left out for {type(self).__name__}, whose y and v "
                f"move together and know no faces; use obax.OAGD, SOBOW, OBBO or AOBO."
            )

    def __repr__(self) -> str:
        return algorithm_words(self)

    def _repr_html_(self) -> str:
        return algorithm_table(self)

    # What a subclass writes.

    def update(self, state: Any, round: PyTree) -> Move:
        """The mathematics of one round: what to do, without the guard."""
        raise NotImplementedError

    def remember(self, start: State) -> State:
        """The state before the first round: `start`, or `MyState(**vars(start), mine=...)`."""
        return start

    def check_sweep(self, field: str) -> None:
        """Raise a `ValueError` if `field` may not be turned from a fixed number into a traced one,
        which is what a sweep does with numbers that differ."""

    @property
    def differentiates_steps(self) -> bool:
        """Whether the hypergradient goes through the follower's steps, and not its optimum."""
        return isinstance(getattr(self, "hypergradient", None), Unrolled)

    @property
    def remedy(self) -> Remedy:
        """What a large `info.solver_residual` says was left undone, and what to try, in words."""
        return getattr(self, "hypergradient", Hypergradient).remedy

    # What a subclass may use.

    @property
    def outer(self) -> Descent:
        """How x moves: `outer_step_size` and `outer_optimiser`, where the algorithm has them."""
        return self._descent("outer")

    @property
    def inner(self) -> Descent:
        """How y moves: `inner_step_size` and `inner_optimiser`."""
        return self._descent("inner")

    def start(self, state: State) -> Follower:
        """The follower that meets the round: y_t, or from where the problem says (line 3 of
        Algorithm 1)."""
        if self.problem.inner_start is None:
            return Follower(state.inner_var, state.inner_optimiser, state.buffers)
        inner_var = self.problem.inner_start(state.outer_var)
        return Follower(inner_var, self.inner.init(inner_var), state.buffers)

    def follow(
        self, state: State, round: PyTree, steps: int | Array = 1
    ) -> tuple[Follower, Follower]:
        """The follower before and after its steps  z - beta_t grad_z g_t(x_t, z)."""
        before = self.start(state)
        return before, self.learn(state.outer_var, before, round, state.t, steps)

    def learn(
        self,
        x: PyTree,
        start: Follower,
        round: PyTree,
        t: Int[Array, ""],
        steps: int | Array,
        rematerialise: bool = False,
    ) -> Follower:
        """The follower after so many steps of round t at this x (lines 4-7 of Algorithm 1).

        Reverse mode can go through a fixed number of them: the loop is then a scan. With
        `rematerialise` they are computed again on the way back.
        """
        slope = lambda _, z, buffers: self.problem.inner_slope(x, z, round, buffers)  # noqa: E731
        step = descending(slope, self.inner, t)
        return jax.lax.fori_loop(0, steps, jax.checkpoint(step) if rematerialise else step, start)

    def estimate(
        self, estimator: Hypergradient, state: State, follower: Follower, round: PyTree
    ) -> Estimate:
        """grad_x f_t - J v with H v = grad_y f_t, at x_t and this follower."""
        y, buffers = follower.inner_var, follower.buffers
        return estimator.at(self.problem, state.outer_var, y, round, buffers, state.carry)

    def lead(self, state: State, direction: PyTree) -> Leader:
        """The leader after its step: the projection on X of  x_t - alpha_t direction."""
        rate = self.outer.rate(state.t)
        x, optimiser = self.outer.apply(state.outer_var, direction, state.outer_optimiser, rate)
        return Leader(self.problem.domain.project(x), optimiser)

    # What a driver calls.

    def init(
        self, outer_var: PyTree, inner_var: PyTree, example_round: PyTree, *, buffers: PyTree = None
    ) -> State:
        """The state before the first round.

        `example_round` gives structure, shapes and dtypes only (arrays or `jax.ShapeDtypeStruct`):
        no round is consumed.
        """
        outer_var = validation.variable(outer_var, "outer_var")
        if inner_var is not None:
            inner_var = validation.variable(inner_var, "inner_var")
        buffers = jax.tree.map(lambda leaf: validation.strong(jnp.asarray(leaf)), buffers)
        spec = RoundSpec.of(example_round)
        self.problem.check(outer_var, inner_var, spec.example(), buffers)
        if self._window is not None:
            self._window.check_round(spec.example())
        _check_start(self.problem.domain, outer_var, "outer_var", "domain")
        if inner_var is not None:
            _check_start(self.problem.inner_domain, inner_var, "inner_var", "inner_domain")
        if inner_var is not None and self.moves_leader:
            given = outer_var, inner_var, spec.example(), buffers
            warn_unreached(self.problem, *given, type(self).__name__, self.differentiates_steps)
        return self._fresh(outer_var, inner_var, buffers, spec)

    @stepping
    def step(self, state: S, round: PyTree) -> tuple[S, Info]:
        """Play one round. Called with numbers it is compiled first; `play` is faster still.

        A round with NaN or Inf, or one that would make any part of the state so, leaves the state
        exactly as it was, t included, and is reported as `info.accepted = False`.
        """
        state, round = automatic((state, round))
        state.round_spec.check(round)
        self.check_state(state)
        begun, dropped = self.begin(state, round)
        move = self.update(begun, round)
        changes = move.changes(_next(state))
        norm = trees.norm(move.followed)
        # The projection onto a bounded set would hide an infinite step, so the norm is looked at.
        accepted = trees.all_finite((round, changes, dict(move.stored), norm))
        old = {name: getattr(state, name) for name in changes}
        new = trees.select(accepted, changes, old)
        for name, kept in vars(state).items():
            if isinstance(kept, RingBuffer):
                stored = move.stored.get(name, round)
                met, refused = getattr(begun, name), move.refused.get(name)
                replay = None if self._window is None else self._window.replay
                new[name] = met.push(state.t, stored, accepted, kept, refused, replay)
        new["detector"] = trees.select(accepted, begun.detector, state.detector)
        info = record(self.problem, state.t, state.outer_var, round, move, accepted, norm, dropped)
        return dataclasses.replace(state, **new), info

    def begin(self, state: S, round: PyTree) -> tuple[S, int | Array]:
        """The state in which the round is met, without the past that a cut of the window ends; and
        how many rounds that takes out."""
        window = self._window
        if window is None or window.cut is None:
            return state, 0
        start = self.start(state)
        loss = self.problem.outer_loss(state.outer_var, start.inner_var, round, start.buffers)
        detector, kept = window.kept(state.detector, round, loss)
        past = {name: it for name, it in vars(state).items() if isinstance(it, RingBuffer)}
        left: dict[str, Any] = {name: it.keep(state.t, kept) for name, it in past.items()}
        dropped = [jnp.sum(past[name].there & ~left[name].there) for name in past]
        return dataclasses.replace(state, **left, detector=detector), jnp.max(jnp.stack(dropped))

    def attempt(self, state: State, round: PyTree) -> Move:
        """What the round would do, whether the guard lets it or not."""
        return self.update(self.begin(state, round)[0], round)

    def check_state(self, state: State) -> None:
        """Raise a `ValueError` if the state was not made by an algorithm with this structure. Looks
        at structure and shapes, when a function is traced; costs nothing when it runs."""
        start = state.outer_var, state.inner_var, state.buffers
        expected = jax.eval_shape(lambda x, y, b: self._fresh(x, y, b, state.round_spec), *start)
        came = jax.eval_shape(lambda: state)
        same = trees.structure(came) == trees.structure(expected) and all(
            (a.shape, a.dtype) == (b.shape, b.dtype)
            for a, b in zip(jax.tree.leaves(came), jax.tree.leaves(expected), strict=True)
        )
        if not same:
            if any(isinstance(held, RingBuffer) and held.spare for held in vars(state).values()):
                raise ValueError(
                    "state must come from a run without a mesh, but its window lies over one; pass "
                    "the mesh, or bring it to one device: obax.online.collect(algorithm, state)."
                )
            raise ValueError(
                f"state must come from the init of an algorithm like this {type(self).__name__}, "
                f"with the same window, estimator and optimisers, but it does not; call init again."
            )

    @property
    def has_window(self) -> bool:
        """Whether it looks at more than the current round."""
        return self._window is not None

    @property
    def _window(self) -> Window | None:
        """The window, where the algorithm has one that looks at more than the current round."""
        window = getattr(self, "window", None)
        return window if isinstance(window, Window) and window.size > 1 else None

    def _descent(self, level: str) -> Descent:
        bound = level == "inner" and self.problem.constrains_follower
        return Descent(
            getattr(self, f"{level}_step_size", None),
            getattr(self, f"{level}_optimiser", None),
            self.problem.inner_domain.project if bound else None,
        )

    def _fresh(self, x: PyTree, y: PyTree, buffers: PyTree, round_spec: RoundSpec) -> State:
        """The state before the first round, from values that have been checked."""
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
            detector=None if self._window is None else self._window.watch(),
        )
        return self.remember(start)


def _next(state: State) -> Int[Array, ""]:
    """t + 1; where 32 bits end, a place some way before it in the same slot of every ring buffer.
    Windows then go on as they were, and schedules keep the values that they have there."""
    slots = [kept.slots for kept in vars(state).values() if type(kept) is RingBuffer]
    turn = math.lcm(1, *slots)
    back = turn * -(-SOME_WAY // turn)
    return jnp.where(state.t < LAST, state.t + 1, LAST + 1 - back)


def _check_start(domain: Domain, var: PyTree, name: str, field: str) -> None:
    """Raise a `ValueError` if a variable does not start in its set."""
    if trees.is_concrete(var) and not domain.contains(var):
        raise ValueError(
            f"{name} must start in the domain {domain!r}, but is {var}; the nearest point of the "
            f"domain is problem.{field}.project({name}) = {domain.project(var)}."
        )
