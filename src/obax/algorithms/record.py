"""The record of a round."""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from .._support import trees
from .._support.lazy import Lazy
from .._support.trees import PyTree
from ..problem import Problem
from .follower import Follower


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
    """|grad_y g_t(x_t, y_{t+1})|: how far the follower still is from its answer."""
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
    recorded: PyTree = None
    """What `run(record=...)` asked for."""

    @property
    def rejected(self) -> Int[Array, ""]:
        """How many rounds the guard rejected."""
        return jnp.sum(~self.accepted)


def record(
    problem: Problem,
    t: Int[Array, ""],
    outer_var: PyTree,
    before: Follower,
    after: Follower,
    round: PyTree,
    *,
    hypergradient: PyTree,
    residual: Any = 0.0,
    gradients: Any = 0,
    hvps: Any = 0,
    cross_products: Any = 0,
    evaluations: Any = 0,
) -> Info:
    """The record of a round that took the follower from `before` to `after`."""
    played_value = problem.outer_loss(outer_var, before.inner_var, round, before.buffers)
    outer_value = problem.outer_loss(outer_var, after.inner_var, round, after.buffers)
    if problem.inner is None:
        inner_value, slope = jnp.zeros_like(outer_value), jnp.zeros_like(outer_value)
    else:
        (inner_value, _), slope = jax.value_and_grad(problem.inner_loss, argnums=1, has_aux=True)(
            outer_var, after.inner_var, round, after.buffers
        )
    return Info(
        t=t,
        outer_var=outer_var,
        outer_value=outer_value,
        played_value=played_value,
        inner_value=inner_value,
        hypergradient_norm=trees.norm(hypergradient),
        inner_gradient_norm=trees.norm(slope),
        solver_residual=jnp.asarray(residual, outer_value.dtype),
        accepted=jnp.asarray(True),
        gradients=jnp.asarray(gradients, jnp.int32),
        hvps=jnp.asarray(hvps, jnp.int32),
        cross_products=jnp.asarray(cross_products, jnp.int32),
        evaluations=jnp.asarray(evaluations, jnp.int32),
    )
