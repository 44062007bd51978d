"""What an algorithm makes of a round, and the record of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from .._support.lazy import Lazy
from .._support.trees import PyTree
from ..domain import Domain, Unconstrained
from ..hypergradient import Estimate
from ..past import Refused
from ..problem import Problem
from ..rounds import RoundSpec
from . import history
from .descent import Follower

if TYPE_CHECKING:
    import pandas as pd


class Leader(NamedTuple):
    """Where the leader has moved."""

    outer_var: PyTree
    optimiser: PyTree = ()


class Move(NamedTuple):
    """What an algorithm makes of round t; the base class makes the next state and the info of it.

    `before` and `after` are the follower as it met the round and as it left it. `direction` is what
    the leader followed where that is not the round's own `estimate`. `memory` has the new values of
    the fields that the algorithm's own state adds, `stored` what goes into a ring buffer of the
    state where that is not the round, and `refused` which slots of one hold a round that is not
    finite at today's pair. `terms` is how many terms the leader's direction has. Counts are those
    of the oracles that the estimate did not count.
    """

    leader: Leader
    before: Follower
    after: Follower
    estimate: Estimate
    gradients: int | Array = 0
    evaluations: int | Array = 0
    direction: PyTree = None
    memory: Mapping[str, PyTree] = {}
    stored: Mapping[str, PyTree] = {}
    terms: int | Array = 1
    refused: Mapping[str, Refused] = {}

    @property
    def followed(self) -> PyTree:
        """The direction that the leader followed."""
        return self.estimate.value if self.direction is None else self.direction

    def changes(self, t: Int[Array, ""]) -> dict[str, PyTree]:
        """The fields of the next state that this move sets; `t` is the number of its round."""
        return {
            "t": t,
            "outer_var": self.leader.outer_var,
            "outer_optimiser": self.leader.optimiser,
            "inner_var": self.after.inner_var,
            "inner_optimiser": self.after.optimiser,
            "buffers": self.after.buffers,
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

    def _repr_html_(self) -> str:
        return history.as_html(self)

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
        """What happened, in words: rounds, losses, solver, follower, edges of the domain."""
        return history.summary(self)

    def to_pandas(self) -> pd.DataFrame:
        """A table with a row for each round; a sweep's has its runs in the index."""
        return history.to_pandas(self)

    def plot(self, file: str | Path | None = None) -> Any:
        """One matplotlib figure: loss suffered, x, residual, gradient of the follower; saved to
        `file` where one is named."""
        return history.plot(self, file)


def with_edges(info: Info, domain: Domain) -> Info:
    """A history that knows in which rounds x lay at an edge of its domain."""
    if isinstance(domain, Unconstrained):
        return info

    def count(x: PyTree) -> Int[Array, ""]:
        found = [jnp.sum(leaf, dtype=jnp.int32) for leaf in jax.tree.leaves(domain.edges(x))]
        return sum(found, jnp.zeros((), jnp.int32))

    is_unset = lambda node: node is None  # noqa: E731
    edges = jax.vmap(count)(info.outer_var)
    return eqx.tree_at(lambda i: i.at_edge, info, edges, is_leaf=is_unset)


def record(
    problem: Problem,
    t: Int[Array, ""],
    outer_var: PyTree,
    round: PyTree,
    move: Move,
    accepted: Bool[Array, ""],
    norm: Float[Array, ""],
    dropped: int | Array,
) -> Info:
    """The record of round t, in which x_t was played; `norm` is that of the direction followed,
    `dropped` how many past rounds a cut ended."""
    before, after, estimate = move.before, move.after, move.estimate
    played_value = problem.outer_loss(outer_var, before.inner_var, round, before.buffers)
    outer_value = problem.outer_loss(outer_var, after.inner_var, round, after.buffers)
    if problem.inner is None:
        inner_value, distance = jnp.zeros_like(outer_value), jnp.zeros_like(outer_value)
    else:
        (inner_value, _), slope = jax.value_and_grad(problem.inner_loss, argnums=1, has_aux=True)(
            outer_var, after.inner_var, round, after.buffers
        )
        distance = problem.inner_domain.gradient_norm(after.inner_var, slope)
    return Info(
        t=t,
        outer_var=outer_var,
        outer_value=outer_value,
        played_value=played_value,
        inner_value=inner_value,
        hypergradient_norm=norm,
        inner_gradient_norm=distance,
        solver_residual=jnp.asarray(estimate.residual, outer_value.dtype),
        accepted=accepted,
        gradients=jnp.asarray(move.gradients, jnp.int32),
        hvps=jnp.asarray(estimate.hvps, jnp.int32),
        cross_products=jnp.asarray(estimate.cross_products, jnp.int32),
        evaluations=jnp.asarray(move.evaluations, jnp.int32),
        window_terms=jnp.asarray(move.terms, jnp.int32),
        cut_terms=jnp.asarray(dropped, jnp.int32),
        refused_terms=sum(
            (refused.count for refused in move.refused.values()), jnp.zeros((), jnp.int32)
        ),
        follower=None if problem.inner is None else RoundSpec.of(after.inner_var),
    )
