"""The one CG: on large, ill-conditioned followers in single precision, where lineax's gave NaN."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from obax import regret
from obax.implicit import (
    FlatProblem,
    Solver,
    answer,
    at_answer,
    conjugate_gradients,
    solve_definite,
)
from obax.problem import Problem

pytestmark = pytest.mark.usefixtures("quick_compilation")


@pytest.mark.parametrize("size", [2_000, 20_000])
def test_a_large_follower_in_float32(size):
    """g = |sqrt(a) (y - x c)|^2 / 2 with curvatures from 1e-4 to 1: y*(x) = x c, and
    grad phi = c . (x c - b) whatever a is."""
    rng = np.random.default_rng(0)
    a = np.geomspace(1e-4, 1.0, size).astype(np.float32)
    c, b = (rng.standard_normal(size).astype(np.float32) for _ in range(2))
    problem = Problem(
        lambda x, y, r: 0.5 * jnp.mean((y - b) ** 2),
        lambda x, y, r: 0.5 * jnp.sum(a * (y - x * c) ** 2),
    )
    x = jnp.asarray([0.7], jnp.float32)
    flat = FlatProblem(problem, x, jnp.zeros(size, jnp.float32))
    assert not flat.dense_inner
    round = jnp.zeros((), jnp.float32)
    found, slope = jax.jit(
        lambda x: (answer(flat, x, round), at_answer(flat, x, round).gradient())
    )(x)
    assert np.all(np.isfinite(found.y)) and float(found.residual) <= flat.tolerance
    # The residual is in the gradient: along the flattest direction it is 1e4 times as much in y.
    np.testing.assert_allclose(found.y, 0.7 * c, rtol=0, atol=2e-2)
    exact = np.mean(c.astype(float) * (0.7 * c.astype(float) - b))
    np.testing.assert_allclose(slope[0], exact, rtol=2e-2)


def test_as_exactly_as_rounding_allows():
    rng = np.random.default_rng(1)
    basis = np.linalg.qr(rng.standard_normal((60, 60)))[0]
    matrix = jnp.asarray((basis * np.geomspace(1e-6, 1.0, 60)) @ basis.T)
    solution = jnp.asarray(rng.standard_normal(60))
    found = solve_definite(lambda v: matrix @ v, matrix @ solution)
    np.testing.assert_allclose(found, solution, rtol=0, atol=1e-7)


def test_no_positive_curvature_ends_at_the_best_so_far():
    """Along the third axis there is nothing to gain, and nothing is gained: no NaN."""
    diagonal = jnp.array([2.0, 1.0, -1.0])
    rhs = jnp.array([2.0, 1.0, 0.0])
    v, _ = conjugate_gradients(
        lambda u: diagonal * u, jnp.zeros(3), rhs, jnp.asarray(0.0), budget=10
    )
    np.testing.assert_allclose(v, [1.0, 1.0, 0.0], atol=1e-12)
    v, steps = conjugate_gradients(lambda u: -u, jnp.zeros(3), rhs, jnp.asarray(0.0), budget=10)
    assert np.all(np.isfinite(v)) and int(steps) == 1


def test_a_right_hand_side_that_is_not_finite_shows():
    v, _ = conjugate_gradients(
        lambda u: u, jnp.zeros(2), jnp.array([jnp.inf, 0.0]), jnp.asarray(0.0), 5
    )
    assert np.all(np.isnan(v))


def test_a_long_follower_against_the_dense_way():
    """Comparators are the same whether the inner Hessian is formed or only multiplied by."""
    problem = Problem(
        lambda x, y, r: 0.5 * jnp.sum((y - r) ** 2) + 0.05 * jnp.sum(x**2),
        lambda x, y, r: jnp.sum(jnp.logaddexp(y - x, x - y)) + 0.5 * jnp.sum(y**2),
    )
    rounds = jnp.asarray(np.random.default_rng(2).normal(size=(2, 3)))
    starts = {"outer_start": jnp.zeros(3), "inner_start": jnp.zeros(3)}
    dense, long = (
        regret.outer_solutions(problem, rounds, solver=Solver(dense_limit=k, starts=0), **starts)
        for k in (128, 0)
    )
    assert dense.converged and long.converged
    np.testing.assert_allclose(long.outer_var, dense.outer_var, atol=1e-7)
    np.testing.assert_allclose(long.curvature, dense.curvature, rtol=1e-6)
    assert np.all(dense.curvature > 0)
