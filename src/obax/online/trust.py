"""A word, once, where the hypergradients of a run cannot be trusted, or where the window has lost
rounds. On the host, after the fact: nothing is added to a compiled step."""

import warnings

import numpy as np

from .._support.counting import counted
from ..algorithms import Info
from ..hypergradient import Remedy

# A residual of 1 is what v = 0 has. So many rounds are looked at before "in every round" is said:
# a solver that starts from the last answer may need some to arrive.
UNSOLVED, ROUNDS = 0.9, 20
# More than any solver that works leaves: a series that diverges, a Hessian that is singular.
ENORMOUS = 1e3
# In a live stream every one of the first rounds is looked at, then one in so many.
CLOSELY, SELDOM = 128, 64


class HypergradientWarning(UserWarning):
    """The leader follows hypergradients that were left unsolved."""


def distrust(residuals: np.ndarray, remedy: Remedy) -> str | None:
    """Why the hypergradients with these residuals cannot be trusted and what to try, or `None`.

    Rounds in which the leader did not ask have a residual of zero and do not count.
    """
    asked = residuals[~(residuals == 0)]
    if asked.size == 0:
        return None
    worst = float(np.max(asked)) if np.isfinite(asked).all() else float("inf")
    if worst > ENORMOUS:
        found = f"a relative residual of {worst:.1e} in one of {counted(asked.size, 'round')}"
    elif asked.size >= ROUNDS and float(np.min(asked)) >= UNSOLVED:
        found = (
            f"a relative residual of {np.median(asked):.2g} in every one of {asked.size:,} rounds"
        )
    else:
        return None
    return (
        f"the hypergradient cannot be trusted: {remedy.undone} {found} (0 is solved, 1 as good as "
        f"not begun). Try {remedy.cure}; obax.check_hypergradient(problem, x, y, round) says what "
        f"is wrong with the problem."
    )


class RefusedTermWarning(UserWarning):
    """Past rounds left the window because they are NaN or Inf at today's x and y."""


def warn_of_refused(refused: np.ndarray, stacklevel: int, first: int = 0, where: str = "") -> None:
    """Warn where rounds, counted from 0, the first of them being `first`, refused some of those
    before them; those that have left the window are counted."""
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


def warn_of(residuals: np.ndarray, remedy: Remedy, stacklevel: int, where: str = "") -> bool:
    """Warn where there is reason to; whether there was."""
    reason = distrust(residuals, remedy)
    if reason is not None:
        warnings.warn(where + reason, HypergradientWarning, stacklevel=stacklevel + 1)
    return reason is not None


def warn_of_sweep(history: Info, remedy: Remedy, stacklevel: int) -> None:
    """The same once for all settings and seeds of a sweep, whose rounds are on the last axis."""
    residuals, accepted, refused = (
        np.asarray(part).reshape(-1, part.shape[-1])
        for part in (history.solver_residual, history.accepted, history.refused_terms)
    )

    def told(bad: list[int]) -> str:
        place = np.unravel_index(bad[0], history.accepted.shape[:-1])
        number = f"history[{', '.join(map(str, place))}]" if place else "history"
        return f"in {len(bad):,} of {len(accepted):,} runs, {number} the first of them: "

    known = [residual[counts] for residual, counts in zip(residuals, accepted, strict=True)]
    if bad := [i for i, one in enumerate(known) if distrust(one, remedy)]:
        warn_of(known[bad[0]], remedy, stacklevel + 1, told(bad))
    if bad := np.flatnonzero(np.any(refused * accepted, axis=-1)).tolist():
        warn_of_refused(refused[bad[0]] * accepted[bad[0]], stacklevel + 1, where=told(bad))


class LiveTrust:
    """The residuals of a live stream, looked at closely until one round was solved, then now and
    then; warns once. `due` is the next round, counted from 1, whose residual is wanted: to read it
    takes time."""

    def __init__(self, remedy: Remedy) -> None:
        self.remedy = remedy
        self.due: float = 1
        self.seen: list[float] = []

    def look(self, round: int, residual: float, stacklevel: int) -> None:
        """Take a residual in."""
        solved = 0 < residual < UNSOLVED
        if not solved:
            self.seen.append(residual)
            if warn_of(np.asarray(self.seen), self.remedy, stacklevel + 1):
                self.due = float("inf")
                return
        if solved or round >= CLOSELY:
            # "In every round" is no longer to be said; what is enormous still is.
            self.seen, self.due = [], round + SELDOM
        else:
            self.due = round + 1
