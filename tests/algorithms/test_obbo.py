"""OBBO against rounds worked in NumPy, in its three geometries."""

import jax.numpy as jnp
import numpy as np
import pytest
import worked
from scipy import optimize
from worked import PROBLEM, ROUNDS, X1, Y1, close, plays

import obax
from obax import hypergradient as hg
from obax.algorithms.obbo import weighted_projection

pytestmark = pytest.mark.usefixtures("quick_compilation")
ALPHA, BETA, STEPS = 0.1, 0.15, 2


@pytest.mark.parametrize("geometry", ["euclidean", "adaptive"])
def test_rounds_worked_in_numpy(geometry):
    algorithm = obax.OBBO(
        PROBLEM, ALPHA, BETA, STEPS, obax.Window(2), hg.Dense(), geometry=geometry, damping=0.01
    )
    x, y, stored, squares = X1, Y1, [], np.zeros(2)
    for r, (state, info) in zip(ROUNDS, plays(algorithm), strict=True):
        for _ in range(STEPS):
            y = y - BETA * worked.g_y(x, y, r)
        stored.insert(0, worked.hypergradient(x, y, r))
        q = sum(stored[:2]) / 2
        squares = squares + q**2
        metric = np.sqrt(0.01 + squares) if geometry == "adaptive" else 1.0
        x = worked.project(x - ALPHA * q / metric)
        close(info.hypergradient_norm, np.linalg.norm(q))
        close(state.outer_var, x)
        close(state.inner_var, y)
        counts = [int(info.gradients), int(info.hvps), int(info.cross_products)]
        assert counts == [STEPS + 1, 3, 1]


def test_entropy_multiplies():
    problem = obax.Problem(worked.outer, worked.inner, obax.Simplex(2.0))
    algorithm = obax.OBBO(problem, 0.5, BETA, 1, obax.Window(2), hg.Dense(), geometry="entropy")
    x, y, stored = np.array([1.5, 0.5]), Y1, []
    state = algorithm.init(x, y, ROUNDS[0])
    for r in ROUNDS:
        state, _ = algorithm.step(state, r)
        y = y - BETA * worked.g_y(x, y, r)
        stored.insert(0, worked.hypergradient(x, y, r))
        weights = x * np.exp(-0.5 * sum(stored[:2]) / 2)
        x = 2.0 * weights / weights.sum()
        close(state.outer_var, x)


def test_entropy_does_not_overflow():
    problem = obax.Problem(
        lambda x, y, r: jnp.sum(r * y), lambda x, y, r: 0.5 * jnp.sum((y - x) ** 2), obax.Simplex()
    )
    algorithm = obax.OBBO(problem, 1.0, 0.5, geometry="entropy")
    state = algorithm.init(np.array([0.5, 0.5]), np.zeros(2), np.zeros(2))
    state, info = algorithm.step(state, np.array([-1e4, 1e4]))
    assert bool(info.accepted)
    close(state.outer_var, [1.0, 0.0])
    # The entry that is left at zero does not decide the scale of the other one.
    state, info = algorithm.step(state, np.array([1e4, -1e4]))
    assert bool(info.accepted)
    close(state.outer_var, [1.0, 0.0])


@pytest.mark.parametrize(
    "domain", [obax.Ball(0.7, np.array([0.1, -0.2, 0.0])), obax.Simplex(0.8), obax.Box(-0.1, 0.3)]
)
@pytest.mark.parametrize("inside", [False, True])
def test_weighted_projection_is_the_nearest_point_in_the_metric(domain, inside):
    rng = np.random.default_rng(2)
    metric = np.array([0.3, 1.0, 4.0])
    z = rng.standard_normal(3) * 2
    if inside:
        z = np.asarray(domain.project(jnp.asarray(z))) * 0.999
        if isinstance(domain, obax.Simplex):
            z = z * 0.8 / z.sum()
    x = np.asarray(weighted_projection(domain, jnp.asarray(z), jnp.asarray(metric)))
    assert bool(domain.contains(jnp.asarray(x)))
    if inside:
        close(x, z, rtol=1e-9)
    # No better point: the gradient there points out of the domain, so projecting changes nothing.
    slope = metric * (x - z)
    stay = np.asarray(domain.project(jnp.asarray(x - 0.1 * slope)))
    np.testing.assert_allclose(stay, x, atol=1e-9)


def test_weighted_projection_on_a_ball_against_scipy():
    metric, z = np.array([0.3, 4.0]), np.array([2.0, 1.5])
    found = optimize.minimize(
        lambda x: metric @ (x - z) ** 2,
        np.zeros(2),
        constraints={"type": "ineq", "fun": lambda x: 1.0 - x @ x},
        options={"ftol": 1e-14},
    )
    x = weighted_projection(obax.Ball(1.0), jnp.asarray(z), jnp.asarray(metric))
    np.testing.assert_allclose(x, found.x, atol=1e-6)


def test_what_does_not_fit_is_said():
    with pytest.raises(ValueError, match="geometry must be one of"):
        obax.OBBO(PROBLEM, 0.1, 0.1, geometry="hyperbolic")
    with pytest.raises(ValueError, match=r"domain must be a Simplex with geometry='entropy'"):
        obax.OBBO(PROBLEM, 0.1, 0.1, geometry="entropy")

    class Halfspace(obax.Domain):
        def project(self, outer_var):
            return jnp.maximum(outer_var, 0)

    problem = obax.Problem(worked.outer, worked.inner, Halfspace())
    with pytest.raises(ValueError, match=r"domain must be one of .* with geometry='adaptive'"):
        obax.OBBO(problem, 0.1, 0.1, geometry="adaptive")
    simplex = obax.Problem(worked.outer, worked.inner, obax.Simplex())
    algorithm = obax.OBBO(simplex, 0.1, 0.1, geometry="entropy")
    with pytest.raises(ValueError, match="outer_var must be > 0 everywhere"):
        algorithm.init(np.array([1.0, 0.0]), Y1, ROUNDS[0])
