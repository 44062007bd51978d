r"""The constants of the assumptions, and those that Lemma 3 derives from them.

| symbol | name | bounds |
|---|---|---|
| $\ell_{f,0}$ | `ell_f0` | gradient of $f_t$ in $(x, y)$, at $y = y^*_t(x)$ (A1) |
| $\mu_g$ | `mu_g` | curvature of $g_t$ in $y$, from below (A2) |
| $\ell_{f,1}, \ell_{g,1}, \ell_{g,2}$ | `ell_f1`, `ell_g1`, `ell_g2` | Lipschitz constants of $\nabla f_t, \nabla g_t, \nabla^2 g_t$ (A3) |
| $\mu_f$ | `mu_f` | curvature of $\phi_t(x) = f_t(x, y^*_t(x))$, from below |
| $D$, $D'$ | `D`, `D_prime` | diameter of X; $\|y_1 - y^*_1(x_1)\|$ (Assumption 2) |
| $M$ | `M` | $|f_t|$ (Assumption 3) |
"""  # noqa: E501

import math
from dataclasses import dataclass

from .._support.checks import NonNegative, Positive, check_fields


@dataclass(frozen=True, kw_only=True)
class Constants:
    r"""Constants of an online bilevel problem, all of them valid for every round.

    With $\kappa_g = \ell_{g,1} / \mu_g$, the proof of Lemma 3 gives

    $$ L_y = \kappa_g, \qquad M_f = (1 + \kappa_g)(\ell_{f,1} + \ell_{f,0} \ell_{g,2} / \mu_g),
       \qquad L_f = (1 + \kappa_g) M_f. $$

    Every `ell`, `D`, `D_prime` and `M` is an upper bound and may be enlarged; every `mu` is a lower
    bound and may be reduced. Quadratic losses have `ell_g2=0`. `estimated` marks constants that
    come from samples (`estimate_constants`): no bound that uses them is certified.

    >>> constants = Constants(ell_f0=1.0, ell_f1=1.0, ell_g1=2.0, ell_g2=0.0, mu_g=1.0)
    >>> constants.L_y, constants.M_f, constants.L_f
    (2.0, 3.0, 9.0)
    """

    ell_f0: Positive
    ell_f1: Positive
    ell_g1: Positive
    ell_g2: NonNegative
    mu_g: Positive
    mu_f: Positive | None = None
    D: Positive | None = None
    D_prime: NonNegative | None = None
    M: Positive | None = None
    estimated: bool = False

    def __post_init__(self) -> None:
        for name, value in check_fields(self).items():
            if name != "estimated" and value is not None:
                object.__setattr__(self, name, float(value))
        if self.mu_g > self.ell_g1:
            raise ValueError(
                "mu_g must be at most ell_g1 (the least curvature of g_t cannot exceed the "
                f"greatest), but got mu_g={self.mu_g} and ell_g1={self.ell_g1}"
            )
        if self.mu_f is not None and self.mu_f > self.L_f:
            raise ValueError(
                "mu_f must be at most L_f (the least curvature of f_t(x, y*_t(x)) cannot exceed "
                f"the greatest), but got mu_f={self.mu_f} and L_f={self.L_f}"
            )

    @property
    def kappa_g(self) -> float:
        r"""Condition number of the follower, $\ell_{g,1} / \mu_g \geq 1$."""
        return self.ell_g1 / self.mu_g

    @property
    def L_y(self) -> float:
        """Lipschitz constant of x -> y*_t(x), Equation (25)."""
        return self.kappa_g

    @property
    def M_f(self) -> float:
        """Error of the hypergradient per unit of error in y, Equation (30)."""
        return (1.0 + self.kappa_g) * (self.ell_f1 + self.ell_f0 * self.ell_g2 / self.mu_g)

    @property
    def L_f(self) -> float:
        """Smoothness of x -> f_t(x, y*_t(x)), Equation (32)."""
        return (1.0 + self.kappa_g) * self.M_f

    @property
    def hypergradient_bound(self) -> float:
        r"""Bound on the hypergradient at $y^*_t(x)$: $\ell_{f,0} \sqrt{1 + L_y^2}$.

        The paper uses $\ell_{f,0}$ itself, which bounds the partial gradients only (erratum 1).
        """
        return self.ell_f0 * math.sqrt(1.0 + self.L_y**2)

    def gamma(self, outer_step_size: float) -> float:
        r"""Return the contraction of the leader, Equation (39): $3 \mu_f / (2 / \alpha +
        \mu_f)$."""
        (mu_f,) = self.require("gamma", "mu_f")
        return 3.0 * mu_f / (2.0 / outer_step_size + mu_f)

    def require(self, user: str, *names: str) -> tuple[float, ...]:
        """Return the named constants, or raise a `ValueError` that says which one `user` lacks,
        and why."""
        for name in names:
            if getattr(self, name) is None:
                raise ValueError(
                    f"{user} needs Constants({name}=...): {_MEANING[name]}; but got None"
                )
        return tuple(getattr(self, name) for name in names)


_MEANING = {
    "mu_f": "the strong convexity of x -> f_t(x, y*_t(x)) sets its steps and its bound",
    "D": "the diameter of X enters its bound (Assumption 2)",
    "D_prime": "the bound starts from ||y_1 - y*_1(x_1)|| <= D_prime (Assumption 2)",
    "M": "the bound on |f_t| enters the local regret (Assumption 3)",
}
