"""Whether a problem satisfies what a theorem assumes, tested on its rounds in float64.

A point at which an assumption fails refutes it for good. That no such point was found among many is
evidence, not a proof, except where the derivative in question is the same everywhere (the Hessians
of quadratic losses). The families of `obax.certify` therefore have constants in closed form, and
are tested like the problems of users.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike

from .._support.checks import Count, check
from .._support.trees import PyTree
from ..domain import Unconstrained
from ..problem import Problem
from ..problems import Instance
from ..theory import Constants, Setting
from ..window import Window
from .families.catalogue import SETTINGS
from .measure.evidence import Evidence, Points, gather

POINTS = 4
# Rounding of second derivatives, relative to the constant; third derivatives lose no more.
TOLERANCE = 1e-8


class AssumptionError(ValueError):
    """Failure of an assumption of a theorem: `assumption` is its name, `round` the round,
    counted from 1 (`None` if it does not belong to a round)."""

    def __init__(self, message: str, assumption: str, round: int | None):
        super().__init__(message)
        self.assumption = assumption
        self.round = round


@dataclass(frozen=True)
class Check:
    """Test of one assumption: the `worst` value found, which must be `relation` the `limit`."""

    assumption: str
    quantity: str
    worst: float
    relation: str
    limit: float
    round: int | None = None

    @property
    def holds(self) -> bool:
        """Whether the worst value respects the limit, to rounding; NaN does not."""
        slack = TOLERANCE * (abs(self.limit) or 1.0)
        if self.relation == "<=":
            return self.worst <= self.limit + slack
        return self.worst >= self.limit - slack

    @property
    def share(self) -> float:
        """Share of the limit that is used, 1 being all of it; 0 where the limit is zero."""
        if self.limit == 0.0:
            return 0.0
        return self.worst / self.limit if self.relation == "<=" else self.limit / self.worst

    @classmethod
    def worst_of(
        cls, assumption: str, quantity: str, values: ArrayLike, relation: str, limit: float
    ) -> "Check":
        """Return the check of one value per round in its worst round; NaN is worse than
        everything."""
        array = np.asarray(values)
        excess = array if relation == "<=" else -array
        worst = int(np.argmax(np.where(np.isnan(array), np.inf, excess)))
        return cls(assumption, quantity, float(array[worst]), relation, limit, worst + 1)

    def __str__(self) -> str:
        return f"{self.quantity} is {self.worst:.6g}, but must be {self.relation} {self.limit:.6g}"


def verify(
    problem: Problem,
    rounds: PyTree,
    constants: Constants,
    setting: str | Setting,
    *,
    outer_var: PyTree,
    inner_var: PyTree,
    outer_vars: PyTree | None = None,
    window: Window | None = None,
    points: int = POINTS,
    outer_radius: float | None = None,
    inner_radius: float | None = None,
    seed: int | Sequence[int] = 0,
    where: str | None = None,
) -> tuple[Check, ...]:
    """Test every assumption of a setting on these rounds; raise `AssumptionError` where one fails.

    **Arguments:**

    - `rounds`: stacked on axis 0; `outer_var`, `inner_var`: x_1 and y_1.
    - `setting`: one of `obax.theory`, or its name, such as `"convex_static"`.
    - `outer_vars`: the decisions played, stacked like the rounds; tried besides the random points.
    - `window`: the one that the algorithm runs with; `None`: w = 1.
    - `points`: random points of X tried in each round, half of them on its boundary.
    - `outer_radius`: how far from x_1 they are drawn; by default D / 2, or 4 on an unbounded X.
    - `inner_radius`: how far from y*_t(x) the Hessians are tried; by default
      D_prime + L_y D, how far the follower can be in the first rounds (1 without D).
    - `where`: what messages call the problem; by default the setting's name.

    **Returns:** the checks, each with the worst value found and the round it was found in.

    >>> from obax.domain import Ball
    >>> problem = Problem(
    ...     outer=lambda x, y, q: 0.5 * jnp.sum((y - q) ** 2),
    ...     inner=lambda x, y, q: 0.5 * jnp.sum((y - x) ** 2),
    ...     domain=Ball(1.0),
    ... )
    >>> constants = Constants(
    ...     ell_f0=2.5, ell_f1=1.0, ell_g1=1.0, ell_g2=0.0, mu_g=1.0, mu_f=1.5, D=2.0, D_prime=0.0
    ... )
    >>> start = {"outer_var": jnp.zeros(2), "inner_var": jnp.zeros(2)}
    >>> try:
    ...     verify(problem, jnp.ones((3, 2)), constants, "strongly_convex_static", **start)
    ... except AssumptionError as error:
    ...     print(error)
    strongly_convex_static: strongly convex f_t(x, y*_t(x)) fails in round 1: the curvature of
    f_t(x, y*_t(x)) is 1, but must be >= 1.5.
    """
    name = setting if isinstance(setting, str) else setting.name
    if name not in SETTINGS:
        raise ValueError(f"setting must be one of {', '.join(SETTINGS)}, but got {name!r}")
    if problem.inner is None or problem.has_buffers:
        raise ValueError("problem must have an inner loss without buffers to be verified")
    check(points, "points", Count)
    where = where or name
    _check_frame(problem, constants, name, window or Window(), where)
    D, D_prime = constants.D, constants.D_prime or 0.0
    if outer_radius is None:
        outer_radius = 4.0 if D is None else 0.5 * D
    if inner_radius is None:
        inner_radius = D_prime + constants.L_y * (D or 1.0)
    with jax.enable_x64(True), jax.numpy_dtype_promotion("standard"):
        instance, outer_vars = jax.tree.map(
            _double, (Instance(problem, rounds, outer_var, inner_var), outer_vars)
        )
        start, horizon = instance.outer_var, instance.horizon
        if outer_vars is None:
            outer_vars = jax.tree.map(
                lambda leaf: jnp.broadcast_to(leaf, (horizon, *leaf.shape)), start
            )
        dims = (sum(map(jnp.size, jax.tree.leaves(var))) for var in (start, instance.inner_var))
        drawn = Points.draw(
            seed, (points, horizon, *dims), (outer_radius, inner_radius, constants.L_f)
        )
        evidence = jax.tree.map(np.asarray, gather(instance, outer_vars, drawn, name))
        diameter = float(instance.problem.domain.diameter(start))
    checks = _judge(evidence, constants, name, diameter)
    for one in checks:
        if not one.holds:
            place = "" if one.round is None else f" in round {one.round}"
            raise AssumptionError(
                f"{where}: {one.assumption} fails{place}: {one}.", one.assumption, one.round
            )
    return checks


def _check_frame(
    problem: Problem, constants: Constants, name: str, window: Window, where: str
) -> None:
    """Check what needs no numbers: samples in place of constants, the domain, the window."""
    if constants.estimated:
        raise AssumptionError(
            f"{where}: constants must be known, but these are estimated=True: lower estimates of "
            "suprema certify nothing. Derive bounds, or replace(constants, estimated=False) and "
            "let verify try to refute them.",
            "known constants",
            None,
        )
    reasons = []
    if name == "nonconvex_local":
        if not isinstance(problem.domain, Unconstrained):
            reasons.append(("X = R^d1", f"the domain is {problem.domain}"))
        if window.size > 1 and window.curvature != "current":
            reasons.append(
                ("current curvature (erratum 7)", f"window.curvature is {window.curvature!r}")
            )
        if window.normalise != "full":
            reasons.append(("full W", f"window.normalise is {window.normalise!r}"))
    elif window.size != 1:
        reasons.append(("w = 1", f"the window has size {window.size}"))
    if window.size > 1 and window.follower != "current":
        reasons.append(("follower on the current round", f"window.follower is {window.follower!r}"))
    for assumption, reason in reasons:
        raise AssumptionError(f"{where}: {assumption} fails: {reason}.", assumption, None)


def _judge(
    evidence: Evidence, constants: Constants, name: str, diameter: float
) -> tuple[Check, ...]:
    """Return the checks that compare evidence with constants, for the assumptions of this
    setting."""
    c, checks = constants, []

    def most(assumption: str, quantity: str, values: ArrayLike, limit: float) -> None:
        checks.append(Check.worst_of(assumption, quantity, values, "<=", limit))

    def least(assumption: str, quantity: str, values: ArrayLike, limit: float) -> None:
        checks.append(Check.worst_of(assumption, quantity, values, ">=", limit))

    smooth, phi = "smooth f_t and g_t (A3)", "f_t(x, y*_t(x))"
    (D_prime,) = c.require(name, "D_prime")
    most("Lipschitz f_t (A1)", "|grad f_t|", evidence["ell_f0"], c.ell_f0)
    least("strongly convex g_t (A2)", "the curvature of g_t", evidence["mu_g"], c.mu_g)
    most(smooth, "|Hess f_t|", evidence["ell_f1"], c.ell_f1)
    most(smooth, "the larger of |Hess_yy g_t| and |Hess_xy g_t|", evidence["ell_g1"], c.ell_g1)
    most(smooth, "|D^3 g_t|", evidence["ell_g2"], c.ell_g2)
    most("known y*_t(x)", "the residual of y*_t(x)", evidence["inner_residual"], TOLERANCE)
    most("bounded start (Assumption 2)", "|y_1 - y*_1(x_1)|", evidence["start_gap"], D_prime)
    if name == "nonconvex_local":
        (M,) = c.require(name, "M")
        most("bounded f_t (Assumption 3)", "|f_t|", evidence["value"], M)
    else:
        (D,) = c.require(name, "D")
        checks.append(Check("bounded X (Assumption 2)", "the diameter of X", diameter, "<=", D))
    if name.startswith("strongly"):
        (mu_f,) = c.require(name, "mu_f")
        least(f"strongly convex {phi}", f"the curvature of {phi}", evidence["mu_f"], mu_f)
    # Relative to L_f, so that rounding is measured against what cancels.
    relative = f"the curvature of {phi}, divided by L_f,"
    if name.startswith("convex"):
        least(f"convex {phi}", relative, evidence["mu_f"] / c.L_f, 0.0)
    if name == "convex_dynamic":
        outside = f"convex and smooth {phi} outside X (erratum 6)"
        least(outside, relative, evidence["outside_mu_f"] / c.L_f, 0.0)
        most(outside, f"|Hess {phi}|", evidence["outside_L_f"], c.L_f)
        slope = evidence["gradient_at_optimum"]
        most("vanishing gradients", f"|grad {phi}| at x*_t", slope, 0.0)
    if name.endswith("dynamic"):
        most("known x*_t", "the residual of x*_t", evidence["outer_residual"], TOLERANCE)
    # Not assumptions but consequences: they would fail if the formulas of Constants were wrong.
    most("Lemma 3 (L_y)", "|dy*_t/dx|", evidence["L_y"], c.L_y)
    error = "the error of the hypergradient per unit of error in y"
    most("Lemma 3 (M_f)", error, evidence["M_f"], c.M_f)
    most("Lemma 3 (L_f)", f"|Hess {phi}|", evidence["L_f"], c.L_f)
    return tuple(checks)


def _double(leaf: ArrayLike) -> Array:
    array = jnp.asarray(leaf)
    return array.astype(jnp.float64) if jnp.issubdtype(array.dtype, jnp.floating) else array
