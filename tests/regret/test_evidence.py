"""What speaks for a comparator and what against it: basins, curvature, units, negative terms."""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import obax
from obax import problems, regret

pytestmark = pytest.mark.usefixtures("quick_compilation")
ZERO = jnp.zeros(())
WELLS = obax.Problem(lambda x, y, r: r * jnp.sum((x**2 - 1) ** 2))


def test_a_maximum_is_escaped():
    """phi = (x^2 - 1)^2 from the start 0, where its gradient is zero and its curvature -4."""
    curve = regret.dynamic(WELLS, jnp.zeros(3), jnp.ones(3))
    np.testing.assert_allclose(np.abs(curve.comparators.outer_var), 1.0, atol=1e-10)
    np.testing.assert_allclose(curve.terms, 1.0, atol=1e-12)
    assert curve.comparators.converged
    # Without any other place to look at: by its curvature alone, however small the wells are.
    tiny = obax.Problem(lambda x, y, r: r * jnp.sum((x**2 - 1e-6) ** 2))
    alone = regret.outer_solutions(
        tiny, jnp.ones(1), outer_start=jnp.zeros(2), solver=regret.Solver(starts=0)
    )
    np.testing.assert_allclose(np.abs(alone.outer_var), 1e-3, rtol=1e-6)
    assert alone.converged


def test_the_lower_of_two_basins():
    """phi = (x^2 - 1)^2 + r x / 2: the wells are left and right, the lower one by the sign of r."""
    problem = obax.Problem(
        lambda x, y, r: (y**2 - 1) ** 2 + 0.5 * r * y, lambda x, y, r: (y - x) ** 2
    )
    signs = jnp.array([1.0, -1.0, 1.0])
    with pytest.warns(regret.SeveralMinimaWarning, match="3 of 3 rounds .* lower estimate"):
        found = regret.outer_solutions(problem, signs, outer_start=-jnp.ones(()), inner_start=ZERO)
    np.testing.assert_array_equal(np.sign(found.outer_var), -signs)
    assert found.converged and "descents agree" in found.global_evidence
    # A basin that no point of the search falls into is found if it was played.
    narrow = obax.Problem(lambda x, y, r: 0.01 * x**2 - jnp.exp(-(((x - r) / 0.01) ** 2)))
    played = jnp.full(2, 7.0)
    with pytest.warns(regret.SeveralMinimaWarning, match="has several minima"):
        curve = regret.dynamic(narrow, played, jnp.array([7.0, 7.0]))
    assert "a lower estimate" in repr(curve)
    np.testing.assert_allclose(curve.comparators.outer_var, 7.0, atol=1e-3)
    with pytest.warns(regret.SeveralMinimaWarning, match="the whole horizon"):
        fixed = regret.static(narrow, played, jnp.array([7.0, 7.0]))
    np.testing.assert_allclose(fixed.comparators.outer_var, 7.0, atol=1e-3)


def test_a_saddle_on_a_face_and_a_corner():
    """phi = y^2 - x^2 on a box: free along x at 0, at rest in the corners x = +-1, y = 0."""
    saddle = obax.Problem(lambda x, y, r: r * (x[1] ** 2 - x[0] ** 2), domain=obax.Box(-1.0, 1.0))
    found = regret.outer_solutions(
        saddle, jnp.ones(1), outer_start=jnp.zeros(2), solver=regret.Solver(starts=0)
    )
    np.testing.assert_allclose(np.abs(found.outer_var), [[1.0, 0.0]], atol=1e-10)
    assert found.converged and float(found.curvature[0]) > 0


