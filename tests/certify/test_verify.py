"""Verification accepts what the families promise, and names assumption and round where one fails."""

import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest

from obax import Box, Problem, Window
from obax.certify import FAMILIES, SETTINGS, AssumptionError, draw, verify

HORIZON = 8


def verified(drawn, setting=None, constants=None, **changes):
    instance = drawn.instance
    given = {
        "outer_var": instance.outer_var,
        "inner_var": instance.inner_var,
        "window": drawn.window,
        "points": 4,
    } | changes
    rounds = given.pop("rounds", instance.rounds)
    problem = given.pop("problem", instance.problem)
    return verify(
        problem, rounds, constants or instance.constants, setting or drawn.setting, **given
    )


@pytest.mark.parametrize("setting", SETTINGS)
def test_every_family_is_what_it_says(setting):
    for number in range(len(FAMILIES[setting])):
        checks = verified(draw(setting, number, HORIZON, seed=3))
        assert all(check.holds for check in checks)
        # The constants are not merely large: the least curvatures and the Lipschitz constants of
        # the follower are reached.
        shares = {check.quantity: check.share for check in checks}
        assert shares["the curvature of g_t"] > 0.9
        assert shares["the larger of |Hess_yy g_t| and |Hess_xy g_t|"] > 0.5


# One constant made false, and what the message must name.
SHRUNK = [
    ("strongly_convex_dynamic", {"ell_f0": 0.1}, "Lipschitz f_t"),
    ("strongly_convex_dynamic", {"ell_f1": 0.9}, "smooth f_t and g_t"),
    ("strongly_convex_dynamic", {"D": 0.99}, "bounded X"),
    ("strongly_convex_dynamic", {"D_prime": 0.9}, "bounded start"),
    ("strongly_convex_dynamic", {"mu_f": 1.01}, "strongly convex f_t"),
    ("strongly_convex_dynamic", {"mu_g": 1.001}, "strongly convex g_t"),
    ("nonconvex_local", {"ell_g1": 0.8}, "smooth f_t and g_t"),
    ("nonconvex_local", {"ell_g2": 0.4}, "smooth f_t and g_t"),
    ("nonconvex_local", {"M": 0.5}, "bounded f_t"),
]


@pytest.mark.parametrize(("setting", "factors", "assumption"), SHRUNK)
def test_a_false_constant_is_refused(setting, factors, assumption):
    drawn = draw(setting, 0 if setting == "nonconvex_local" else 1, HORIZON, seed=1)
    constants = drawn.instance.constants
    changes = {name: factor * getattr(constants, name) for name, factor in factors.items()}
    if "mu_g" in changes:
        changes["ell_g1"] = 2.0 * constants.ell_g1  # or Constants itself would refuse mu_g > ell_g1
    with pytest.raises(AssumptionError, match="fails") as failure:
        verified(drawn, constants=dataclasses.replace(constants, **changes))
    assert failure.value.assumption.startswith(assumption)
    assert str(failure.value).startswith(f"{setting}: {assumption}")


def broken(rounds, name, t, value):
    """The rounds with one coefficient changed in round t alone."""
    leaf = np.array(rounds[name])
    leaf[t - 1] = value
    return rounds | {name: jnp.asarray(leaf)}


@pytest.mark.parametrize(
    ("setting", "name", "t", "value", "assumption"),
    [
        ("convex_dynamic", "Q", 5, -1.0, "convex f_t(x, y*_t(x))"),
        ("convex_dynamic", "c", 7, 0.3, "vanishing gradients"),
        ("convex_static", "H", 3, np.diag([1.0, 1.0, -1.0]), "strongly convex g_t"),
        ("strongly_convex_static", "R", 6, 100.0, "Lipschitz f_t"),
    ],
)
def test_a_broken_round_is_named(setting, name, t, value, assumption):
    drawn = draw(setting, 1, HORIZON, seed=2)
    rounds = broken(drawn.instance.rounds, name, t, value)
    constants = dataclasses.replace(drawn.instance.constants, ell_f0=100.0, ell_f1=10.0)
    if setting == "strongly_convex_static":
        constants = drawn.instance.constants
    with pytest.raises(AssumptionError, match=f"fails in round {t}: ") as failure:
        verified(drawn, constants=constants, rounds=rounds)
    assert failure.value.round == t
    assert failure.value.assumption.startswith(assumption)


def test_a_false_argmin_is_refused():
    drawn = draw("strongly_convex_dynamic", 1, HORIZON, seed=2)
    rounds = broken(drawn.instance.rounds, "optimum", 4, [0.1, 0.1])
    with pytest.raises(AssumptionError, match=r"known x\*_t fails in round 4"):
        verified(drawn, rounds=rounds)


def test_frame_of_a_setting():
    drawn = draw("convex_static", 0, HORIZON, seed=0)
    with pytest.raises(AssumptionError, match="w = 1 fails: the window has size 3"):
        verified(drawn, window=Window(3))
    wave = draw("nonconvex_local", 0, HORIZON, seed=0)
    with pytest.raises(AssumptionError, match=r"current curvature \(erratum 7\) fails"):
        verified(wave, window=Window(3))
    with pytest.raises(AssumptionError, match="full W fails"):
        verified(wave, window=Window(3, curvature="current", normalise="seen"))
    boxed = Problem(wave.instance.problem.outer, wave.instance.problem.inner, Box(-1.0, 1.0))
    with pytest.raises(AssumptionError, match=r"X = R\^d1 fails: the domain is Box"):
        verified(wave, problem=boxed)
    guessed = dataclasses.replace(drawn.instance.constants, estimated=True)
    with pytest.raises(AssumptionError, match="constants must be known"):
        verified(drawn, constants=guessed)
    with pytest.raises(ValueError, match="setting must be one of strongly_convex_dynamic"):
        verified(drawn, setting="convex")


def test_a_users_own_problem_in_single_precision_and_without_closed_forms():
    # f = |y - q|^2 / 2 with y* = x on the unit ball, x and y as trees.
    from obax import Ball
    from obax.theory import Constants

    problem = Problem(
        outer=lambda x, y, q: 0.5 * jnp.sum((y["b"] - q) ** 2),
        inner=lambda x, y, q: 0.5 * jnp.sum((y["b"] - x["a"]) ** 2),
        domain=Ball(1.0),
    )
    constants = Constants(
        ell_f0=2.5, ell_f1=1.0, ell_g1=1.0, ell_g2=0.0, mu_g=1.0, mu_f=1.0, D=2.0, D_prime=0.0
    )
    zeros = jnp.zeros(2, jnp.float32)
    given = {"outer_var": {"a": zeros}, "inner_var": {"b": zeros}}
    rounds = jnp.ones((5, 2), jnp.float32)
    checks = verify(problem, rounds, constants, "strongly_convex_dynamic", **given)
    assert {check.quantity: check.worst for check in checks}["|Hess f_t|"] == pytest.approx(1.0)
    far = rounds.at[2].set(3.0)
    with pytest.raises(AssumptionError, match=r"Lipschitz f_t \(A1, assu:f:a1\) fails in round 3"):
        verify(problem, far, constants, "strongly_convex_dynamic", **given)
