"""F2OBO against rounds worked in NumPy and the exact hypergradient; its mutants are seen."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import worked
from worked import PROBLEM, ROUNDS, X1, Y1, close, plays, side_by_side

import obax
from obax.algorithms import f2obo

pytestmark = pytest.mark.usefixtures("quick_compilation")


def slope(x, u, r, weight):
    """Of f / weight + g in y; of g alone with an infinite weight."""
    return worked.f_y(x, u, r) / weight + worked.g_y(x, u, r)


def settle(x, u, r, weight, beta, tolerance, most):
    steps = 0
    while np.linalg.norm(slope(x, u, r, weight)) > tolerance and steps < most:
        u, steps = u - beta * slope(x, u, r, weight), steps + 1
    return u, steps


def g_x(x, y, r):
    return -r["B"].T @ y + np.array([np.exp(x[0]) * (y @ y) / 2, 0.0])


@pytest.mark.parametrize(("tolerance", "most"), [(0.5, 100), (1e-9, 6)])
def test_rounds_worked_in_numpy(tolerance, most):
    alpha, beta, penalty, growth = 0.1, 0.15, 4.0, 0.7
    seen = plays(obax.F2OBO(PROBLEM, alpha, beta, penalty, growth, tolerance, most))
    x, y, z, taken = X1, Y1, Y1, []
    for t, (r, (state, info)) in enumerate(zip(ROUNDS, seen, strict=True), 1):
        weight = penalty * t**growth
        y, steps = settle(x, y, r, np.inf, beta, tolerance / weight, most)
        z, more = settle(x, z, r, weight, beta, tolerance / weight, most)
        taken.append((steps, more))
        h = worked.f_x(x, z, r) + weight * (g_x(x, z, r) - g_x(x, y, r))
        close(info.hypergradient_norm, np.linalg.norm(h))
        size = max(np.linalg.norm(worked.f_y(x, z, r)), tolerance)
        left = weight * np.linalg.norm(slope(x, z, r, weight)) / size
        close(info.solver_residual, left, rtol=1e-8)
        x = worked.project(x - alpha * h)
        for found, expected in ((state.outer_var, x), (state.inner_var, y), (state.tilted_var, z)):
            close(found, expected)
        # Nothing but gradients: of g for y, of both for z, three for the leader.
        asked = info.gradients, info.hvps, info.cross_products, info.evaluations
        assert [int(count) for count in asked] == [(1 + steps) + 2 * (1 + more) + 3, 0, 0, 0]
    # Neither test is one where the bound and the tolerance say the same.
    assert np.max(taken) < 100 if most == 100 else taken == [(6, 6)] * len(ROUNDS)


def test_g_x_is_the_gradient():
    found = jax.grad(worked.inner)(jnp.asarray(X1), jnp.asarray(Y1), ROUNDS[0])
    close(g_x(X1, Y1, ROUNDS[0]), found)


def error(penalty):
    """How far the direction of a first round is from the hypergradient at y*, exactly solved."""
    free = dataclasses.replace(PROBLEM, domain=obax.Unconstrained())
    algorithm = obax.F2OBO(free, 1.0, 0.15, penalty, 0.0, 1e-9, 3000)
    state = algorithm.init(X1, Y1, ROUNDS[0])
    # Traced anew every time, for the mutant.
    move = jax.jit(lambda state: algorithm.update(state, ROUNDS[0]))(state)
    y = np.asarray(move.follower.inner_var)
    assert np.linalg.norm(worked.g_y(X1, y, ROUNDS[0])) < 1e-8
    exact = worked.hypergradient(X1, y, ROUNDS[0])
    return np.linalg.norm(np.asarray(move.estimate.value) - exact) / np.linalg.norm(exact)


def test_the_bias_falls_like_one_over_lambda():
    errors = np.array([error(penalty) for penalty in (10.0, 100.0, 1000.0)])
    np.testing.assert_allclose(errors[:-1] / errors[1:], 10, rtol=0.15)
    assert errors[-1] < 1e-3
    # Mutant: a lambda that is too small is a direction that is wrong, and seen to be.
    assert error(0.3) > 0.05


def test_a_wrong_sign_is_seen(monkeypatch):
    """Mutant: grad_x g(x, y) - grad_x g(x, z)."""
    right = f2obo.trees.difference
    monkeypatch.setattr(f2obo.trees, "difference", lambda a, b: right(b, a))
    assert error(1000.0) > 0.1


def test_lambda_grows_and_does_not_when_held():
    growing, held = obax.F2OBO(PROBLEM, 0.1, 0.1), obax.F2OBO(PROBLEM, 0.1, 0.1, growth=0)
    t = jnp.asarray(400)
    assert float(growing.multiplier(t)) == pytest.approx(200.0)
    assert float(held.multiplier(t)) == 10.0


def test_the_answer_of_a_repeated_round_is_found():
    stream = obax.problems.quadratic(1, 2, 3)
    algorithm = obax.F2OBO(stream.problem, 0.2, 0.3, 1e5, 0.0, 1e-7, 500)
    state = algorithm.init(stream.outer_var, stream.inner_var, stream.example_round)
    rounds = jax.tree.map(lambda leaf: jnp.repeat(leaf, 300, axis=0), stream.rounds)
    state, history = obax.run(algorithm, state, rounds)
    best = stream.problem.outer_argmin(jax.tree.map(lambda leaf: leaf[0], stream.rounds))
    np.testing.assert_allclose(state.outer_var, best, atol=1e-4)
    # Followers that are there take no step: 1 + 2 + 3 gradients.
    assert int(history.gradients[-1]) == 6


def test_loops_of_unequal_length_run_side_by_side():
    easy, hard = side_by_side(lambda p, e: obax.F2OBO(p, 0.1, 0.3, tolerance=e), 1.0, 1e-6)
    assert np.all(easy < hard)


def test_a_follower_that_starts_anew_does_so_twice():
    problem = obax.Problem(
        lambda x, y, r: 0.5 * (y - r) ** 2,
        lambda x, y, r: 0.5 * (y - x) ** 2,
        inner_start=lambda x: x + 1.0,
    )
    algorithm = obax.F2OBO(problem, 0.5, 0.5, 2.0, 0.0, 1e-9, 1)
    state = algorithm.init(0.0, 5.0, jnp.zeros(()))
    state, _ = algorithm.step(state, jnp.asarray(3.0))
    # y: 1 - 0.5 * 1; z: 1 - 0.5 * (1 + (1 - 3) / 2); h = 2 (x - z - (x - y)).
    assert (float(state.inner_var), float(state.tilted_var)) == (0.5, 1.0)
    assert float(state.outer_var) == 0.5


def test_what_does_not_fit_is_said():
    for wrong, message in {
        "penalty": (0.0, "penalty must be a number > 0"),
        "growth": (-0.5, "growth must be a number >= 0, but got -0.5"),
        "tolerance": (0.0, "tolerance must be a number > 0"),
        "max_inner_steps": (0, "max_inner_steps must be an integer >= 1"),
    }.items():
        with pytest.raises(ValueError, match=message[1]):
            obax.F2OBO(PROBLEM, 0.1, 0.1, **{wrong: message[0]})
