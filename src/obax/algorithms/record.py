"""Moves and records: what an algorithm returns for a round, and what is recorded of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from .._support.packing import Lazy
from .._support.trees import PyTree
from ..domain import Domain, Unconstrained
from ..hypergradient import Estimate
from ..problem import Problem
from ..round_buffer import Terms
from ..rounds import RoundSpec
from . import history
from .descent import Follower

if TYPE_CHECKING:
    import pandas as pd


class Leader(NamedTuple):
    """The leader after its move."""

    outer_var: PyTree
    optimiser: PyTree = ()


class Move(NamedTuple):
    """What an algorithm returns for round t; the base class makes the next state and the info."""

    leader: Leader
    follower: Follower
    """The follower as it leaves the round."""
    estimate: Estimate
    """The direction that the leader followed, and the oracle calls that it took."""
    gradients: int | Array = 0
    """Gradients that the estimate does not count, such as those of the follower's steps."""
    evaluations: int | Array = 0
    """Function values."""
    terms: int | Array = 1
    """How many terms of the window the direction has."""
    refused: Bool[Array, " slots"] | None = None
    """Slots of `state.past` whose rounds are not finite at today's x and y."""
    memory: Mapping[str, PyTree] = {}
    """New values of the fields that the algorithm's own state adds."""
    stored: PyTree = None
    """What is kept of the round in `state.past`; `None` for the round itself."""
    inner_step_size: Array | None = None
    """The step size of the follower, where it was adapted to the round."""

    def with_terms(self, terms: Terms | None, left: Terms | None) -> Move:
        """Return the move with the terms that were left of those that the round began with."""
        if terms is None or left is None:
            return self
        return self._replace(terms=left.number, refused=terms.refused(left))

    def changes(self, t: Int[Array, ""]) -> dict[str, PyTree]:
        """Return the fields of the next state that this move sets, with `t` for its round."""
        return {
            "t": t,
            "outer_var": self.leader.outer_var,
            "outer_optimiser": self.leader.optimiser,
            "inner_var": self.follower.inner_var,
            "inner_optimiser": self.follower.optimiser,
            "buffers": self.follower.buffers,
            "carry": self.estimate.carry,
            **self.memory,
        }


class Info(Lazy):
    """The record of one round, the same for all algorithms; stacked over rounds, a history.

    Everything is at the decision x_t that was *played*. Oracle counts are what the method itself
    asks for, without the diagnostics of this record.
    """

    t: Int[Array, ""]
    """Number of the round, from 1; a rejected round does not advance it."""
    outer_var: PyTree
    """x_t, the decision played."""
    outer_value: Float[Array, ""]
    """f_t(x_t, y_{t+1}), the leader's loss after the follower has learned from the round."""
    played_value: Float[Array, ""]
    """f_t(x_t, y_t), the loss suffered before anything is learned from the round."""
    inner_value: Float[Array, ""]
    """g_t(x_t, y_{t+1})."""
    hypergradient_norm: Float[Array, ""]
    """Norm of the direction that the leader followed."""
    inner_gradient_norm: Float[Array, ""]
    """|grad_y g_t(x_t, y_{t+1})|: how far the follower still is from its answer; in a set Y, the
    length of a projected step of size 1."""
    solver_residual: Float[Array, ""]
    """|H v - grad_y f| / |grad_y f|, the largest over the window's terms."""
    accepted: Bool[Array, ""]
    """False where the guard rejected the round and left the state as it was."""
    gradients: Int[Array, ""]
    """Gradients evaluated."""
    hvps: Int[Array, ""]
    """Hessian-vector products."""
    cross_products: Int[Array, ""]
    """Products with the cross derivative."""
    evaluations: Int[Array, ""]
    """Function values asked for by a method that does not differentiate."""
    window_terms: Int[Array, ""]
    """How many terms of the window counted, the current round's among them."""
    cut_terms: Int[Array, ""]
    """How many past rounds a cut took out of the window before the round was played."""
    refused_terms: Int[Array, ""]
    """How many past rounds left the window because they are NaN or Inf at today's pair."""
    inner_step_size: Float[Array, ""] | None = None
    """The follower's step size in this round, where it is not given."""
    recorded: PyTree = None
    """What `run(record=...)` asked for."""
    at_edge: Int[Array, ""] | None = None
    """How many coordinates of x_t lie at an edge of its domain; known in a history only."""
    follower: RoundSpec | None = eqx.field(static=True, default=None)
    """Structure, shapes and dtypes of y: what a regret needs to know of the follower."""

    @property
    def rejected(self) -> Int[Array, ""]:
        """How many rounds the guard rejected."""
        return jnp.sum(~self.accepted)

    def __repr__(self) -> str:
        return history.words(self)

    # Of a history.

    def __len__(self) -> int:
        history.check_history(self)
        return self.t.shape[0]

    def __bool__(self) -> bool:
        return True

    def __getitem__(self, index: Any) -> Info:
        return history.at(self, index)

    def __iter__(self) -> Iterator[Info]:
        return (self[t] for t in range(len(self)))

    def summary(self) -> str:
        """Return what happened in a few lines: rounds, losses, solver, follower, edges of the
        domain."""
        return history.summary(self)

    def to_pandas(self) -> pd.DataFrame:
        """Return a table with a row for each round; that of a sweep has its runs in the index."""
        return history.to_pandas(self)

    def plot(self, file: str | Path | None = None) -> Any:
        """Draw one matplotlib figure: loss suffered, x, residual, gradient of the follower. It is
        saved to `file` if that is given."""
        return history.plot(self, file)


