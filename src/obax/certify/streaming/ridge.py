r"""The frozen member of a regressor as discounted ridge, against the rule that made the stream.

The member learns *standardised* rows, and its loss is that of a standardised target; the theorem
holds for any rows and targets, so for these. The rule, which is a line in the units of the rows, is
one in standardised units too, $u_i = w_i \sigma_i / \tau$, and moves as the running statistics
do: its path length has that in it.
"""

from typing import NamedTuple

import numpy as np

from ...theory import DiscountedRidge
from ..families.ingredients import Numbers
from ..measure.claims import share
from ..measure.outcomes import Outcome
from ..verify import Check
from .streams import WARM_UP, Stream
from .watch import CLIP, FROZEN, Watched, check_mean

LOSSY = 100.0
"""What rounding may be more of in an update: the kernel inverts, with a little added for it."""


class Standard(NamedTuple):
    """A stream as the member receives it: rows with the 1 of the intercept, targets, and the
    rule."""

    rows: Numbers
    targets: Numbers
    rule: Numbers


def standardise(stream: Stream, seen: Watched) -> Standard:
    """Standardise by the statistics known before each row; a feature that has been constant so
    far counts as 0."""
    known = seen.variances > 0.0
    deviations = np.sqrt(np.where(known, seen.variances, 1.0))
    spread = np.sqrt(np.where(seen.target_variance > 0.0, seen.target_variance, 1.0))[:, None]
    rows = np.where(known, (stream.rows - seen.averages) / deviations, 0.0)
    targets = (stream.targets - seen.target_average) / spread[:, 0]
    f = stream.rows.shape[1]
    # A feature that has not moved is worth what it is: a part of the intercept.
    level = np.where(known, seen.averages, stream.rows)
    rule = np.empty_like(stream.weights)
    rule[:, :f] = stream.weights[:, :f] * np.where(known, deviations, 0.0)
    rule[:, f] = stream.weights[:, f] + np.sum(stream.weights[:, :f] * level, axis=1)
    rule[:, f] -= seen.target_average
    return Standard(
        np.column_stack([rows, np.ones(len(rows))]),
        np.where(seen.target_variance > 0.0, targets, 0.0),
        rule / spread,
    )


class Terms(NamedTuple):
    """Quantities of the proof, a line for each row. They are computed in NumPy from the
    standardised rows, but for y, the member's weights before the row, and its prediction."""

    a: Numbers
    b: Numbers
    u: Numbers
    y: Numbers
    y_next: Numbers
    A: Numbers
    P: Numbers
    N: Numbers
    c: Numbers
    s: Numbers
    v: Numbers
    predicted: Numbers

    @property
    def loss(self) -> Numbers:
        """Loss of the member's prediction."""
        return 0.5 * (self.predicted - self.b) ** 2

    @property
    def rule_loss(self) -> Numbers:
        """Loss of the comparator."""
        return 0.5 * (_dot(self.u, self.a) - self.b) ** 2

    @property
    def moved(self) -> Numbers:
        """Step of the comparator before the row; zero before the first."""
        return np.diff(self.u, axis=0, prepend=self.u[:1])


def terms(ridge: DiscountedRidge, found: Standard, seen: Watched) -> Terms:
    """Return all of them, from the first row of the stream."""
    a, d, y = found.rows, found.rows.shape[1], seen.weights[:-1]
    A = np.zeros((len(a), d, d))
    for t in range(1, len(a)):
        A[t] = ridge.forgetting * A[t - 1] + np.outer(a[t - 1], a[t - 1])
    P, N = ridge.tie(A), ridge.released(A)
    L = P + ridge.ridge(d)
    c = np.linalg.solve(L, P @ y[:, :, None])[:, :, 0]
    s = np.linalg.solve(L, a[:, :, None])[:, :, 0]
    predicted = seen.by_member[:, FROZEN]
    own = (a, found.targets, found.rule, y, seen.weights[1:], A, P, N, c, s, _dot(s, a), predicted)
    return Terms(*(np.asarray(array, np.float64) for array in own))


