"""Warnings about runs whose hypergradients cannot be trusted or whose windows have lost rounds.

They are made on the host from histories: nothing is added to a compiled step.
"""

import warnings

import numpy as np

from .._support.messages import counted
from ..algorithms import Info
from ..hypergradient import Remedy

# v = 0 has a residual of 1. A residual is called unsolved "in every round" after this many rounds:
# a solver that starts from the last round's v may need some to converge.
UNSOLVED, ROUNDS = 0.9, 20
# Larger than the residual of any solver that works: a series diverges, or a Hessian is singular.
ENORMOUS = 1e3
# In a live stream each of the first CLOSELY rounds is looked at, then one in SELDOM.
CLOSELY, SELDOM = 128, 64


class HypergradientWarning(UserWarning):
    """A warning that the leader follows hypergradients whose linear systems are not solved."""


def distrust(residuals: np.ndarray, remedy: Remedy) -> str | None:
    """Return why the hypergradients with these residuals cannot be trusted and what to try, or
    `None`.

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
    else:
        return None
    return (
        f"the hypergradient cannot be trusted: {remedy.undone} {size} (0 is solved, 1 as good as "
        f"not begun). Try {remedy.cure}; obax.check_hypergradient(problem, x, y, round) says what "
        f"is wrong with the problem."
    )


class RefusedTermWarning(UserWarning):
    """A warning that past rounds left the window: they are NaN or Inf at the present x and y."""


def warn_of_refused(refused: np.ndarray, stacklevel: int, first: int = 0, where: str = "") -> None:
    """Warn if rounds made past rounds leave the window. `refused` has their number for each round,
    counted from 0, of which `first` is the first."""
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


def warn_of_residuals(
    residuals: np.ndarray, remedy: Remedy, stacklevel: int, where: str = ""
) -> bool:
    """Warn if there is reason to, and return whether there was."""
    reason = distrust(residuals, remedy)
    if reason is not None:
        warnings.warn(where + reason, HypergradientWarning, stacklevel=stacklevel + 1)
    return reason is not None


def warn_of_sweep(history: Info, remedy: Remedy, stacklevel: int) -> None:
    """Warn once for all settings and seeds of a sweep, whose rounds are on the last axis."""
    residuals, accepted, refused = (
        np.asarray(part).reshape(-1, part.shape[-1])
        for part in (history.solver_residual, history.accepted, history.refused_terms)
    )

    def where_of(bad: list[int]) -> str:
        place = np.unravel_index(bad[0], history.accepted.shape[:-1])
        number = f"history[{', '.join(map(str, place))}]" if place else "history"
        return f"in {len(bad):,} of {len(accepted):,} runs, {number} the first of them: "

    known = [residual[counts] for residual, counts in zip(residuals, accepted, strict=True)]
    if bad := [i for i, one in enumerate(known) if distrust(one, remedy)]:
        warn_of_residuals(known[bad[0]], remedy, stacklevel + 1, where_of(bad))
    if bad := np.flatnonzero(np.any(refused * accepted, axis=-1)).tolist():
        warn_of_refused(refused[bad[0]] * accepted[bad[0]], stacklevel + 1, where=where_of(bad))


class LiveDiagnostics:
    """The residuals of a live stream: each one until a round was solved, then one now and then.

    Warns once. `due` is the next round, counted from 1, whose residual is wanted: reading it takes
    time.
    """

    def __init__(self, remedy: Remedy) -> None:
        self.remedy = remedy
        self.due: float = 1
        self.seen: list[float] = []

    def look(self, round: int, residual: float, stacklevel: int) -> None:
        """Take the residual of a round into account."""
        solved = 0 < residual < UNSOLVED
        if not solved:
            self.seen.append(residual)
            if warn_of_residuals(np.asarray(self.seen), self.remedy, stacklevel + 1):
                self.due = float("inf")
                return
        if solved or round >= CLOSELY:
            # "In every round" can no longer be true; an enormous residual still can.
            self.seen, self.due = [], round + SELDOM
        else:
            self.due = round + 1
