"""Errors for rounds that the guard rejects, and warnings about runs that cannot be trusted.

They are made on the host from histories: nothing is added to a compiled step.
"""

import dataclasses
import warnings

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import ArrayLike

from .._support import trees
from .._support.messages import counted
from .._support.trees import PyTree
from ..algorithms import Algorithm, Info
from ..algorithms.base import State
from ..hypergradient import Remedy

# v = 0 has a residual of 1. A residual is called unsolved "in every round" after this many rounds:
# a solver that starts from the last round's v may need some to converge.
UNSOLVED, ROUNDS = 0.9, 20
# With a residual above 1, v is further from the solution than v = 0 is. On networks, whose Hessian
# is not positive definite, that happens in some rounds; above this share of them it is warned of.
SHARE = 0.1
# Larger than the residual of any solver that works: a series diverges, or a Hessian is singular.
ENORMOUS = 1e3
# A live stream reads the residual of each of the first CLOSELY rounds, then of one in SELDOM.
CLOSELY, SELDOM = 128, 64


class RejectedRoundError(RuntimeError):
    """The guard rejected a round: it, or what it would have done to the state, is not finite.

    `index` counts the rounds given to the driver from 0; `state` is the state before that round,
    from which one can go on.
    """

    def __init__(self, message: str, index: int, state: State):
        super().__init__(message)
        self.index = index
        self.state = state


class HypergradientWarning(UserWarning):
    """A warning that the leader follows hypergradients whose linear systems are not solved."""


class RefusedTermWarning(UserWarning):
    """A warning that past rounds left the window: they are NaN or Inf at the present x and y."""


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
        moved = " and ".join(_not_finite(algorithm, state, round)) or "the state"
        alone = _without_past(state)
        if alone is not None and not _not_finite(algorithm, alone, round, every=True):
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


def _not_finite(
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


def on_host(leaf: ArrayLike) -> np.ndarray:
    """Return the whole of an array. All processes must ask for one that is sharded over them."""
    if isinstance(leaf, jax.Array) and not (leaf.is_fully_addressable or leaf.is_fully_replicated):
        from jax.experimental import multihost_utils

        return np.asarray(multihost_utils.process_allgather(leaf, tiled=True))
    return np.asarray(leaf)


def distrust(residuals: np.ndarray, remedy: Remedy) -> str | None:
    """Return why hypergradients with these residuals cannot be trusted and what to try, or `None`.

    Rounds without a linear system have a residual of zero and do not count.
    """
    nonzero = residuals[~(residuals == 0)]
    if nonzero.size == 0:
        return None
    worst = float(np.max(nonzero)) if np.isfinite(nonzero).all() else float("inf")
    if worst > ENORMOUS:
        size = f"a relative residual of {worst:.1e} in one of {counted(nonzero.size, 'round')}"
    elif nonzero.size >= ROUNDS and float(np.min(nonzero)) >= UNSOLVED:
        rounds = f"in every one of {nonzero.size:,} rounds"
        size = f"a relative residual of {np.median(nonzero):.2g} {rounds}"
    elif nonzero.size >= ROUNDS and np.mean(nonzero > 1) >= SHARE:
        size = f"a relative residual above 1 in {np.sum(nonzero > 1):,} of {nonzero.size:,} rounds"
    else:
        return None
    return (
        f"the hypergradient cannot be trusted: {remedy.undone} {size} (0 is solved, 1 as good as "
        f"not begun). Try {remedy.cure}; obax.check_hypergradient(problem, x, y, round) says what "
        f"is wrong with the problem."
    )


def warn_of_residuals(
    residuals: np.ndarray, remedy: Remedy, stacklevel: int, where: str = ""
) -> bool:
    """Warn if the hypergradients cannot be trusted, and return whether that is so."""
    reason = distrust(residuals, remedy)
    if reason is not None:
        warnings.warn(where + reason, HypergradientWarning, stacklevel=stacklevel + 1)
    return reason is not None


def warn_of_refused(refused: np.ndarray, stacklevel: int, first: int = 0, where: str = "") -> None:
    """Warn if rounds made past rounds leave the window.

    `refused` has their number for each round, counted from 0, of which `first` is the first.
    """
    when = first + np.flatnonzero(refused)
    if not when.size:
        return
    some = ", ".join(map(str, when[:5])) + (", ..." if when.size > 5 else "")
    count = int(np.sum(refused))
    warnings.warn(
        f"{where}{counted(count, 'past round')} left the window in round {some} "
        f"(counted from 0): fine when they came, their losses or gradients are NaN or Inf at a "
        f"later x and y. The others go on without them; no step size is to blame. A loss that is "
        f"finite on all of the domain keeps them (info.refused_terms counts).",
        RefusedTermWarning,
        stacklevel=stacklevel + 1,
    )


def warn_of_sweep(history: Info, remedy: Remedy, stacklevel: int) -> None:
    """Warn once for all settings and seeds of a sweep, whose rounds are on the last axis."""
    residuals, accepted, refused = (
        on_host(part).reshape(-1, part.shape[-1])
        for part in (history.solver_residual, history.accepted, history.refused_terms)
    )

    def where_of(bad: list[int]) -> str:
        place = np.unravel_index(bad[0], history.accepted.shape[:-1])
        number = f"history[{', '.join(map(str, place))}]" if place else "history"
        return f"in {len(bad):,} of {len(accepted):,} runs, {number} the first of them: "

    played = [residual[counts] for residual, counts in zip(residuals, accepted, strict=True)]
    if bad := [i for i, one in enumerate(played) if distrust(one, remedy)]:
        warn_of_residuals(played[bad[0]], remedy, stacklevel + 1, where_of(bad))
    if bad := np.flatnonzero(np.any(refused * accepted, axis=-1)).tolist():
        warn_of_refused(refused[bad[0]] * accepted[bad[0]], stacklevel + 1, where=where_of(bad))


class LiveDiagnostics:
    """The residuals of a live stream: each one until a round was solved, then one in SELDOM rounds.
    The last CLOSELY that were read are kept.

    Warns once. `due` is the next round, counted from 1, whose residual is wanted: reading it takes
    time.
    """

    def __init__(self, remedy: Remedy) -> None:
        self.remedy = remedy
        self.due: float = 1
        self.seen: list[float] = []

    def look(self, round: int, residual: float, stacklevel: int) -> None:
        """Take the residual of a round into account."""
        if residual != 0:
            self.seen = [*self.seen[-CLOSELY:], residual]
        if warn_of_residuals(np.asarray(self.seen), self.remedy, stacklevel + 1):
            self.due = float("inf")
            return
        # "In every round" can no longer be true where one was solved; the rest still can.
        solved = 0 < residual < UNSOLVED
        self.due = round + (SELDOM if solved or round >= CLOSELY else 1)