def outcome(
    stream: Stream, seen: Watched, *, bound: float = 1.0, without: str | None = None
) -> Outcome:
    """Return regret beside bound at every row that counts, the assumptions, and the steps of the
    proof. `bound`, a factor, and `without`, a term that is left out of it, are for mutants."""
    ridge = DiscountedRidge(stream.memory, stream.penalty, stream.inertia)
    found = standardise(stream, seen)
    whole = terms(ridge, found, seen)
    own = Terms(*(array[WARM_UP:] for array in whole))
    R, d = ridge.ridge(own.a.shape[1]), own.a.shape[1]
    T, P_2 = np.arange(1.0, len(own.a) + 1.0), np.cumsum(_dot(own.moved, own.moved))
    start, G = _half(own.u[:1] - own.y[:1], own.P[:1])[0], np.maximum.accumulate(own.loss)
    cost = _half(own.moved, ridge.path_weight(own.A))
    measured = {
        "start": start,
        "U": np.cumsum(_half(own.u, R)),
        "path": np.cumsum(cost),
        "volume": np.cumsum(np.log1p(own.v)),
        "G": G,
    }
    sizes = {"T": T, "inputs": d, "X_2": float(np.max(_dot(found.rows, found.rows)))}
    volume = ridge.explicit_bound(**sizes, start=0.0, U=0.0, P_2=0.0, G=1.0)
    explicit = ridge.explicit_bound(**sizes, start=start, U=measured["U"], P_2=P_2, G=G)
    sharp, regret = ridge.bound(**measured), np.cumsum(own.loss - own.rule_loss)
    steps = (
        *_update(whole),
        check_mean(seen),
        _row(own, R),
        share("(path)", "what the comparator's step adds / its bound",
              (_half(own.u - own.y, own.P) - _half(own.u - own.moved - own.y, own.P + own.N))[1:],
              cost[1:], 1.0),
        share("ln(1 + v)", "sum loss v / (1 + v) / G sum ln(1 + v)",
              np.cumsum(own.loss * own.v / (1.0 + own.v)), G * measured["volume"], 1.0),
        share("volume", "sum ln(1 + v) / its bound in the discount",
              measured["volume"], volume, 1.0),
        share("explicit form", "the bound / its form in discount and path length",
              sharp, explicit, 1.0),
        share("explicit bound", "the regret / that form", regret, explicit, 1.0),
    )  # fmt: skip
    limit = bound * ridge.bound(**measured | ({without: 0.0} if without else {}))
    order = d * T / ridge.memory + ridge.memory**2 * P_2
    return Outcome(stream, _assumed(stream, seen, whole), steps, regret, limit, explicit, order)


def _update(whole: Terms) -> tuple[Check, Check]:
    """Return the checks of prediction and update, from the very first row."""
    size = 1.0 + np.max(np.abs(whole.y_next), axis=1)
    learned = whole.c + whole.s * ((whole.b - _dot(whole.c, whole.a)) / (1.0 + whole.v))[:, None]
    return (
        share("prediction", "the distance to c_t . a_t / rounding",
              np.abs(whole.predicted - _dot(whole.c, whole.a)), 0.0, LOSSY * size),
        share("the update", "the distance to the prescribed y_{t+1} / rounding",
              np.max(np.abs(whole.y_next - learned), axis=1), 0.0, LOSSY * size),
    )  # fmt: skip


def _row(own: Terms, R: Numbers) -> Check:
    """Return the check of (row), which is an identity."""
    fed = own.P + R + own.a[:, :, None] * own.a[:, None, :]
    parts = (
        own.loss * own.v / (1.0 + own.v),
        _half(own.u - own.y, own.P),
        -_half(own.u - own.y_next, fed),
        _half(own.u, R),
        -_half(own.c - own.y, own.P),
        -_half(own.c, R),
    )
    gap = np.abs(own.loss - own.rule_loss - np.sum(parts, axis=0))
    size = LOSSY * (1.0 + np.sum(np.abs(parts), axis=0))
    return share("(row)", "what is missing in the identity / rounding", gap, 0.0, size)


def _assumed(stream: Stream, seen: Watched, whole: Terms) -> tuple[Check, ...]:
    counted = slice(WARM_UP, None)
    cut = np.maximum(np.max(np.abs(whole.a), axis=1), np.abs(whole.b))
    spread = np.sqrt(seen.target_variance[counted])
    line = np.sum(stream.weights[:, :-1] * stream.rows, axis=1) + stream.weights[:, -1]
    restored = spread * _dot(whole.u, whole.a)[counted] + seen.target_average[counted]
    released = np.linalg.eigvalsh(whole.N[1:])[:, 0]
    return (
        Check.worst_of("rows learned by all", "1 for such a row,", seen.played, ">=", 1.0),
        Check.worst_of("nothing cut off", "the largest value in deviations", cut, "<=",
                       CLIP - 1e-6),
        share("known comparator", "the rule in standardised units, its distance / rounding",
              np.abs(restored - line[counted]), 0.0, LOSSY * (1.0 + np.abs(line[counted]))),
        Check.worst_of("N_t definite", "the least eigenvalue of N_t", released, ">=", 1e-12),
    )  # fmt: skip


def _dot(left: np.ndarray, right: np.ndarray) -> Numbers:
    """Return the dot product of each pair of rows."""
    return np.asarray(np.sum(left * right, axis=1), np.float64)


def _half(vectors: Numbers, matrices: Numbers) -> Numbers:
    """Return half the squared norm of each vector in each matrix."""
    return 0.5 * _dot(vectors, (matrices @ vectors[:, :, None])[:, :, 0])