def with_edges(info: Info, domain: Domain) -> Info:
    """Return a history with the number of coordinates of x at an edge of the domain in each
    round."""
    if isinstance(domain, Unconstrained):
        return info

    def count(x: PyTree) -> Int[Array, ""]:
        counts = [jnp.sum(leaf, dtype=jnp.int32) for leaf in jax.tree.leaves(domain.edges(x))]
        return sum(counts, jnp.zeros((), jnp.int32))

    is_unset = lambda node: node is None  # noqa: E731
    edges = jax.vmap(count)(info.outer_var)
    return eqx.tree_at(lambda i: i.at_edge, info, edges, is_leaf=is_unset)


def record(
    problem: Problem,
    state: Any,
    before: Follower,
    round: PyTree,
    move: Move,
    accepted: Bool[Array, ""],
    norm: Float[Array, ""],
    dropped: int | Array,
) -> Info:
    """Return the record of a round that was played in this state by a follower that was `before`.

    `norm` is that of the direction followed, `dropped` the number of past rounds that a cut took
    out.
    """
    outer_var, after, estimate = state.outer_var, move.follower, move.estimate
    played_value = problem.outer_loss(outer_var, before.inner_var, round, before.buffers)
    outer_value = problem.outer_loss(outer_var, after.inner_var, round, after.buffers)
    if problem.inner is None:
        inner_value, distance = jnp.zeros_like(outer_value), jnp.zeros_like(outer_value)
    else:
        (inner_value, _), slope = jax.value_and_grad(problem.inner_loss, argnums=1, has_aux=True)(
            outer_var, after.inner_var, round, after.buffers
        )
        distance = problem.inner_domain.gradient_norm(after.inner_var, slope)
    counts = {
        "gradients": move.gradients + estimate.gradients,
        "hvps": estimate.hvps,
        "cross_products": estimate.cross_products,
        "evaluations": move.evaluations,
        "window_terms": move.terms,
        "cut_terms": dropped,
        "refused_terms": 0 if move.refused is None else jnp.sum(move.refused),
    }
    return Info(
        t=state.t,
        outer_var=outer_var,
        outer_value=outer_value,
        played_value=played_value,
        inner_value=inner_value,
        hypergradient_norm=norm,
        inner_gradient_norm=distance,
        solver_residual=jnp.asarray(estimate.residual, outer_value.dtype),
        accepted=accepted,
        **{name: jnp.asarray(count, jnp.int32) for name, count in counts.items()},
        inner_step_size=move.inner_step_size,
        follower=None if problem.inner is None else RoundSpec.of(after.inner_var),
    )
