r"""Quantities of the proofs, measured along a run and compared with what the proofs claim.

Regret can be far below a bound that is false, so every inequality of a proof that is explicit is
tried in every round (or, where it sums over rounds, at every t). With $q = (\kappa_g - 1) /
(\kappa_g + 1)$, $e_t = |y_{t+1} - y^*_t(x_t)|$, $\rho_t$ of the theorem and the comparators
$x^*_t$ (or one $x^*$), as `checks` below lists them:

| name | claim |
|---|---|
| Algorithm 1, line 8 | $x_{t+1}$ is the projection of $x_t - \alpha_t \tilde\nabla F_t(x_t, y_{t+1})$ |
| Lemma 11 | $e_t \leq q^{K_t} |y_t - y^*_t(x_t)|$ |
| Equation (34) | $q^{K_t} \leq \rho_t$ |
| Lemma 3, Lemma 21 | $|\tilde\nabla F_t(x_t, y_{t+1}) - \nabla F_t(x_t, y^*_t(x_t))| \leq M_f e_t$ |
| Equation (61), (74), (81) | one step of projected descent towards the comparator |
| Equation (64), convexity | $\phi_t(x_t) - \phi_t(x^*) + \frac{\mu_f}{2} |x_t - x^*|^2 \leq \langle \nabla \phi_t(x_t), x_t - x^* \rangle$ |
| Lemma 17 | the follower's errors, summed (L2) and summed in squares (L1) |
| Lemma 18, Lemma 19 | the strongly convex leader's distance: a round, and summed (H1, H2) |
| Equation (75c) | $|\nabla \phi_t(x_t)|^2 \leq 2 L_f (\phi_t(x_t) - \phi_t(x^*_t))$ |
| Equation (98) | $(\frac\alpha2 - L_f \alpha^2) |\nabla F_t|^2 \leq F_t(x_t) - F_t(x_{t+1}) + M_f^2 (\frac\alpha2 + L_f \alpha^2) e_t^2$ |
| Lemma 22, Lemma 23 | the follower's errors and the falls of $F_t$, summed |
"""  # noqa: E501

from collections.abc import Callable

import numpy as np
from jaxtyping import Array, ArrayLike

from ...theory import Constants, Setting
from ..families.ingredients import Numbers
from ..verify import Check
from .play import Along

# Rounding, relative to what an inequality adds up.
ROUNDING = 1e-9


def rho(setting: Setting, T: Numbers) -> Numbers:
    """Return the factor by which K_t steps must contract the follower's error, as each proof
    states it."""
    c = setting.constants
    if setting.name == "strongly_convex_dynamic":
        gamma = c.gamma(float(setting.outer_step_size))  # type: ignore[arg-type]
        return np.full(len(T), gamma / (3.0 * (1.0 + gamma)))
    if setting.name == "strongly_convex_static":
        # c = mu_f / 4 and alpha_1 = 2 / mu_f in theta of the proof of Theorem 6.
        (mu_f,) = c.require(setting.name, "mu_f")
        theta = mu_f**2 / (288.0 * c.L_y**2 * c.M_f**2)
        return np.full(len(T), np.sqrt(0.5 * theta / (1.0 + theta)))
    return np.asarray(0.5 / T**2)


def checks(
    setting: Setting, found: Along, W: float, arguments: dict[str, Numbers]
) -> tuple[Check, ...]:
    """Return every claim of the table that the proof of this setting makes, with its worst
    round."""
    c, name = setting.constants, setting.name
    T = np.arange(1.0, len(found.after) + 1.0)
    alpha, K = at(setting.outer_step_size, T), at(setting.inner_steps, T)
    contraction = ((c.kappa_g - 1.0) / (c.kappa_g + 1.0)) ** K
    made = [
        share("Algorithm 1, line 8", "the distance to the prescribed x_{t+1} / rounding",
               found.step_error, 0.0, 1.0 + found.length),
        share("Lemma 11", "|y_{t+1} - y*_t| / (q^K |y_t - y*_t|)", found.after,
               contraction * found.before, 1e-3 * (1.0 + found.before)),
        share("Lemma 3" if W == 1.0 else "Lemma 21",
               "the error of the hypergradient / (M_f |y_{t+1} - y*_t|)",
               found.error, c.M_f * found.after, 1e-3 * (c.hypergradient_bound + found.slope)),
    ]  # fmt: skip
    if name == "nonconvex_local":
        return *made, *_local(setting, found, W, arguments, alpha, T)
    made.append(share("Equation (34)", "q^K / rho_t", contraction, rho(setting, T), 0.0))
    return *made, *_convex(setting, found, alpha, rho(setting, T))


# The first step of the three proofs that go through one projected step.
STEP = {
    "strongly_convex_static": "Equation (61)",
    "convex_dynamic": "Equation (74)",
    "convex_static": "Equation (81)",
}


