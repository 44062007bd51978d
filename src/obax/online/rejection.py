"""Errors for rounds that the guard rejects, with the reason."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np

from .._support import trees
from .._support.trees import PyTree
from ..algorithms import Algorithm
from ..algorithms.base import State
from .device_put import on_host


class RejectedRoundError(RuntimeError):
    """The guard rejected a round: it, or what it would have done to the state, is not finite.

    `index` counts the rounds given to the driver from 0; `state` is the state before that round,
    from which one can go on.
    """

    def __init__(self, message: str, index: int, state: State):
        super().__init__(message)
        self.index = index
        self.state = state


def rejection(algorithm: Algorithm, state: State, round: PyTree, index: int) -> RejectedRoundError:
    """Return the error for a rejected round, with the reason."""
    bad = [
        trees.leaf_name(path, "round")
        for path, leaf in jax.tree_util.tree_leaves_with_path(round)
        if trees.is_float(leaf) and not np.all(np.isfinite(on_host(leaf)))
    ]
    if bad:
        reason = f"{', '.join(bad)} is not finite"
    else:
        moved = " and ".join(_spoiled(algorithm, state, round)) or "the state"
        alone = _without_past(state)
        if alone is not None and not _spoiled(algorithm, alone, round, every=True):
            reason = (
                f"the round is finite and would be fine alone, but with the past rounds that the "
                f"state keeps it would make {moved} NaN or Inf: one of them was fine when it came "
                f"and is not at today's x and y. The step size is not to blame; a loss that is "
                f"finite on all of the domain is the cure, or a window that is cut"
            )
        else:
            reason = (
                f"the round itself is finite, but it would make {moved} NaN or Inf; a smaller step "
                f"size is the usual cure"
            )
    return RejectedRoundError(
        f"round {index} (counted from 0) was rejected: {reason}. The state is as it was before the "
        f"round (error.state). Pass on_rejected='skip' to leave such rounds out and count them.",
        index,
        state,
    )


def _spoiled(
    algorithm: Algorithm, state: State, round: PyTree, *, every: bool = False
) -> list[str]:
    """Return which of x and y, or of all fields of the state, the round would make NaN or Inf."""
    new = algorithm.attempt(state, round).changes(state.t)
    names = list(new) if every else ["outer_var", "inner_var"]
    return [name for name in names if not bool(trees.all_finite(new[name]))]


def _without_past(state: State) -> State | None:
    """Return the state without past rounds; `None` if it has none."""
    past = state.past
    if past is None or not np.any(on_host(past.present)):
        return None
    return dataclasses.replace(state, past=past.only(jnp.zeros_like(past.present)))
