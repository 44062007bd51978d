"""Members say, the mixture speaks: shares that move with the likelihood of what was said.

Member i has share w_i and gave the target the probability (for regression: density) p_i:

    said  = sum_i w_i p_i,      w_i <- (1 - share) w_i p_i / said + share / N.

For classes the log loss of the mixture is -ln said. With share = 0 the losses telescope: after any
rows of any stream, their sum is at most ln N above that of the best member. With share > 0, at most

    (k + 1) ln N + k ln(1 / share) + (T - k - 1) ln(1 / (1 - share))

above that of the best sequence of members with k switches in T rows (Herbster and Warmuth 1998).
For numbers p_i = exp(-loss_i / scale), the loss in deviations of the target; scale is the least
running mean of twice the loss among the members, known before the row: for squared loss a Gaussian
around what the member said, with the residual variance of the best. What is said is the mean under
the shares. The bounds then hold for the log score of the mixture's *density* (in units of the scale
for the sum of the losses of a member); for the squared error of its mean they do where members err
by less than a deviation of the residuals (exp-concavity), and are evidence, not proof, beyond.

A member that cannot say something finite of a row sits out: the others speak for it, and it keeps
its share, as if it had said what they did (Freund et al. 1997), which leaves the bound to them.
"""

import math

import numpy as np
from numba import njit

LEAST = 1e-300
"""Shares do not fall below it, so that they cannot be lost to underflow: over 1e12 rows that is
1e-288 in the bound."""
RESIDUAL_ROWS = 100.0
"""The memory of the running means."""
LEAST_VARIANCE = 1e-12


@njit
def mix(shares: np.ndarray, awake: np.ndarray, said: np.ndarray, out: np.ndarray) -> bool:
    """What the members say together; whether any of them can say anything."""
    total = 0.0
    for i in range(shares.shape[0]):
        total += shares[i] * awake[i]
    for c in range(out.shape[0]):
        out[c] = 0.0
    if not total > 0.0:
        return False
    for i in range(shares.shape[0]):
        if awake[i] > 0.0:
            by = 1.0 if shares.shape[0] == 1 else shares[i] / total
            for c in range(out.shape[0]):
                out[c] += by * said[i, c]
    return True


@njit
def renew(shares: np.ndarray, awake: np.ndarray, likelihood: np.ndarray, share: float) -> None:
    """The shares after the target is known. Only ratios of likelihoods count."""
    count = shares.shape[0]
    asleep, together = 0.0, 0.0
    for i in range(count):
        if awake[i] > 0.0:
            together += shares[i] * likelihood[i]
        else:
            asleep += shares[i]
    if not together > 0.0:
        return
    for i in range(count):
        new = shares[i]
        if awake[i] > 0.0:
            new = (1.0 - asleep) * shares[i] * likelihood[i] / together
        shares[i] = max((1.0 - share) * new + share / count, LEAST)


@njit
def densities(
    awake: np.ndarray, losses: np.ndarray, residuals: np.ndarray, out: np.ndarray
) -> None:
    """Of a number by each member, relative to the largest of them."""
    scale, least = math.inf, math.inf
    for i in range(awake.shape[0]):
        if awake[i] > 0.0:
            scale = min(scale, residuals[i])
            least = min(least, losses[i])
    for i in range(awake.shape[0]):
        out[i] = math.exp((least - losses[i]) / scale) if awake[i] > 0.0 else 0.0


@njit
def learn_residuals(
    awake: np.ndarray, losses: np.ndarray, residuals: np.ndarray, rows: float
) -> None:
    """Running means of twice the loss; the first rows count as they come."""
    by = 1.0 / min(rows + 2.0, RESIDUAL_ROWS)
    for i in range(awake.shape[0]):
        if awake[i] > 0.0:
            new = residuals[i] + by * (2.0 * losses[i] - residuals[i])
            residuals[i] = max(new, LEAST_VARIANCE)