def _convex(setting: Setting, found: Along, alpha: Numbers, rho: Numbers) -> list[Check]:
    c, name = setting.constants, setting.name
    mu_f = c.mu_f if name.startswith("strongly") and c.mu_f is not None else 0.0
    squared, after = found.distance**2, found.after
    made = []
    if name in STEP:
        # Cauchy-Schwarz and Lemma 3 in place of the last term, as the proofs go on to do.
        right = (squared - found.next_distance**2) / (2.0 * alpha) + alpha * found.slope**2
        right = right + alpha * (c.M_f * after) ** 2 + c.M_f * after * found.distance
        size = squared / alpha + alpha * found.slope**2
        made.append(
            share(STEP[name], "<grad, x_t - x*> / what one step allows",
                   found.towards, right, size)
        )  # fmt: skip
    label = "Equation (64)" if mu_f else "convexity towards x*"
    left = found.gap + 0.5 * mu_f * squared
    made.append(
        share(label, "(phi_t(x_t) - phi_t(x*) + mu_f |x_t - x*|^2 / 2) / <grad, x_t - x*>",
               left, found.towards, c.hypergradient_bound * (found.distance + 1e-4))
    )  # fmt: skip
    # Lemma 17, at every t.
    first, size = found.before[0], 1e-3 * (1.0 + found.before)
    summed = 2.0 * c.L_y * np.cumsum(rho * found.distance) + np.cumsum(rho * found.inner_path)
    right = (rho[0] * first + summed) / (1.0 - rho[0])
    made.append(
        share("Lemma 17 (L2)", "sum |y_{t+1} - y*_t| / its bound", np.cumsum(after), right, size)
    )
    summed = 2.0 * c.L_y**2 * np.cumsum(rho**2 * squared) + np.cumsum((rho * found.inner_path) ** 2)
    right = (rho[0] ** 2 * first**2 + 6.0 * summed) / (1.0 - 2.0 * rho[0] ** 2)
    made.append(
        share(
            "Lemma 17 (L1)", "sum |y_{t+1} - y*_t|^2 / its bound", np.cumsum(after**2), right, size
        )
    )
    if name == "convex_dynamic":
        made.append(
            share("Equation (75c)", "|grad phi_t|^2 / (2 L_f (phi_t(x_t) - phi_t(x*)))",
                   found.slope**2, 2.0 * c.L_f * found.gap, c.hypergradient_bound**2)
        )  # fmt: skip
    if name == "strongly_convex_dynamic":
        made += _tracking(c, found, alpha[0])
    return made


def _tracking(c: Constants, found: Along, alpha: float) -> list[Check]:
    (mu_f,) = c.require("Lemma 18", "mu_f")
    gamma, L_y = c.gamma(alpha), c.L_y
    squared, first = found.distance**2, found.before[0]
    noise = 2.0 * c.M_f**2 * alpha / ((1.0 + 0.5 * mu_f * alpha) * mu_f)
    path, inner_path = np.cumsum(found.path), np.cumsum(found.inner_path)
    path_2, inner_path_2 = np.cumsum(found.path**2), np.cumsum(found.inner_path**2)
    summed = 4.0 / gamma * (found.distance[0] + path) + (first + inner_path) / (2.0 * L_y)
    squares = 64.0 / (23.0 * gamma) * (squared[0] + (1.0 + 2.0 / gamma) * path_2)
    squares = squares + 3.0 / (92.0 * L_y**2) * (first**2 + 6.0 * inner_path_2)
    return [
        share("Lemma 18", "|x_{t+1} - x*_t|^2 / its bound", found.next_distance**2,
               (1.0 - gamma) * squared + noise * found.after**2, 1e-3 + squared),
        share("Lemma 19 (H1)", "sum |x_t - x*_t| / its bound",
               np.cumsum(found.distance), summed, 1.0),
        share("Lemma 19 (H2)", "sum |x_t - x*_t|^2 / its bound",
               np.cumsum(squared), squares, 1.0),
    ]  # fmt: skip


def _local(
    setting: Setting,
    found: Along,
    W: float,
    arguments: dict[str, Numbers],
    alpha: Numbers,
    T: Numbers,
) -> list[Check]:
    c = setting.constants
    (M,) = c.require(setting.name, "M")
    kappa, slope, after = c.kappa_g, found.slope**2, found.after**2
    bend = c.L_f * alpha**2
    allowed = found.fall + c.M_f**2 * (0.5 * alpha + bend) * after
    errors = (kappa - 1.0) ** 2 / (2.0 * (kappa + 1.0)) * found.before[0] ** 2
    errors = errors + (kappa - 1.0) / (kappa + 1.0) * np.cumsum(slope) / (2.0 * c.M_f**2)
    errors = errors + 2.0 * (kappa - 1.0) ** 2 * arguments["H_2"]
    falls = 2.0 * T * M / W + 2.0 * M + c.ell_f0 * arguments["H_1"]
    return [
        share("Equation (98)",
               "(alpha/2 - L_f alpha^2) |grad F_t|^2 / what the fall of F_t allows",
               (0.5 * alpha - bend) * slope, allowed, 1e-3 * M),
        share("Lemma 22", "sum |y_{t+1} - y*_t|^2 / its bound", np.cumsum(after), errors, 1e-3),
        share("Lemma 23", "sum F_t(x_t) - F_t(x_{t+1}) / its bound",
               np.cumsum(found.fall), falls, M),
    ]  # fmt: skip


def share(claim: str, quantity: str, left: ArrayLike, right: ArrayLike, size: ArrayLike) -> Check:
    """Return the check of left <= right, as the largest left / right; rounding is relative to
    `size`."""
    allowed = np.maximum(right, 0.0) + ROUNDING * np.asarray(size)
    shares = np.asarray(left) / (allowed + 1e-300)  # nothing of nothing is nothing
    return Check.worst_of(claim, quantity, shares, "<=", 1.0)


def at(step: float | Callable[[ArrayLike], Array], T: Numbers) -> Numbers:
    """Return a step size or a number of steps at every t, from a constant or a schedule."""
    return np.broadcast_to(np.asarray(step(T) if callable(step) else step, np.float64), T.shape)
