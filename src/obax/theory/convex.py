r"""Convex $\phi_t(x) = f_t(x, y^*_t(x))$: dynamic and static regret, with w = 1.

Theorems 7 (dynamic) and 8 (static). The follower contracts by
$\rho_t = 1/(2t^2)$ in round t, so its errors are summable (Lemma 17):

$$ \sum_t \|y_{t+1} - y^*_t(x_t)\| \leq D' + \tfrac{\pi^2}{3} L_y D + \tfrac14 Y_{1,T}, \qquad
   \sum_t \|y_{t+1} - y^*_t(x_t)\|^2
   \leq \tfrac12 D'^2 + \tfrac{\pi^4}{15} L_y^2 D^2 + \tfrac{3}{16} Y_{2,T}. $$
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import ArrayLike

from .._support.checks import checked
from .constants import Constants
from .setting import (
    Curve,
    InverseSqrtTime,
    LogarithmicInnerSteps,
    Setting,
    admissible_step_size,
    measured,
)
from .strongly_convex import ASSUMPTIONS


@dataclass(frozen=True, kw_only=True)
class ConvexDynamic(Setting):
    """Theorem 7: BD-Reg_T = O(1 + S_{1,T} + Y_{2,T})."""

    outer_step_size: float
    inner_steps: LogarithmicInnerSteps

    name = "convex_dynamic"
    theorem = "Theorem 7"
    assumptions = (
        *ASSUMPTIONS,
        "Every x -> f_t(x, y*_t(x)) is convex and L_f-smooth on X and at the points "
        "x - grad / L_f, which may lie outside X (Theorem 7; erratum 6).",
        "Vanishing gradients: the gradient of x -> f_t(x, y*_t(x)) is zero at x*_t (Theorem 7).",
    )

    def bound(
        self, *, P_1: ArrayLike, Y_1: ArrayLike, Y_2: ArrayLike, printed: bool = False
    ) -> Curve:
        r"""Return Equation (80) with $\frac{D}{\alpha} P_{1,T}$ and the sums of `convex`:

        $$ \frac{1}{1 - 2 \alpha L_f} \Big[ \tfrac{D^2}{2 \alpha} + \tfrac{D}{\alpha} P_{1,T}
           + D M_f \textstyle\sum_t \|e_t\| + \alpha M_f^2 \sum_t \|e_t\|^2 \Big],
           \qquad e_t = y_{t+1} - y^*_t(x_t). $$

        Printed as $\dot c_1 P_{1,T} + \dot c_2 Y_{1,T} + \dot c_3 Y_{2,T} + \dot c_4$.
        """
        path, *inner_paths = measured(P_1=P_1, Y_1=Y_1, Y_2=Y_2)
        (D,) = self.constants.require(self.name, "D")
        alpha = self.outer_step_size
        leader = D**2 / (2.0 * alpha) + (0.5 if printed else 1.0) * D / alpha * path
        follower = _cost(self.constants, alpha, printed, *inner_paths)
        return np.asarray((leader + follower) / (1.0 - 2.0 * alpha * self.constants.L_f))


@dataclass(frozen=True, kw_only=True)
class ConvexStatic(Setting):
    """Theorem 8: BS-Reg_T = O(sqrt(T) + Y_bar_{1,T} + Y_bar_{2,T})."""

    outer_step_size: InverseSqrtTime
    inner_steps: LogarithmicInnerSteps

    name = "convex_static"
    theorem = "Theorem 8"
    assumptions = (*ASSUMPTIONS, "Every x -> f_t(x, y*_t(x)) is convex on X (Theorem 8).")

    def bound(
        self, *, T: ArrayLike, Y_bar_1: ArrayLike, Y_bar_2: ArrayLike, printed: bool = False
    ) -> Curve:
        r"""Return Equation (85) with G for the hypergradient:

        $$ \big(\tfrac12 + 2 (G / \ell_{f,0})^2\big) D \ell_{f,0} \sqrt{T}
           + D M_f \textstyle\sum_t \|e_t\| + \alpha_1 M_f^2 \sum_t \|e_t\|^2 . $$

        Printed as $\dot e_1 \sqrt T + \dot E_1 + \dot e_2 \bar Y_1 + \dot e_3 \bar Y_2$.
        """
        # (G / ell_f0)^2 = 1 + L_y^2: the price of steps tuned to ell_f0.
        steepness = 1.5 if printed else 0.5 + 2.0 * (1.0 + self.constants.L_y**2)
        rounds, *inner_paths = measured(T=T, Y_bar_1=Y_bar_1, Y_bar_2=Y_bar_2)
        (D,) = self.constants.require(self.name, "D")
        leader = steepness * D * self.constants.ell_f0 * np.sqrt(rounds)
        alpha_1 = self.outer_step_size.scale
        return np.asarray(leader + _cost(self.constants, alpha_1, printed, *inner_paths))


@checked
def convex_dynamic(constants: Constants, *, outer_step_size: float | None = None) -> ConvexDynamic:
    r"""Return the steps and the bound of Theorem 7; by default alpha is the largest allowed.

    $$ \alpha \leq \frac{1}{4 L_f}, \qquad
       K_t = \Big\lceil \tfrac{\kappa_g + 1}{4} \log 4 t^4 \Big\rceil + 1. $$

    >>> constants = Constants(
    ...     ell_f0=1.0, ell_f1=1.0, ell_g1=2.0, ell_g2=0.0, mu_g=1.0, D=1.0, D_prime=0.0
    ... )
    >>> setting = convex_dynamic(constants)
    >>> 1.0 / setting.outer_step_size, int(setting.inner_steps(2))
    (36.0, 5)
    """
    name = ConvexDynamic.name
    constants.require(name, "D", "D_prime")
    return ConvexDynamic(
        constants=constants,
        outer_step_size=admissible_step_size(name, outer_step_size, 1.0 / (4.0 * constants.L_f)),
        inner_steps=LogarithmicInnerSteps(constants.kappa_g),
    )


@checked
def convex_static(constants: Constants) -> ConvexStatic:
    r"""Return the steps and the bound of Theorem 8.

    $$ \alpha_t = \frac{D}{\ell_{f,0} \sqrt t}, \qquad
       K_t = \Big\lceil \tfrac{\kappa_g + 1}{4} \log 4 t^4 \Big\rceil + 1. $$

    >>> constants = Constants(
    ...     ell_f0=1.0, ell_f1=1.0, ell_g1=2.0, ell_g2=0.0, mu_g=1.0, D=1.0, D_prime=0.0
    ... )
    >>> float(convex_static(constants).outer_step_size(4))
    0.5
    """
    D, _ = constants.require(ConvexStatic.name, "D", "D_prime")
    return ConvexStatic(
        constants=constants,
        outer_step_size=InverseSqrtTime(D / constants.ell_f0),
        inner_steps=LogarithmicInnerSteps(constants.kappa_g),
    )


def _cost(
    constants: Constants, alpha: float, printed: bool, inner_path: Curve, inner_squared: Curve
) -> Curve:
    """Return the cost of the follower's errors, D M_f sum ||e_t|| + alpha M_f^2 sum ||e_t||^2."""
    L_y, M_f = constants.L_y, constants.M_f
    D, D_prime = constants.require("a convex bound", "D", "D_prime")
    if printed:  # Equation (79) (erratum 5)
        lengths = D_prime + np.pi**2 * L_y * D + np.pi**2 / 2.0 * L_y * inner_path
        squares = np.pi**4 / 30.0 * (L_y * D) ** 2 + np.pi**4 / 60.0 * L_y**2 * inner_squared
    else:
        # The factors 1/4 and 3/16 are 2 rho_2 and 12 rho_2^2: path lengths start at t = 2.
        lengths = D_prime + np.pi**2 / 3.0 * L_y * D + 0.25 * inner_path
        squares = np.pi**4 / 15.0 * (L_y * D) ** 2 + 0.1875 * inner_squared
    return D * M_f * lengths + alpha * M_f**2 * (0.5 * D_prime**2 + squares)
