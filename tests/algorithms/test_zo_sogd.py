"""ZO-SOGD: its differences in NumPy, what they estimate, and its random numbers."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import worked
from worked import PROBLEM, ROUNDS, X1, Y1, close, plays

import obax
from obax._support import compiling
from obax.algorithms.sogd import Point

pytestmark = pytest.mark.usefixtures("quick_compilation")
RHO = 0.05


def difference(loss, at, directions):
    """The mean of (loss(at + rho u) - loss(at - rho u)) / (2 rho) u."""
    terms = [(loss(at + RHO * u) - loss(at - RHO * u)) / (2 * RHO) * u for u in directions]
    return np.mean(terms, axis=0)


def directions(x, y, v, r, drawn):
    us, ws = drawn
    ahead, behind = y + RHO * v, y - RHO * v

    def slope_x(loss, y):
        return difference(lambda x: loss(x, y, r), x, us)

    def slope_y(loss, y):
        return difference(lambda y: loss(x, y, r), y, ws)

    curved = (slope_y(worked.g, ahead) - slope_y(worked.g, behind)) / (2 * RHO)
    crossed = (slope_x(worked.g, ahead) - slope_x(worked.g, behind)) / (2 * RHO)
    return slope_y(worked.g, y), slope_y(worked.f, y) + curved, slope_x(worked.f, y) + crossed


def test_rounds_worked_in_numpy():
    algorithm = obax.ZOSOGD(
        PROBLEM, 400.0, 1.5, 2.0, outer_momentum=5.0, smoothing=RHO, directions_per_round=2, seed=3
    )
    seen = plays(algorithm)
    x, y, v, key = X1, Y1, np.zeros(3), algorithm.first_key()
    before, d, used = (x, y, v), None, []
    for t, (r, (state, info)) in enumerate(zip(ROUNDS[:3], seen[:3], strict=True), start=1):
        alpha = (400.0 + t) ** (-1 / 3)
        key, drawn = algorithm.draw(key, Point(jnp.asarray(x), jnp.asarray(y), jnp.asarray(v)))
        drawn = jax.device_get(drawn)
        used.append(drawn[0])
        now = directions(x, y, v, r, drawn)
        if d is None:
            d = now
        else:
            # The same directions at the previous point.
            then = directions(*before, r, drawn)
            kept = [1 - alpha**2, 1 - alpha**2, 1 - 5 * alpha**2]
            d = [n + k * (old - p) for n, p, old, k in zip(now, then, d, kept, strict=True)]
        before = (x, y, v)
        y, v, x = y - 1.5 * alpha * d[0], v - 2 * alpha * d[1], worked.project(x - alpha * d[2])
        # Differences of differences lose digits: 1e-16 / rho^2 of values near 10.
        close(state.outer_var, x, rtol=1e-9)
        close(state.inner_var, y, rtol=1e-9)
        close(state.dual_var, v, rtol=1e-9)
        assert int(info.evaluations) == (28 if t == 1 else 56)
        assert [int(info.gradients), int(info.hvps), int(info.cross_products)] == [0, 0, 0]
    assert not np.array_equal(used[0], used[1])


def test_along_all_axes_differences_of_quadratics_are_derivatives():
    stream = obax.problems.quadratic(1, 2, 3, seed=1)
    round = jax.tree.map(lambda leaf: leaf[0], stream.rounds)
    rng = np.random.default_rng(0)
    point = Point(*(jnp.asarray(rng.standard_normal(size)) for size in (2, 3, 3)))
    exact, slope, _ = obax.SOGD(stream.problem).directions(point, round, None, None)
    axes = (np.sqrt(2) * jnp.eye(2), np.sqrt(3) * jnp.eye(3))
    zeroth = obax.ZOSOGD(stream.problem, smoothing=0.3)
    found, zeroth_slope, _ = zeroth.directions(point, round, None, axes)
    jax.tree.map(lambda a, b: close(a, b, atol=1e-11), (found, zeroth_slope), (exact, slope))


def test_directions_are_uniform_on_the_sphere():
    algorithm = obax.ZOSOGD(PROBLEM, directions_per_round=20_000)
    zeros = Point(jnp.zeros(2), {"a": jnp.zeros(2), "b": jnp.zeros(())}, None)
    _, (us, ws) = algorithm.draw(algorithm.first_key(), zeros)
    ws = np.column_stack([ws["a"], ws["b"]])
    for drawn in (np.asarray(us), ws):
        close((drawn**2).sum(axis=1), drawn.shape[1])
        # Three deviations of a mean of 20,000 terms of size about 1.
        np.testing.assert_allclose(drawn.T @ drawn / len(drawn), np.eye(drawn.shape[1]), atol=0.03)
        np.testing.assert_allclose(drawn.mean(axis=0), 0, atol=0.03)


# One random direction a round leaves v far from a solution.
@pytest.mark.filterwarnings("ignore::obax.online.HypergradientWarning")
def test_seeds_share_a_compilation_and_stack(monkeypatch):
    # Nor are the programs of other tests in this process so many that they are released between.
    monkeypatch.setattr(compiling, "MOST_PROGRAMS", 10**6)
    stream = obax.problems.quadratic(20, 2, 3, seed=1)
    traces = []

    def outer(x, y, r):
        traces.append(None)
        return stream.problem.outer(x, y, r)

    problem = obax.Problem(outer, stream.problem.inner, stream.problem.domain)
    family = [obax.ZOSOGD(problem, 1000.0, seed=seed) for seed in (0, 1, 0)]
    states = [one.init(stream.outer_var, stream.inner_var, stream.example_round) for one in family]
    ends, counts = [], []
    for algorithm, state in zip(family, states, strict=True):
        ends.append(obax.run(algorithm, state, stream.rounds)[0].outer_var)
        counts.append(len(traces))
    # A state is made (and its losses are looked at) by init, never by another seed's run.
    assert counts[0] == counts[1] == counts[2]
    np.testing.assert_array_equal(ends[0], ends[2])
    assert not np.array_equal(ends[0], ends[1])
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *states[:2])
    rounds = jax.tree.map(lambda leaf: jnp.stack([leaf, leaf]), stream.rounds)
    swept, _ = obax.sweep(family[0], stacked, rounds, seeds=True)
    close(swept.outer_var, jnp.stack(ends[:2]), rtol=1e-9)


def test_what_does_not_fit_is_said():
    with pytest.raises(ValueError, match="smoothing must be a number > 0"):
        obax.ZOSOGD(PROBLEM, smoothing=0.0)
    with pytest.raises(ValueError, match="directions_per_round must be an integer >= 1"):
        obax.ZOSOGD(PROBLEM, directions_per_round=0)
    with pytest.raises(ValueError, match="seed must be an integer"):
        obax.ZOSOGD(PROBLEM, seed=-1)
