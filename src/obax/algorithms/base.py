"""What every algorithm shares: the interface and the guard.

An algorithm is a frozen Equinox module. `init` makes a state without consuming a round; `step`
plays one round. A subclass writes `fresh_state` and `update`; `init` checks what it is
given and `step` adds the guard.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Int

from .._support import trees, validation
from .._support.lazy import Lazy
from .._support.trees import PyTree
from ..problem import Problem
from ..rounds import RoundSpec
from ..window import RingBuffer
from .record import Info


class State(Lazy):
    """What the next step needs. Algorithms add their own fields."""

    t: Int[Array, ""]
    """Number of the next round, from 1."""
    outer_var: PyTree
    inner_var: PyTree
    round_spec: RoundSpec = eqx.field(static=True)


class Algorithm(eqx.Module):
    """An online bilevel algorithm: `init` and `step`, pure functions on a state."""

    problem: eqx.AbstractVar[Problem]

    def init(
        self, outer_var: PyTree, inner_var: PyTree, example_round: PyTree, *, buffers: PyTree = None
    ) -> Any:
        """The state before the first round.

        `example_round` gives structure, shapes and dtypes only (arrays or `jax.ShapeDtypeStruct`):
        no round is consumed.
        """
        return self.fresh_state(*self._checked_start(outer_var, inner_var, example_round, buffers))

    def update(self, state: Any, round: PyTree) -> tuple[Any, Info]:
        """One round without the guard. A ring buffer in the state is left as it is: the round
        enters it only once it has been accepted."""
        raise NotImplementedError

    def step(self, state: Any, round: PyTree) -> tuple[Any, Info]:
        """Play one round.

        A round with NaN or Inf, or one that would make any part of the state so, leaves the state
        exactly as it was, t included, and is reported as `info.accepted = False`.
        """
        state.round_spec.check(round)
        self.check_state(state)
        new, info = self.update(state, round)
        # The projection onto a bounded set would hide an infinite step, so the norm is looked at.
        seen = (round, _without_windows(new), info.hypergradient_norm)
        accepted = trees.all_finite(seen)

        def keep(new_node: Any, old_node: Any) -> Any:
            if _is_window(new_node):
                return old_node.push(state.t, round, accepted)
            return jnp.where(accepted, new_node, old_node)

        info = eqx.tree_at(lambda i: i.accepted, info, accepted)
        return jax.tree.map(keep, new, state, is_leaf=_is_window), info

    def check_state(self, state: Any) -> None:
        """Raise a `ValueError` if the state was not made by an algorithm with this structure. Looks
        at structure and shapes, when a function is traced; costs nothing when it runs."""
        expected = jax.eval_shape(
            lambda x, y, buffers: self.fresh_state(x, y, buffers, state.round_spec),
            state.outer_var,
            state.inner_var,
            getattr(state, "buffers", None),
        )
        came = jax.eval_shape(lambda: state)
        same = trees.structure(came) == trees.structure(expected) and all(
            (a.shape, a.dtype) == (b.shape, b.dtype)
            for a, b in zip(jax.tree.leaves(came), jax.tree.leaves(expected), strict=True)
        )
        if not same:
            raise ValueError(
                f"state must come from the init of an algorithm like this {type(self).__name__}, "
                f"with the same window, estimator and optimisers, but it does not; call init again."
            )

    def fresh_state(
        self, outer_var: PyTree, inner_var: PyTree, buffers: PyTree, round_spec: RoundSpec
    ) -> Any:
        """The state before the first round, from values that have been checked."""
        raise NotImplementedError

    def check_sweep(self, field: str) -> None:
        """Raise a `ValueError` if `field` may not be turned from a fixed number into a traced one,
        which is what a sweep does with numbers that differ."""

    def _checked_start(
        self, outer_var: PyTree, inner_var: PyTree, example_round: PyTree, buffers: PyTree
    ) -> tuple[PyTree, PyTree, PyTree, RoundSpec]:
        """Validated x_1, y_1 and buffers, and the specification of the rounds, for `init`."""
        outer_var = validation.variable(outer_var, "outer_var")
        if inner_var is not None:
            inner_var = validation.variable(inner_var, "inner_var")
        buffers = jax.tree.map(lambda leaf: validation.strong(jnp.asarray(leaf)), buffers)
        spec = RoundSpec.of(example_round)
        self.problem.check(outer_var, inner_var, spec.example(), buffers)
        if trees.is_concrete(outer_var) and not self.problem.domain.contains(outer_var):
            projected = self.problem.domain.project(outer_var)
            shown = eqx.tree_pformat(self.problem.domain, short_arrays=False)
            raise ValueError(
                f"outer_var must start in the domain {shown}, but is {outer_var}; "
                f"the nearest point of the domain is problem.domain.project(outer_var) = "
                f"{projected}."
            )
        return outer_var, inner_var, buffers, spec


def _is_window(node: Any) -> bool:
    return isinstance(node, RingBuffer)


def _without_windows(state: PyTree) -> PyTree:
    return jax.tree.map(lambda node: None if _is_window(node) else node, state, is_leaf=_is_window)
