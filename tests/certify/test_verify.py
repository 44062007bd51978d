"""Verification accepts what is true, and names assumption and round where one fails."""

import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest

from obax import Ball, Box, Problem, Window
from obax.certify import AssumptionError, draw, verify
from obax.certify.mutants import FlatterAnswers
from obax.theory import Constants

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


# One constant made false, and what the message must name. That every family passes as it is, is
# tested with the certificates.
SHRUNK = {
    "strongly_convex_dynamic": [
        ({"ell_f0": 0.1}, "Lipschitz f_t"),
        ({"ell_f1": 0.9}, "smooth f_t and g_t"),
        ({"D": 0.99}, "bounded X"),
        ({"D_prime": 0.9}, "bounded start"),
        ({"mu_f": 1.01}, "strongly convex f_t"),
        # ell_g1 is doubled, or Constants itself would reject mu_g > ell_g1.
        ({"mu_g": 1.001, "ell_g1": 2.0}, "strongly convex g_t"),
    ],
    "nonconvex_local": [
        ({"ell_f0": 0.3}, "Lipschitz f_t"),
        ({"ell_g1": 0.7}, "smooth f_t and g_t"),
        ({"ell_g2": 0.3}, "smooth f_t and g_t"),
        ({"D_prime": 0.1}, "bounded start"),
        ({"M": 0.5}, "bounded f_t"),
    ],
}


@pytest.mark.parametrize("setting", SHRUNK)
def test_a_false_constant_is_rejected(setting):
    drawn = draw(setting, 0 if setting == "nonconvex_local" else 1, HORIZON, seed=1)
    constants = drawn.instance.constants
    checks = verified(drawn)
    assert all(check.holds for check in checks)
    # The constants are not merely large: the follower's least curvature is reached.
    assert {c.quantity: c.share for c in checks}["the curvature of g_t"] > 0.9
    for factors, assumption in SHRUNK[setting]:
        changes = {name: factor * getattr(constants, name) for name, factor in factors.items()}
        with pytest.raises(AssumptionError, match="fails") as failure:
            verified(drawn, constants=dataclasses.replace(constants, **changes))
        assert failure.value.assumption.startswith(assumption)
        assert str(failure.value).startswith(f"{setting}: {assumption}")


@dataclasses.dataclass(frozen=True, kw_only=True)
class SmallerErrors(Constants):
    """Constants with a fifth of M_f."""

    @property
    def M_f(self):
        return 0.2 * (1.0 + self.kappa_g) * self.ell_f1


def test_a_false_formula_of_lemma_3_is_noticed():
    drawn = draw("strongly_convex_dynamic", 1, HORIZON, seed=1)
    fields = dataclasses.asdict(drawn.instance.constants)
    with pytest.raises(AssumptionError, match="Lemma 3") as failure:
        verified(drawn, constants=FlatterAnswers(**fields))
    assert failure.value.assumption == "Lemma 3 (L_y)"
    with pytest.raises(AssumptionError, match="Lemma 3") as failure:
        verified(drawn, constants=SmallerErrors(**fields))
    assert failure.value.assumption == "Lemma 3 (M_f)"


def broken(rounds, name, t, value):
    """The rounds with one coefficient changed in round t alone."""
    leaf = np.array(rounds[name])
    leaf[t - 1] = value
    return rounds | {name: jnp.asarray(leaf)}


def test_a_broken_round_is_named():
    drawn = draw("convex_dynamic", 1, HORIZON, seed=2)
    constants = dataclasses.replace(drawn.instance.constants, ell_f0=100.0, ell_f1=10.0)
    for name, t, value, assumption in [
        ("Q", 5, -1.0, "convex f_t(x, y*_t(x))"),
        ("c", 7, 0.3, "vanishing gradients"),
        ("H", 3, np.diag([1.0, 1.0, -1.0]), "strongly convex g_t"),
        ("d", 6, 100.0, "Lipschitz f_t"),
        ("b", 2, np.nan, "Lipschitz f_t"),
    ]:
        rounds = broken(drawn.instance.rounds, name, t, value)
        with pytest.raises(AssumptionError, match=f"fails in round {t}: ") as failure:
            verified(drawn, constants=constants, rounds=rounds)
        assert failure.value.round == t
        assert failure.value.assumption.startswith(assumption)
    # An optimum that is none: all gradients there vanish except this one.
    rounds = broken(drawn.instance.rounds, "optimum", 4, [0.9, -0.9])
    with pytest.raises(AssumptionError, match="vanishing gradients fails in round 4"):
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
    with pytest.raises(AssumptionError, match=r"Lipschitz f_t \(A1\) fails in round 3"):
        verify(problem, far, constants, "strongly_convex_dynamic", **given)
