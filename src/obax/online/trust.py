"""A word, once, where the hypergradients of a run cannot be trusted, or where the window has lost
rounds. On the host, after the fact: nothing is added to a compiled step."""

import warnings

import numpy as np

from .._support.counting import counted

# A residual of 1 is what v = 0 has. So many rounds are looked at before "in every round" is said:
# a solver that starts from the last answer may need some to arrive.
UNSOLVED, ROUNDS = 0.9, 20
# More than any solver that works leaves: a series that diverges, a Hessian that is singular.
ENORMOUS = 1e3
# In a live stream every one of the first rounds is looked at, then one in so many.
CLOSELY, SELDOM = 128, 64

CURE = (
    "Try more solver steps or terms, Dense() where the follower is small, a smaller step_size in "
    "Neumann or FixedPoint, or a ridge term in the inner loss; obax.check_hypergradient(problem, "
    "x, y, round) says what is wrong."
)


class HypergradientWarning(UserWarning):
    """The leader follows hypergradients whose linear systems are not solved."""


def distrust(residuals: np.ndarray) -> str | None:
    """Why the hypergradients with these residuals cannot be trusted, or `None`.

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
        f"the hypergradient cannot be trusted: the linear system H v = grad_y f was left with "
        f"{found} (0 is solved, 1 is what v = 0 leaves). {CURE}"
    )


class RefusedTermWarning(UserWarning):
    """Past rounds left the window because they are NaN or Inf at today's x and y."""


def warn_of_refused(refused: np.ndarray, stacklevel: int) -> None:
    """Warn where rounds, counted from 0, refused some of those before them."""
    when = np.flatnonzero(refused)
    if when.size:
        some = ", ".join(map(str, when[:5])) + (", ..." if when.size > 5 else "")
        warnings.warn(refusal(int(np.sum(refused)), f"in round {some} (counted from 0)"),
                      RefusedTermWarning, stacklevel=stacklevel + 1)  # fmt: skip


def refusal(count: int, when: str) -> str:
    """That so many past rounds have left the window, in words."""
    return (
        f"{counted(count, 'past round')} left the window {when}: fine when they "
        f"came, their losses or gradients are NaN or Inf at a later x and y. The others go on "
        f"without them; no step size is to blame. A loss that is finite on all of the domain keeps "
        f"them (history.refused_terms counts)."
    )


def warn_of(residuals: np.ndarray, stacklevel: int) -> bool:
    """Warn where there is reason to; whether there was."""
    reason = distrust(residuals)
    if reason is not None:
        warnings.warn(reason, HypergradientWarning, stacklevel=stacklevel + 1)
    return reason is not None


class LiveTrust:
    """The residuals of a live stream, looked at closely until one round was solved, then now and
    then; warns once. `due` is the next round, counted from 1, whose residual is wanted: to read it
    takes time."""

    def __init__(self) -> None:
        self.due: float = 1
        self.seen: list[float] = []

    def look(self, round: int, residual: float, stacklevel: int) -> None:
        """Take a residual in."""
        solved = 0 < residual < UNSOLVED
        if not solved:
            self.seen.append(residual)
            if warn_of(np.asarray(self.seen), stacklevel + 1):
                self.due = float("inf")
                return
        if solved or round >= CLOSELY:
            # "In every round" is no longer to be said; what is enormous still is.
            self.seen, self.due = [], round + SELDOM
        else:
            self.due = round + 1