class TestMutants:
    """Comparators that are wrong on purpose must be seen to be so."""

    def test_a_formula_that_names_the_maximum(self):
        wrong = obax.Problem(WELLS.outer, outer_argmin=lambda r: 0.0 * r)
        with pytest.warns(regret.ComparatorWarning, match=r"not a minimum.*round 1.*curvature -1"):
            found = regret.outer_solutions(wrong, jnp.ones(3))
        assert not found.converged and float(found.reached) <= found.tolerance

    def test_a_formula_that_names_the_wrong_basin(self):
        """Residual and curvature are those of a minimum; only what was played proves it."""
        higher = max(np.roots([4.0, 0.0, -4.0, 0.25]).real)
        tilted = obax.Problem(
            lambda x, y, r: (x**2 - 1) ** 2 + r * x, outer_argmin=lambda r: 0.0 * r + higher
        )
        comparators = regret.outer_solutions(tilted, jnp.full(3, 0.25))
        assert comparators.converged
        with pytest.warns(regret.ComparatorWarning, match=r"in round 2 the decision.*1 of 3"):
            curve = regret.dynamic(
                tilted, jnp.array([1.0, -1.0, 0.0]), jnp.full(3, 0.25), comparators=comparators
            )
        assert not curve.comparators.converged
        np.testing.assert_array_equal(curve.comparators.beaten, [False, True, False])

    def test_a_tolerance_ten_times_too_loose(self):
        """A point that is off by ten tolerances has not converged, and one within has."""
        for off, good in ((1e-9, False), (3e-11, True)):
            shifted = obax.Problem(
                lambda x, y, r: 0.5 * (x - r) ** 2, outer_argmin=lambda r, off=off: r * (1 + off)
            )
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", regret.ComparatorWarning)
                found = regret.outer_solutions(shifted, jnp.array([2.0, -3.0]))
            assert found.converged == good
            np.testing.assert_allclose(found.reached, off, rtol=1e-3)

    def test_negative_terms_within_rounding_are_none(self):
        problem = obax.Problem(lambda x, y, r: (x - r) ** 2 + 1.0, outer_argmin=lambda r: r)
        targets = jnp.array([1.0, 2.0])
        curve = regret.dynamic(problem, targets + 1e-9, targets)
        assert curve.comparators.converged and curve.comparators.beaten is None


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
def test_the_scale_of_the_losses_does_not_matter(dtype):
    """Both losses times 1e-5 and 1e5, targets around 0.01, one compilation for all."""
    problem = obax.Problem(
        lambda x, y, r: r["s"] * (0.5 * (y - r["a"]) ** 2 + 0.1 * x**2),
        lambda x, y, r: r["s"] * jnp.cosh(y - 2 * x),
        obax.Box(-1.0, 1.0),
    )
    targets = np.array([0.01, 0.013, -0.02])
    start = jnp.zeros((), dtype)
    # phi = (2 x - a)^2 / 2 + x^2 / 10: x* = 2 a / 4.2.
    for scale in (1e-5, 1.0, 1e5):
        rounds = {"a": jnp.asarray(targets, dtype), "s": jnp.full(3, scale, dtype)}
        starts = {"outer_start": start, "inner_start": start}
        found = regret.outer_solutions(problem, rounds, **starts)
        rtol = 1e-9 if dtype == jnp.float64 else 1e-4
        np.testing.assert_allclose(found.outer_var, 2 * targets / 4.2, rtol=rtol)
        assert found.converged and float(found.reached) <= found.tolerance
        fixed = regret.static_solution(problem, rounds, **starts)
        np.testing.assert_allclose(fixed.outer_var, 2 * targets.mean() / 4.2, rtol=10 * rtol)


def test_long_horizons_without_a_follower():
    """T = 513, one more than a chunk."""
    problem = obax.Problem(lambda x, y, r: (x - r) ** 2)
    x, rounds = jnp.zeros(513), jnp.ones(513)
    np.testing.assert_allclose(regret.dynamic(problem, x, rounds).total, 513.0)
    np.testing.assert_allclose(regret.static(problem, x, rounds).total, 513.0)
    np.testing.assert_allclose(regret.local(problem, x, rounds).total, 4 * 513.0)
    lengths = regret.path_lengths(problem, rounds, outer_start=ZERO)
    assert lengths.totals == dict.fromkeys(("P", "Y", "S", "Y_bar", "H"), 0.0)


