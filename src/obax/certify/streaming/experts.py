r"""The mixture of the real members, compared with the best member and the best switching sequence.

For classes the mixture's loss is $-\ln (w_t \cdot p_t)$, the log loss that a user suffers. For
numbers $p_i = \exp(-\text{loss}_i / \text{scale})$, with a scale that is the same for all members
and known before the row: the same holds for the log score of the mixture's density. The
prediction there is the mean, whose squared error is within the same bound only while every member
errs by less than a deviation of the residuals (exp-concavity): that is not certified.
"""

from typing import NamedTuple

import numpy as np

from ...theory import SharedMixture
from ..families.ingredients import Numbers
from ..measure.claims import share
from ..measure.outcomes import Outcome
from ..verify import Check
from .ridge import standardise
from .streams import Stream
from .watch import Watched, check_mean

LEAST = 1e-300
SWITCHES = 4
"""The comparators: members, and sequences of them with up to so many switches."""


class Mixed(NamedTuple):
    """A mixture as it was played: the likelihood that each member gave the target, the shares
    before and after each row, and the losses of the mixture."""

    likelihood: Numbers
    shares: Numbers
    next_shares: Numbers
    losses: Numbers


def of_classes(stream: Stream, seen: Watched) -> Mixed:
    """Collect the classifier's members and shares, with the log loss of what it predicts."""
    losses = -np.log(np.maximum(seen.predicted, LEAST))
    return Mixed(seen.by_member, seen.shares, seen.next_shares, losses)


def of_numbers(stream: Stream, seen: Watched) -> Mixed:
    """Return the mixture of a regressor, whose densities are relative to the best of each row:
    the best loss of a row is subtracted from all, which does not change a regret."""
    targets = standardise(stream, seen).targets
    losses = (
        0.5 * (seen.by_member - targets[:, None]) ** 2 / np.min(seen.residuals, axis=1)[:, None]
    )
    likelihood = np.exp(np.min(losses, axis=1)[:, None] - losses)
    density = np.sum(seen.shares * likelihood, axis=1)
    return Mixed(likelihood, seen.shares, seen.next_shares, -np.log(density))


def replayed(mixed: Mixed, share: float, mutant: str) -> Mixed:
    """Return the same members under a mixture with a fault: see `mutants`."""
    count = mixed.likelihood.shape[1]
    shares, losses, w = [], [], np.full(count, 1.0 / count)
    best = np.argmin(-np.sum(np.log(np.maximum(mixed.likelihood, LEAST)), axis=0))
    if mutant == "best member dropped":
        w[best] = 0.0
        w /= w.sum()
    share = {"no share": 0.0, "share x 100": min(100.0 * share, 0.9)}.get(mutant, share)
    power = {"wrong sign": -1.0, "rate 1/2": 0.5, "never renewed": 0.0}.get(mutant, 1.0)
    for p in np.maximum(mixed.likelihood, LEAST):
        shares.append(w)
        losses.append(-np.log(w @ p))
        new = w * p**power
        w = (1.0 - share) * new / new.sum() + share / count
        if mutant == "best member dropped":
            w[best] = 0.0
    return Mixed(mixed.likelihood, np.array(shares), np.array([*shares[1:], w]), np.array(losses))


def outcome(stream: Stream, seen: Watched, mixed: Mixed, *, bound: float = 1.0) -> Outcome:
    """Return regret beside bound at every row, against the comparator (member or sequence) for
    which the regret takes the largest share of its bound."""
    p = np.maximum(mixed.likelihood, LEAST)
    rows, count = p.shape
    promise, T = SharedMixture(count, stream.share), np.arange(1.0, rows + 1.0)
    suffered = np.cumsum(mixed.losses)
    regrets = suffered - best_with_switches(-np.log(p), SWITCHES if stream.share else 0)
    limits = bound * np.array([promise.bound(T, k) for k in range(len(regrets))])
    nearest = np.argmax(regrets / limits, axis=0), np.arange(rows)
    renewed = mixed.shares * p
    renewed *= (1.0 - stream.share) / np.sum(renewed, axis=1, keepdims=True)
    renewed += stream.share / count
    steps: tuple[Check, ...] = (
        share("shares renewed", "the distance to the prescribed shares / rounding",
              np.max(np.abs(mixed.next_shares - renewed), axis=1), 0.0, 1.0),
        share("loss of the mixture", "the distance of the loss to -ln(w . p) / rounding",
              np.abs(mixed.losses + np.log(np.sum(mixed.shares * p, axis=1))), 0.0,
              1.0 + np.abs(mixed.losses)),
        share("posterior", "the distance of the summed losses to -ln of the evidence / rounding",
              np.abs(suffered - evidence(p, stream.share)), 0.0, T * (1.0 + suffered)),
    )  # fmt: skip
    if len(stream.weights):
        # The log score is one of the density: that the model predicts its mean is tried apart.
        steps = (*steps, check_mean(seen))
    checks = (
        Check.worst_of("rows learned by all", "1 for such a row,", seen.played, ">=", 1.0),
        Check.worst_of("likelihoods above 1e-300", "the least likelihood",
                       np.min(mixed.likelihood, axis=1), ">=", LEAST),
    )  # fmt: skip
    curves = regrets[nearest], limits[nearest]
    return Outcome(stream, checks, steps, *curves, np.full(rows, np.inf), np.full(rows, 1.0))


def evidence(likelihood: Numbers, share: float) -> Numbers:
    """Return -ln of the probability of the first t rows, for each t: the sum over all sequences
    of members of prior times likelihood, computed in logarithms and without the shares."""
    count = likelihood.shape[1]
    moves = np.log(np.full((count, count), share / count) + (1.0 - share) * np.eye(count) + LEAST)
    reached, losses = np.full(count, -np.log(count)), []
    for logarithms in np.log(likelihood):
        ending = reached + logarithms
        top = ending.max()
        losses.append(-top - np.log(np.sum(np.exp(ending - top))))
        among = ending[:, None] + moves
        most = among.max(axis=0)
        reached = most + np.log(np.sum(np.exp(among - most), axis=0))
    return np.array(losses)


def best_with_switches(losses: Numbers, switches: int) -> Numbers:
    """Return the least sum of losses of the first t rows, for each t, of a sequence of members
    with at most 0, 1, ... switches: a line for each."""
    best, sums = np.zeros((switches + 1, losses.shape[1])), []
    for row in losses:
        before = np.full_like(best, np.inf)
        before[1:] = best[:-1].min(axis=1)[:, None]
        best = np.minimum(best, before) + row
        sums.append(best.min(axis=1))
    return np.array(sums).T
