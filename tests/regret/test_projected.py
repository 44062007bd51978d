"""The projected-gradient regret: by hand, without a constraint, and at constrained optima."""

import jax.numpy as jnp
import numpy as np
import pytest

import obax
from obax import problems, regret

ROUNDS = {"a": jnp.array([1.0, 2.0, 0.0]), "b": jnp.array([0.5, 0.0, 1.0])}
X = jnp.array([0.0, 0.5, 1.0])
Y0 = jnp.zeros(())


def game(domain):
    return obax.Problem(
        lambda x, y, r: 0.5 * (y - r["a"]) ** 2, lambda x, y, r: 0.5 * (y - x - r["b"]) ** 2, domain
    )


def test_three_rounds_by_hand():
    """Gradients -1/2, -3/2, 2 at 0, 1/2, 1 in [-1, 1].

    alpha = 1/2: 0 -> 1/4, 1/2 -> 5/4 cut to 1, 1 -> 0, so -1/2, -1, 2.
    alpha = (1, 1, 4): 0 -> 1/2, 1/2 -> 2 cut to 1, 1 -> -7 cut to -1, so -1/2, -1/2, 1/2.
    w = 2 at past decisions: -1/4, -1, 1/4, of which none is cut with alpha = 1/2.
    w = 2 at the current one, all answers y*_t: grad f_{t-1} = x_t + b_t - a_{t-1}, that is
    -1/2 in round 2 and 0 in round 3; with -3/2 and 2, halved: -1 and 1; round 1: -1/4.
    """
    problem = game(obax.Box(-1.0, 1.0))
    for step, window, at, expected in (
        (0.5, None, "current", [-0.5, -1.0, 2.0]),
        ([1.0, 1.0, 4.0], None, "current", [-0.5, -0.5, 0.5]),
        (0.5, obax.Window(2), "past", [-0.25, -1.0, 0.25]),
        (0.5, obax.Window(2), "current", [-0.25, -1.0, 1.0]),
    ):
        curve = regret.projected(problem, X, ROUNDS, step, window, at=at, inner_start=Y0)
        np.testing.assert_allclose(curve.terms, np.square(expected), rtol=0, atol=1e-12)
        np.testing.assert_allclose(curve, np.cumsum(np.square(expected)), rtol=0, atol=1e-12)


@pytest.mark.parametrize(("at", "plain"), [("current", "local"), ("past", "local_past")])
def test_without_a_constraint_it_is_the_plain_one(at, plain):
    window, free = obax.Window(2, 0.5), game(None)
    ours = regret.projected(free, X, ROUNDS, 0.3, window, at=at, inner_start=Y0)
    theirs = getattr(regret, plain)(free, X, ROUNDS, window, inner_start=Y0)
    np.testing.assert_allclose(ours.terms, theirs.terms, rtol=1e-10)


def test_it_vanishes_at_constrained_optima_where_the_local_regret_does_not():
    stream = problems.quadratic(6, 3, 2, box=0.05, outer_condition=3.0, seed=1)
    best = regret.outer_solutions(stream.problem, stream.rounds).outer_var
    assert np.any(np.isclose(np.abs(best), 0.05))
    zero = regret.projected(stream.problem, best, stream.rounds, 0.1)
    assert float(zero.total) < 1e-20
    assert float(regret.local(stream.problem, best, stream.rounds).total) > 1e-3


def test_arguments_that_do_not_fit_are_rejected():
    problem = game(None)
    with pytest.raises(ValueError, match="step_size must be a number > 0"):
        regret.projected(problem, X, ROUNDS, 0.0, inner_start=Y0)
    with pytest.raises(ValueError, match=r"step_size must be one number or 3.*\(2,\)"):
        regret.projected(problem, X, ROUNDS, [0.1, 0.1], inner_start=Y0)
    with pytest.raises(ValueError, match="at must be one of 'current', 'past'"):
        regret.projected(problem, X, ROUNDS, 0.1, at="next", inner_start=Y0)
