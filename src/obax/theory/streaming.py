r"""Streaming models: a discounted ridge against a comparator that moves, a mixture against its best.

**Discounted ridge.** The follower of the streaming regressor with a forgetting factor
$\lambda = m / (1 + m)$ (a memory of m rows), an inertia $\rho > 0$ and a penalty on some entries,
$R = \mu \operatorname{diag}(\cdot)$. With $A_t = \sum_{i<t} \lambda^{t-1-i} a_i a_i^\top$ it predicts
row t by $c_t \cdot a_t$ and then learns it, $\ell_t(y) = \frac12 (y \cdot a_t - b_t)^2$:

$$ c_t = \arg\min_y \tfrac12 |y - y_t|^2_{P_t} + \tfrac12 |y|^2_R, \qquad
   y_{t+1} = \arg\min_y \ell_t(y) + \tfrac12 |y - c_t|^2_{L_t}, \qquad
   P_t = \lambda A_t + \rho I, \quad L_t = P_t + R. $$

Both are quadratic, so that for every u, with $v_t = a_t^\top L_t^{-1} a_t$ and
$M_t = L_t + a_t a_t^\top$, *exactly*

$$ \ell_t(c_t) - \ell_t(u) = \tfrac{v_t}{1 + v_t} \ell_t(c_t) + \tfrac12 |u - y_t|^2_{P_t}
   - \tfrac12 |u - y_{t+1}|^2_{M_t} + \tfrac12 |u|^2_R
   - \tfrac12 |c_t - y_t|^2_{P_t} - \tfrac12 |c_t|^2_R. \tag{row} $$

$M_t = P_{t+1} + N_{t+1}$ with $N_t = R + (1 - \lambda) A_t$, what a row forgets. Summed over rows
s..T with $u = u_t$, the distances to $y_t$ meet in pairs; for $\Delta_t = u_t - u_{t-1}$ and any y

$$ \tfrac12 |u_t - y|^2_{P_t} - \tfrac12 |u_{t-1} - y|^2_{P_t + N_t}
   \leq \tfrac12 |\Delta_t|^2_{P_t + P_t N_t^{-1} P_t}, \tag{path} $$

the maximum over y, at $u_{t-1} - y = N_t^{-1} P_t \Delta_t$. And
$\frac{v}{1 + v} \leq \ln(1 + v)$. With $G = \max_t \ell_t(c_t)$ therefore

$$ \sum_{t=s}^T \ell_t(c_t) - \ell_t(u_t) \leq \tfrac12 |u_s - y_s|^2_{P_s}
   + \tfrac12 \sum_{t=s}^T |u_t|^2_R + \tfrac12 \sum_{t=s+1}^T |\Delta_t|^2_{P_t + P_t N_t^{-1} P_t}
   + G \sum_{t=s}^T \ln(1 + v_t). \tag{bound} $$

In the discount and the squared path length $P_2 = \sum_t |\Delta_t|^2$: where $|a_t|^2 \leq X^2$ in
d entries, $\ln(1 + v_t) = \ln \det M_t - \ln \det L_t$, $\lambda M_{t-1} \preceq L_t$ and
$A_t \preceq (1 + m) X^2$ give

$$ \sum_{t=s}^T \ln(1 + v_t) \leq d \ln\Big(1 + \frac{(1 + m) X^2}{d \rho}\Big) + d (T - s) \ln \frac1\lambda,
   \qquad \text{path} \leq \tfrac12 (1 + \kappa) (m X^2 + \rho) P_2, $$

for a $\kappa$ with $P_t \preceq \kappa N_t$. If every entry has the penalty, $\max(m, \rho / \mu)$. If
the last one, with $a_{t,d} = 1$, has none, then $|w|^2_{N_t} \geq \mu |z|^2 + (1 - \lambda) r^2$ for
$w = (z, w_d)$ and $r = \bar x \cdot z + w_d$ (Jensen; $\bar x$ the mean of the other entries), and
$w_d^2 \leq 2 r^2 + 2 X^2 |z|^2$, hence $m + \rho \max((1 + 2 X^2) / \mu, 2 (1 + m))$. For
$\rho = \mu = 0$, classical recursive least squares, it is m, and the path term of (bound) is
$\frac{m}{2} \sum_t |\Delta_t|^2_{A_t}$.

**Mixture.** Shares $w_1 = 1/N$, $w_{t+1} = (1 - \alpha) w_t p_t / (w_t \cdot p_t) + \alpha / N$ are
the posterior over *sequences* of members that begin anywhere, stay with probability
$1 - \alpha + \alpha / N$ and move to any other with $\alpha / N$. So
$\sum_t -\ln(w_t \cdot p_t) = -\ln \sum_{\text{sequences}} \text{prior} \cdot \text{likelihood}$, at
most $-\ln$ of one term: $-\ln$ prior above the loss of that sequence. For $\alpha = 0$ that is
$\ln N$ above the best member.
"""  # noqa: E501

import dataclasses
import math
from typing import ClassVar

import numpy as np
from jaxtyping import ArrayLike
from numpy.typing import NDArray

