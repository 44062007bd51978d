r"""Non-convex outer losses: the local regret, Theorem 9, with any window.

The proof compares with $\nabla F_{t,u}(x, y^*_t(x))$, so all window terms must use the current
round's inner curvature: `Window(..., curvature="current", normalise="full")` (erratum 7).
"""

import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import ArrayLike

from .._support.checks import checked
from .constants import Constants
from .setting import Curve, Setting, admissible_step_size, measured


@dataclass(frozen=True, kw_only=True)
class NonconvexLocal(Setting):
    """Theorem 9: BL-Reg_{T,u} = O(T / W + H_{1,T} + H_{2,T})."""

    outer_step_size: float
    inner_steps: int

    name = "nonconvex_local"
    theorem = "Theorem 9"
    assumptions = (
        "Every f_t is ell_f0-Lipschitz on R^d1 x R^d2; the proof needs it only at y = y*_s(x) for "
        "all rounds s, and on the segments between these points (A1).",
        "Every g_t(x, .) is mu_g-strongly convex (A2).",
        "The gradients of f_t and g_t and the Hessian of g_t are ell_f1-, ell_g1- and "
        "ell_g2-Lipschitz on R^d1 x R^d2 (A3).",
        "|f_t| <= M everywhere (Assumption 3).",
        "X = R^d1: no projection takes place (Theorem 9).",
        "||y_1 - y*_1(x_1)|| <= D_prime (Assumption 2, its second half).",
        "The window divides by the full W, uses the current round's inner curvature for all of "
        "its terms, and the follower trains on the current round (Lemma 21).",
    )

    def bound(
        self,
        *,
        T: ArrayLike,
        W: ArrayLike,
        H_1: ArrayLike,
        H_2: ArrayLike,
        printed: bool = False,
    ) -> Curve:
        r"""Return the last display of the proof, with $W = \sum_i u_i$:

        $$ \tfrac{16}{\alpha} \Big(\tfrac{2 T M}{W} + 2 M + \ell_{f,0} H_{1,T}\Big)
           + 10 M_f^2 (\kappa_g - 1)^2 \Big(\tfrac{D'^2}{2 (\kappa_g + 1)} + 2 H_{2,T}\Big). $$

        The printed bound is the same: the slips in its proof are harmless (docs/theory.md).
        """
        rounds, weight, variation, squared = measured(T=T, W=W, H_1=H_1, H_2=H_2)
        c = self.constants
        M, D_prime = c.require(self.name, "M", "D_prime")
        leader = 2.0 * M * rounds / weight + 2.0 * M + c.ell_f0 * variation
        follower = D_prime**2 / (2.0 * (c.kappa_g + 1.0)) + 2.0 * squared
        return np.asarray(
            16.0 / self.outer_step_size * leader
            + 10.0 * c.M_f**2 * (c.kappa_g - 1.0) ** 2 * follower
        )


@checked
def nonconvex_local(
    constants: Constants, *, outer_step_size: float | None = None
) -> NonconvexLocal:
    r"""Return the steps and the bound of Theorem 9; by default alpha is the largest allowed.

    $$ \alpha \leq \min \Big\{ \frac{1}{8 L_f},
       \frac{1}{2 \sqrt 2 L_y M_f (\kappa_g^2 - 1)^{1/2}} \Big\}, \qquad K = 1. $$

    >>> constants = Constants(
    ...     ell_f0=1.0, ell_f1=1.0, ell_g1=2.0, ell_g2=0.0, mu_g=1.0, D_prime=0.0, M=1.0
    ... )
    >>> setting = nonconvex_local(constants)
    >>> 1.0 / setting.outer_step_size, setting.inner_steps
    (72.0, 1)
    """
    name = NonconvexLocal.name
    constants.require(name, "M", "D_prime")
    largest = 1.0 / (8.0 * constants.L_f)
    if constants.kappa_g > 1.0:  # a perfectly conditioned follower lands on y*_t in one step
        spread = math.sqrt(constants.kappa_g**2 - 1.0)
        follower = 2.0 * math.sqrt(2.0) * constants.L_y * constants.M_f * spread
        largest = min(largest, 1.0 / follower)
    return NonconvexLocal(
        constants=constants,
        outer_step_size=admissible_step_size(name, outer_step_size, largest),
        inner_steps=1,
    )
