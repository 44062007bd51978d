r"""Strongly convex $\phi_t(x) = f_t(x, y^*_t(x))$: dynamic and static regret, with w = 1.

Theorems 4 (dynamic) and 6 (static). Below G is
`Constants.hypergradient_bound` and $\gamma = 3\mu_f / (2/\alpha + \mu_f)$.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import ArrayLike

from .._support.checks import checked
from .constants import Constants
from .setting import (
    Curve,
    InverseTime,
    Setting,
    admissible_step_size,
    inner_steps_for,
    measured,
)

ASSUMPTIONS = (
    "Every f_t is ell_f0-Lipschitz on X x R^d2; the proofs need it only at y = y*_t(x) (A1).",
    "Every g_t(x, .) is mu_g-strongly convex for x in X (A2).",
    "The gradients of f_t and g_t and the Hessian of g_t are ell_f1-, ell_g1- and ell_g2-Lipschitz "
    "on X x R^d2 (A3).",
    "X is closed and convex with diameter at most D, and ||y_1 - y*_1(x_1)|| <= D_prime "
    "(Assumption 2).",
    "The window has length w = 1 and the follower trains on the current round (Algorithm 1).",
)
STRONGLY_CONVEX = "Every x -> f_t(x, y*_t(x)) is mu_f-strongly convex on X"


@dataclass(frozen=True, kw_only=True)
class StronglyConvexDynamic(Setting):
    """Theorem 4: BD-Reg_T is at most the smaller of a bound in path lengths and a squared one."""

    outer_step_size: float
    inner_steps: int

    name = "strongly_convex_dynamic"
    theorem = "Theorem 4"
    assumptions = (*ASSUMPTIONS, f"{STRONGLY_CONVEX} (Theorem 4).")

    def bound(
        self,
        *,
        P_1: ArrayLike,
        Y_1: ArrayLike,
        P_2: ArrayLike,
        Y_2: ArrayLike,
        squared_gradients: ArrayLike,
        printed: bool = False,
    ) -> Curve:
        r"""Return the smaller of `bound_by_path` and `bound_by_squared_path`, t by t."""
        return np.minimum(
            self.bound_by_path(P_1=P_1, Y_1=Y_1, printed=printed),
            self.bound_by_squared_path(P_2=P_2, Y_2=Y_2, squared_gradients=squared_gradients),
        )

    def bound_by_path(self, *, P_1: ArrayLike, Y_1: ArrayLike, printed: bool = False) -> Curve:
        r"""Return Equation (56), which is printed with $\ell_{f,0}$ in place of G (erratum 1):

        $$ G \big[\tfrac{4}{\gamma}(D + P_{1,T}) + \tfrac{1}{2 L_y}(D' + Y_{1,T})\big]. $$

        The bracket is Lemma 19 (H1), a bound on the sum over t of ||x_t - x*_t||.
        """
        path, inner_path = measured(P_1=P_1, Y_1=Y_1)
        c = self.constants
        D, D_prime = c.require(self.name, "D", "D_prime")
        tracking = 4.0 / self.gamma * (D + path) + (D_prime + inner_path) / (2.0 * c.L_y)
        return np.asarray((c.ell_f0 if printed else c.hypergradient_bound) * tracking)

    def bound_by_squared_path(
        self, *, P_2: ArrayLike, Y_2: ArrayLike, squared_gradients: ArrayLike
    ) -> Curve:
        r"""Return Equation (60), with `squared_gradients` $= \sum_t \|\nabla \phi_t(x^*_t)\|^2$:

        $$ \tfrac12 \sum_t \|\nabla \phi_t(x^*_t)\|^2 + (1 + L_f) \Big[
           \tfrac{32}{23 \gamma} \big(D^2 + (1 + \tfrac{2}{\gamma}) P_{2,T}\big)
           + \tfrac{3}{184 L_y^2} (D'^2 + 6 Y_{2,T}) \Big]. $$
        """
        path, inner_path, gradients = measured(
            P_2=P_2, Y_2=Y_2, squared_gradients=squared_gradients
        )
        c, gamma = self.constants, self.gamma
        D, D_prime = c.require(self.name, "D", "D_prime")
        outer = 32.0 / (23.0 * gamma) * (D**2 + (1.0 + 2.0 / gamma) * path)
        inner = 3.0 / (184.0 * c.L_y**2) * (D_prime**2 + 6.0 * inner_path)
        return np.asarray(0.5 * gradients + (1.0 + c.L_f) * (outer + inner))

    @property
    def gamma(self) -> float:
        """Contraction of the leader at this alpha, Equation (39)."""
        return self.constants.gamma(self.outer_step_size)


@dataclass(frozen=True, kw_only=True)
class StronglyConvexStatic(Setting):
    """Theorem 6: BS-Reg_T = O(log T + Y_bar_{2,T})."""

    outer_step_size: InverseTime
    inner_steps: int

    name = "strongly_convex_static"
    theorem = "Theorem 6"
    assumptions = (*ASSUMPTIONS, f"{STRONGLY_CONVEX} (Theorem 6).")

    def bound(self, *, T: ArrayLike, Y_bar_2: ArrayLike, printed: bool = False) -> Curve:
        r"""Return half of Equation (69), with G and with the 1 of $\sum_t 1/t \leq \log T + 1$:

        $$ \tfrac{2 G^2}{\mu_f} (\log T + 1) + \tfrac{\mu_f}{96 L_y^2} D'^2
           + \tfrac{\mu_f}{16 L_y^2} \bar Y_{2,T}. $$

        Printed as $e_3 \log T + e_2 \bar Y_{2,T} + e_1$ of Equation (70) (errata 1 and 2): twice
        that, with $\ell_{f,0}$ in place of G and without the 1.
        """
        rounds, inner_path = measured(T=T, Y_bar_2=Y_bar_2)
        c = self.constants
        mu_f, D_prime = c.require(self.name, "mu_f", "D_prime")
        slope, first = (c.ell_f0, 0.0) if printed else (c.hypergradient_bound, 1.0)
        leader = 2.0 * slope**2 / mu_f * (np.log(rounds) + first)
        follower = mu_f / (96.0 * c.L_y**2) * (D_prime**2 + 6.0 * inner_path)
        return np.asarray((2.0 if printed else 1.0) * (leader + follower))


@checked
def strongly_convex_dynamic(
    constants: Constants, *, outer_step_size: float | None = None
) -> StronglyConvexDynamic:
    r"""Return the steps and the bound of Theorem 4; by default alpha is the largest allowed.

    $$ \alpha \leq \frac{\mu_f}{128 M_f^2 L_y^2}, \qquad
       K = \Big\lceil \tfrac{\kappa_g + 1}{4} \log 4 (\tfrac{1}{\alpha \mu_f} + 2)^2 \Big\rceil + 1. $$

    The paper's other condition, $\alpha \leq 1/\ell_{f,1}$ (it should be $1/L_f$), never binds: since
    $\mu_f \leq L_f$ and $\kappa_g \geq 1$, the first one gives $\alpha \leq 1/(32 L_f)$.

    >>> constants = Constants(
    ...     ell_f0=1.0, ell_f1=1.0, ell_g1=2.0, ell_g2=0.0, mu_g=1.0, mu_f=1.0, D=1.0, D_prime=0.0
    ... )
    >>> setting = strongly_convex_dynamic(constants)
    >>> 1.0 / setting.outer_step_size, setting.inner_steps
    (4608.0, 15)
    """  # noqa: E501
    name = StronglyConvexDynamic.name
    mu_f, *_ = constants.require(name, "mu_f", "D", "D_prime")
    largest = mu_f / (128.0 * constants.M_f**2 * constants.L_y**2)
    alpha = admissible_step_size(name, outer_step_size, largest)
    return StronglyConvexDynamic(
        constants=constants,
        outer_step_size=alpha,
        inner_steps=inner_steps_for(constants, 4.0 * (1.0 / (alpha * mu_f) + 2.0) ** 2),
    )


@checked
def strongly_convex_static(constants: Constants) -> StronglyConvexStatic:
    r"""Return the steps and the bound of Theorem 6.

    $$ \alpha_t = \frac{2}{\mu_f t}, \qquad
       K = \Big\lceil \tfrac{\kappa_g + 1}{4} \log \big((24 L_y M_f / \mu_f)^2 + 2\big)
       \Big\rceil + 1. $$

    >>> constants = Constants(
    ...     ell_f0=1.0, ell_f1=1.0, ell_g1=2.0, ell_g2=0.0, mu_g=1.0, mu_f=1.0, D=1.0, D_prime=0.0
    ... )
    >>> setting = strongly_convex_static(constants)
    >>> float(setting.outer_step_size(8)), setting.inner_steps
    (0.25, 9)
    """
    name = StronglyConvexStatic.name
    # D does not enter: with these steps its terms cancel in Equation (68).
    mu_f, _ = constants.require(name, "mu_f", "D_prime")
    inverse_square = (24.0 * constants.L_y * constants.M_f / mu_f) ** 2 + 2.0
    return StronglyConvexStatic(
        constants=constants,
        outer_step_size=InverseTime(2.0 / mu_f),
        inner_steps=inner_steps_for(constants, inverse_square),
    )