def test_the_history_of_a_run_is_enough():
    """No closed form and no inner_start: the history knows what the follower looks like."""
    stream = problems.quadratic(6, 2, 3, drift=0.1, seed=1)
    bare = obax.Problem(stream.problem.outer, stream.problem.inner, stream.problem.domain)
    algorithm = obax.SOBOW(bare, 0.1, 0.4)
    state = algorithm.init(stream.outer_var, stream.inner_var, stream.example_round)
    state, history = obax.run(algorithm, state, stream.rounds)
    x, rounds = history.outer_var, stream.rounds
    curve = regret.dynamic(bare, history, rounds)
    known = regret.dynamic(stream.problem, x, rounds)
    np.testing.assert_allclose(curve.terms, known.terms, atol=1e-10)
    by_state = regret.local(bare, x, rounds, inner_start=state)
    np.testing.assert_allclose(by_state.terms, regret.local(bare, history, rounds).terms)
    pairs = known.comparators
    best = jax.vmap(bare.outer)(pairs.outer_var, pairs.inner_var, rounds)
    suffered = regret.played(bare, history, rounds, curve.comparators)
    np.testing.assert_allclose(suffered.terms, history.played_value - best, atol=1e-9)
    with pytest.raises(ValueError, match="the whole history of a run in place of its decisions"):
        regret.dynamic(bare, x, rounds)


@pytest.mark.parametrize("outer_dim", [1, 5])
def test_stages_find_what_a_fine_grid_finds(outer_dim):
    """Penalties on [-8, 2] with plateaus at both ends, where a descent stalls; from either end."""
    stream = problems.dynamic_regression(300, 3, outer_dim, 5, noise=1.0, correlation=0.5, seed=3)
    stages = np.repeat(np.arange(3), 100)
    for start in (-8.0, 2.0):
        found = regret.stage_solutions(
            stream.problem, stream.rounds, 3, outer_start=jnp.full(outer_dim, start)
        )
        assert found.converged
        for stage in range(3):
            loss = stage_loss(stream, stages == stage)
            best = coordinate_grid(loss, outer_dim)
            assert loss(np.asarray(found.outer_var[stage])) <= loss(best) * (1 + 1e-10)


def stage_loss(stream, members):
    (a, b), (c, d) = (
        (np.asarray(part[0])[members], np.asarray(part[1])[members])
        for part in (stream.rounds["training"], stream.rounds["validation"])
    )

    def loss(x):
        penalty = np.diag(np.broadcast_to(2 * np.exp(x), (5,)))
        y = np.linalg.solve(a.T @ a / len(a) + penalty, a.T @ b / len(a))
        return 0.5 * np.mean((c @ y - d) ** 2)

    return loss


def coordinate_grid(loss, dim):
    best = np.full(dim, -3.0)
    for _ in range(1 if dim == 1 else 6):
        for i in range(dim):
            points = np.repeat(best[None], 101, axis=0)
            points[:, i] = np.linspace(-8.0, 2.0, 101)
            best = points[np.argmin([loss(point) for point in points])]
    return best


def test_starts_and_settings_that_do_not_fit():
    rounds = jnp.ones(3)
    with pytest.raises(ValueError, match="starts must be 3 points, one for each round, but are 2"):
        regret.outer_solutions(WELLS, rounds, starts=jnp.zeros(2), outer_start=ZERO)
    with pytest.raises(ValueError, match=r"starts\[0\] must match outer_start"):
        regret.static_solution(WELLS, rounds, starts=jnp.zeros((2, 2)), outer_start=ZERO)
    with pytest.raises(ValueError, match="starts must be an integer >= 0"):
        regret.Solver(starts=-1)