from .._support.checks import BelowOne, Count, Positive, check_fields
from .setting import Curve


@dataclasses.dataclass(frozen=True)
class DiscountedRidge:
    """Regret bound of a frozen member of `StreamingRegressor`: see the head of this file.

    With an `intercept`, the last entry of a row is 1 and has no penalty.

    >>> ridge = DiscountedRidge(memory=9.0, penalty=0.1, inertia=0.1, intercept=False)
    >>> ridge.forgetting, ridge.kappa(X_2=1.0)
    (0.9, 9.0)
    >>> ridge.path_weight(np.eye(1)).round(6).tolist()
    [[6.0]]
    """

    memory: Positive
    penalty: Positive
    inertia: Positive
    intercept: bool = True

    assumptions: ClassVar[tuple[str, ...]] = (
        "squared loss of one output, rows of weight 1; rows and targets may be an adversary's",
        "memory, penalty > 0 and inertia > 0 stay as they are",
        "G, the largest loss of a row so far, is measured: ridge predictions have no bound",
    )

    def __post_init__(self) -> None:
        check_fields(self)

    @property
    def forgetting(self) -> float:
        """Forgetting factor lambda = m / (1 + m)."""
        return self.memory / (1.0 + self.memory)

    def kappa(self, X_2: float) -> float:
        """Return a kappa with P_t at most kappa N_t, if |a_t|^2 <= X_2."""
        m, rho, mu = self.memory, self.inertia, self.penalty
        if not self.intercept:
            return max(m, rho / mu)
        return m + rho * max((1.0 + 2.0 * X_2) / mu, 2.0 * (1.0 + m))

    def ridge(self, inputs: int) -> Curve:
        """Return R, the penalties of so many entries."""
        penalties = np.full(inputs, self.penalty)
        if self.intercept:
            penalties[-1] = 0.0
        return np.diag(penalties)

    def tie(self, curvature: NDArray[np.float64]) -> Curve:
        """Return P for A, one or a stack of them: the weight of the distance to the model before
        the row."""
        return self.forgetting * curvature + self.inertia * np.eye(curvature.shape[-1])

    def released(self, curvature: NDArray[np.float64]) -> Curve:
        """Return N for A: the weight that is forgotten with a row."""
        return self.ridge(curvature.shape[-1]) + (1.0 - self.forgetting) * curvature

    def path_weight(self, curvature: NDArray[np.float64]) -> Curve:
        """Return P + P N^-1 P for A: twice the cost of a step of the comparator of length 1."""
        P = self.tie(curvature)
        return np.asarray(P + P @ np.linalg.solve(self.released(curvature), P))

    def bound(
        self, *, start: ArrayLike, U: ArrayLike, path: ArrayLike, volume: ArrayLike, G: ArrayLike
    ) -> Curve:
        """Return (bound) from its four terms as measured, `volume` being the sum of ln(1 + v_t):
        each a number, or a curve over t."""
        return np.asarray(start) + np.asarray(U) + np.asarray(path) + np.multiply(G, volume)

    def explicit_bound(
        self,
        *,
        T: ArrayLike,
        inputs: int,
        X_2: float,
        start: ArrayLike,
        U: ArrayLike,
        P_2: ArrayLike,
        G: ArrayLike,
    ) -> Curve:
        """Return the same in discount and squared path length, for T rows of so many entries,
        all with |a_t|^2 <= X_2."""
        path = 0.5 * (1.0 + self.kappa(X_2)) * (self.memory * X_2 + self.inertia) * np.asarray(P_2)
        once = math.log1p((1.0 + self.memory) * X_2 / (inputs * self.inertia))
        volume = inputs * (once + (np.asarray(T) - 1.0) * math.log(1.0 / self.forgetting))
        return self.bound(start=start, U=U, path=path, volume=volume, G=G)


@dataclasses.dataclass(frozen=True)
class SharedMixture:
    """Regret bound of a mixture of N members with a fixed share, for its log loss.

    >>> round(float(SharedMixture(6).bound(1000)), 4)  # ln 6
    1.7918
    >>> round(float(SharedMixture(6, share=0.001).bound(1000, switches=2)), 2)
    20.02
    """

    members: Count
    share: BelowOne = 0.0

    assumptions: ClassVar[tuple[str, ...]] = (
        "log loss of what the mixture says, rows of weight 1; members of any kind",
        "every member says something finite of every row, and gives the target at least 1e-300",
    )

    def __post_init__(self) -> None:
        check_fields(self)

    def bound(self, T: ArrayLike, switches: int = 0) -> Curve:
        """Return the bound on the regret to the best sequence of members with at most so many
        switches in T rows; infinite where the share allows none."""
        N, k, rows = self.members, switches, np.asarray(T, np.float64)
        if k and self.share == 0.0:
            return np.full(rows.shape, math.inf)
        stay = -math.log(1.0 - self.share + self.share / N)
        move = k * math.log(N / self.share) if k else 0.0
        return np.asarray(math.log(N) + move + np.maximum(rows - 1.0 - k, 0.0) * stay)
