"""phi, its gradient, Hessian and spectra against a game with a known Hessian and differences."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from obax.domain import Ball, Box
from obax.implicit import (
    FlatProblem,
    Solver,
    answer,
    at_answer,
    check_round,
    extreme_eigenvalues,
    leader_curvature,
    sizes,
)
from obax.problem import Problem

pytestmark = pytest.mark.usefixtures("quick_compilation")
ROUND = jnp.array([0.4, -1.0, 0.3])
X = jnp.array([0.3, -0.6])


def outer(x, y, r):
    return jnp.sum(jnp.sin(y) * r) + 0.3 * jnp.sum(x**2) * y[0]


def inner(x, y, r):
    return jnp.sum(jnp.cosh(y - x[0] * r)) + 0.5 * jnp.sum((y - x[1]) ** 2)


BENT = Problem(outer, inner)


@pytest.fixture(scope="module")
def measured():
    """Everything at one point, compiled once; and the gradient at neighbours."""
    flat = FlatProblem(BENT, X, jnp.zeros(3))
    by_products = FlatProblem(BENT, X, jnp.zeros(3), Solver(dense_limit=0))

    def at(x):
        point = at_answer(flat, x, ROUND)
        return {
            "value": point.value(),
            "gradient": point.gradient(),
            "model": point.model(),
            "by_products": at_answer(by_products, x, ROUND).model(),
            "answer": point.y,
            "slope": point.answer_slope(),
            "curvature": leader_curvature(flat, x, point.y, ROUND),
        }

    h = 1e-5
    points = jnp.stack([X, *(X + s * h * e for e in jnp.eye(2) for s in (1, -1))])
    found = jax.jit(lambda points: jax.lax.map(at, points))(points)
    differences = lambda leaf: jnp.stack(  # noqa: E731
        [(leaf[1] - leaf[2]) / (2 * h), (leaf[3] - leaf[4]) / (2 * h)], axis=-1
    )
    return jax.tree.map(lambda leaf: leaf[0], found), jax.tree.map(differences, found)


def test_gradient_hessian_and_slope_against_differences(measured):
    here, difference = measured
    np.testing.assert_allclose(here["gradient"], difference["value"], rtol=1e-8)
    np.testing.assert_allclose(here["model"].gradient, here["gradient"], rtol=1e-10)
    np.testing.assert_allclose(here["model"].hessian, difference["gradient"], rtol=1e-7)
    np.testing.assert_allclose(here["by_products"].hessian, here["model"].hessian, rtol=1e-8)
    np.testing.assert_allclose(here["by_products"].gradient, here["model"].gradient, rtol=1e-8)
    np.testing.assert_allclose(here["slope"], difference["answer"], rtol=1e-7)
    values = np.linalg.eigvalsh(here["model"].hessian)
    np.testing.assert_allclose(here["curvature"].least, values[0], rtol=1e-9)
    np.testing.assert_allclose(here["curvature"].most, np.abs(values).max(), rtol=1e-9)


def test_sizes_of_a_quadratic_and_of_a_cube():
    """f = 3 x y^2 / 2 at (1, 2): Hess f = [[0, 6], [6, 3]]; g = 2 y^2 + x y + y^3 / 6."""
    flat = FlatProblem(
        Problem(
            lambda x, y, r: 1.5 * x[0] * y[0] ** 2,
            lambda x, y, r: 2 * y[0] ** 2 + x[0] * y[0] + y[0] ** 3 / 6,
        ),
        jnp.zeros(1),
        jnp.zeros(1),
    )
    found = sizes(flat, jnp.ones(1), jnp.full(1, 2.0), ROUND, jnp.array([0.3, 1.0]))
    np.testing.assert_allclose(found.value, 6.0)
    np.testing.assert_allclose(found.slope, np.hypot(6.0, 6.0))
    bend = np.linalg.eigvalsh([[0.0, 6.0], [6.0, 3.0]])
    np.testing.assert_allclose(found.outer_curvature, np.abs(bend).max())
    np.testing.assert_allclose(found.inner_joint, np.linalg.eigvalsh([[0, 1], [1, 6.0]]).max())
    np.testing.assert_allclose([found.inner_least, found.inner_most, found.cross], [6.0, 6.0, 1.0])
    np.testing.assert_allclose(found.third, 1.0, rtol=1e-6)


def test_lanczos():
    values = np.array([-3.0, 0.5, 0.5, 2.0, 7.0])
    basis = np.linalg.qr(np.random.default_rng(0).standard_normal((5, 5)))[0]
    matrix = jnp.asarray((basis * values) @ basis.T)
    least, most, vector = extreme_eigenvalues(lambda v: matrix @ v, jnp.arange(1.0, 6.0))
    np.testing.assert_allclose([least, most], [-3.0, 7.0], atol=1e-10)
    np.testing.assert_allclose(matrix @ vector, -3.0 * vector, atol=1e-9)
    # An invariant subspace found early must not add eigenvalues of zero.
    least, most, _ = extreme_eigenvalues(lambda v: 2.0 * v, jnp.arange(1.0, 6.0))
    np.testing.assert_allclose([least, most], [2.0, 2.0])


def test_chunks_of_a_problem_without_a_follower():
    """Leaves of size zero can be cut and joined, too."""
    flat = FlatProblem(Problem(lambda x, y, r: x * r), jnp.zeros(()), None, Solver(chunk=3))
    rounds = jnp.arange(8.0)
    found = flat.map_rounds(lambda r: answer(flat, X[:1], r)._replace(residual=r), rounds)
    assert found.y.shape == (8, 0)
    np.testing.assert_array_equal(found.residual, rounds)
    assert float(flat.sum_rounds(lambda r: r, rounds)) == 28.0


@pytest.mark.parametrize("domain", [Box(-2.0, 2.0), Ball(2.0)])
def test_residuals_have_no_unit(domain):
    """phi and a million times phi have one residual, in the interior and at the boundary."""
    found = []
    for factor in (1e-6, 1.0, 1e6):
        problem = Problem(lambda x, y, r, c=factor: c * jnp.sum((x - r) ** 2), domain=domain)
        flat = FlatProblem(problem, X, None)
        for x in (jnp.array([0.1, 0.0]), jnp.array([2.0, 0.0]), jnp.array([0.0, 2.0])):
            pair = check_round(flat, x, jnp.array([5.0, 0.0]))
            found.append([float(pair.residual), float(pair.curvature)])
    found = np.asarray(found).reshape(3, 3, 2)
    np.testing.assert_allclose(found[0], found[1], rtol=1e-6, atol=1e-12)
    np.testing.assert_allclose(found[2], found[1], rtol=1e-6, atol=1e-12)
    assert found[1, 1, 0] <= 1e-12 and found[1, 0, 0] > 0.1 and found[1, 2, 0] > 0.1
