"""Steps of the proofs hold for a run worked out by hand; each complains when its own is broken."""

import dataclasses

import numpy as np
import pytest

from obax import theory
from obax.certify.measure import claims
from obax.certify.measure.play import Along
from obax.theory import Constants

T = 12
ROUNDS = np.arange(1.0, T + 1.0)
# f = (x - 1)^2 / 2 + (y - 1)^2 / 2 and g = (y - x)^2 / 2 on [-1, 1], so that phi = (x - 1)^2.
# ell_g1 = 2 where 1 would do: kappa_g = L_y = 2 and M_f = 3, L_f = 9.
CONSTANTS = Constants(
    ell_f0=np.sqrt(8.0),
    ell_f1=1.0,
    ell_g1=2.0,
    ell_g2=0.0,
    mu_g=1.0,
    mu_f=2.0,
    D=2.0,
    D_prime=0.5,
    M=8.0,
)
CONVEX = ("strongly_convex_dynamic", "strongly_convex_static", "convex_dynamic", "convex_static")


def by_hand(setting):
    """x_{t+1} = x_t - alpha_t 2 (x_t - 1), from -1 and never beyond 1; the follower answers exactly
    (beta = 1 would), having started 0.5 off."""
    alpha = claims.at(setting.outer_step_size, ROUNDS)
    x = np.empty(T + 1)
    x[0] = -1.0
    for t in range(T):
        x[t + 1] = np.clip(x[t] - alpha[t] * 2.0 * (x[t] - 1.0), -1.0, 1.0)
    now, after = x[:-1], x[1:]
    zero = np.zeros(T)
    return Along(
        before=np.concatenate([[0.5], np.abs(np.diff(now))]),
        after=zero,
        error=zero,
        slope=2.0 * np.abs(now - 1.0),
        step_error=zero,
        length=alpha * 2.0 * np.abs(now - 1.0),
        fall=(now - 1.0) ** 2 - (after - 1.0) ** 2,
        gap=(now - 1.0) ** 2,
        towards=2.0 * (now - 1.0) ** 2,
        distance=np.abs(now - 1.0),
        next_distance=np.abs(after - 1.0),
        path=zero,
        inner_path=zero,
    )


def failed(setting, found, W=1.0):
    paths = {"H_1": np.zeros(T), "H_2": np.zeros(T)}
    return [c.assumption for c in claims.checks(setting, found, W, paths) if not c.holds]


def named(name):
    return getattr(theory, name)(CONSTANTS)


# What is broken in one round or in all, and the claim that must be among those that fail.
EVERYWHERE = {
    "Algorithm 1, line 8": lambda run: run._replace(step_error=run.step_error + 1e-6),
    "Lemma 11": lambda run: run._replace(after=0.9 * run.before),
    "Lemma 3": lambda run: run._replace(after=run.after + 0.01, error=np.full(T, 0.031)),
}
# The sums over all rounds have slack; the first round is on the other side of them.
FAR = np.where(ROUNDS == 1, 1.0, 1e4)
OF_CONVEX = {
    "Lemma 17 (L2)": lambda run: run._replace(after=run.after + 5.0),
    "Lemma 17 (L1)": lambda run: run._replace(after=run.after + 5.0),
}
OF_SETTING = {
    "strongly_convex_dynamic": {
        "Equation (64)": lambda run: run._replace(gap=1.01 * run.gap),
        "Lemma 18": lambda run: run._replace(next_distance=1.001 * run.distance),
        "Lemma 19 (H1)": lambda run: run._replace(distance=FAR * run.distance),
        "Lemma 19 (H2)": lambda run: run._replace(distance=FAR * run.distance),
    },
    "strongly_convex_static": {
        "Equation (64)": lambda run: run._replace(gap=1.01 * run.gap),
        "Equation (61)": lambda run: run._replace(next_distance=9.0 * run.distance),
    },
    "convex_dynamic": {
        "convexity towards x*": lambda run: run._replace(gap=2.01 * run.gap),
        "Equation (74)": lambda run: run._replace(next_distance=1.01 * run.distance),
        "Equation (75c)": lambda run: run._replace(slope=2.2 * run.slope),
    },
    "convex_static": {
        "convexity towards x*": lambda run: run._replace(gap=2.01 * run.gap),
        "Equation (81)": lambda run: run._replace(next_distance=9.0 * run.distance),
    },
}


@pytest.mark.parametrize("name", CONVEX)
def test_a_run_by_hand_and_what_breaks_it(name):
    setting = named(name)
    run = by_hand(setting)
    assert failed(setting, run) == []
    for claim, broken in {**EVERYWHERE, **OF_CONVEX, **OF_SETTING[name]}.items():
        assert claim in failed(setting, broken(run)), claim
    # Too few steps of the follower: one contracts by (kappa_g - 1) / (kappa_g + 1) = 1/3.
    few = 1 if name.startswith("strongly") else theory.LogarithmicInnerSteps(-1.0)
    assert "Equation (34)" in failed(dataclasses.replace(setting, inner_steps=few), run)
    # A NaN is no evidence for anything.
    assert "Lemma 11" in failed(setting, run._replace(after=np.full(T, np.nan)))


def test_a_local_run_by_hand_and_what_breaks_it():
    setting = theory.nonconvex_local(CONSTANTS)
    run = by_hand(setting)
    assert failed(setting, run) == []
    # Falls of at most 2 M / W + 2 M / t in each round on average are allowed, that is 16 and more.
    local = {
        "Equation (98)": lambda run: run._replace(fall=-run.fall),
        "Lemma 22": lambda run: run._replace(after=run.after + 2.0),
        "Lemma 23": lambda run: run._replace(fall=run.fall + 40.0),
    }
    for claim, broken in {**EVERYWHERE, **local}.items():
        assert claim in failed(setting, broken(run)), claim
    assert "Lemma 21" in failed(setting, EVERYWHERE["Lemma 3"](run), W=4.0)


def test_rho_by_hand():
    # Theorem 4: K is for rho = 1 / (2 (1 / (alpha mu_f) + 2)), that is gamma / (3 (1 + gamma)).
    dynamic, static = named("strongly_convex_dynamic"), named("strongly_convex_static")
    expected = 0.5 / (1.0 / (dynamic.outer_step_size * 2.0) + 2.0)
    assert claims.rho(dynamic, ROUNDS)[0] == pytest.approx(expected, rel=1e-12)
    # Theorem 6: rho^-2 = (24 L_y M_f / mu_f)^2 + 2 with L_y = 2, M_f = 3.
    assert claims.rho(static, ROUNDS)[0] == pytest.approx((72.0**2 + 2.0) ** -0.5, rel=1e-12)
    assert claims.rho(named("convex_static"), ROUNDS)[2] == pytest.approx(1.0 / 18.0)
