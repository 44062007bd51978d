"""What becomes of a round that the guard rejects: an error that says why, or a count."""

import jax
import numpy as np

from .._support import trees
from .._support.trees import PyTree
from ..algorithms import Algorithm
from ..algorithms.base import State
from .places import on_host

POLICIES = ("raise", "skip")


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
    """The error for a rejected round, with the reason in words."""
    bad = [
        trees.leaf_name(path, "round")
        for path, leaf in jax.tree_util.tree_leaves_with_path(round)
        if trees.is_float(leaf) and not np.all(np.isfinite(on_host(leaf)))
    ]
    if bad:
        reason = f"{', '.join(bad)} is not finite"
    else:
        new = algorithm.attempt(state, round).changes(state.t)
        moved = [
            name for name in ("outer_var", "inner_var") if not bool(trees.all_finite(new[name]))
        ]
        reason = (
            f"the round itself is finite, but it would make {' and '.join(moved) or 'the state'} "
            f"NaN or Inf; a smaller step size is the usual cure"
        )
    return RejectedRoundError(
        f"round {index} (counted from 0) was rejected: {reason}. The state is as it was before the "
        f"round (error.state). Pass on_rejected='skip' to leave such rounds out and count them.",
        index,
        state,
    )
