"""Places where a regret cannot be trusted: each is noticed, and warned of outside `vmap` too."""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import obax
from obax import regret
from obax.implicit import kinks, places
from tests.online.test_function_counts import calls

pytestmark = pytest.mark.usefixtures("quick_compilation")
ZERO = jnp.zeros(())


def two_wells(x, y, r):
    """A well of depth 1 at the target and one of depth 0.2 at zero."""
    near = jnp.exp(-jnp.sum((x - r["target"]) ** 2) / 2)
    return -near - 0.2 * jnp.exp(-jnp.sum(x**2) / 2) + 0.0 * jnp.sum(r["unused"])


@pytest.mark.parametrize("domain", [obax.Box(-10.0, 10.0), None], ids=["box", "free"])
def test_a_well_far_from_the_decisions(domain):
    """Played at zero, in the shallow well; the truth is 0.8 a round."""
    targets = np.array([[8.0, 8.0], [-7.0, 3.0], [5.0, -6.0]])
    rounds = {"target": jnp.asarray(targets), "unused": jnp.ones((3, 5))}
    with pytest.warns(regret.SeveralMinimaWarning, match="lower estimate"):
        curve = regret.dynamic(obax.Problem(two_wells, domain=domain), jnp.zeros((3, 2)), rounds)
    np.testing.assert_allclose(curve.terms, 0.8, atol=1e-6)
    assert np.all(curve.comparators.lower_estimate) and curve.comparators.converged


RIPPLES = obax.Problem(
    lambda x, y, r: (x - r[0]) ** 2 / 200 + 1 - jnp.cos(r[1] * (x - r[0])),
    domain=obax.Box(-20.0, 20.0),
)


def ripples(wells):
    """40 rounds with so many wells each."""
    centres = jnp.linspace(-18.7, 18.9, 40)
    return jnp.stack([centres, jnp.full(40, wells * 2 * jnp.pi / 40)], axis=1)


@pytest.mark.parametrize("wells", [6, 13, 32])
def test_many_wells_on_an_interval(wells):
    rounds = ripples(wells)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", regret.SeveralMinimaWarning)
        found = regret.outer_solutions(RIPPLES, rounds, outer_start=ZERO)
    values = np.asarray(jax.vmap(RIPPLES.outer, (0, None, 0))(found.outer_var, None, rounds))
    assert np.all((values < 1e-12) | np.asarray(found.lower_estimate))
    assert np.all(np.asarray(found.descents) >= 5)


def test_descents_that_agree_are_not_flagged():
    """phi is not convex and has one minimum, of value zero."""
    problem = obax.Problem(
        lambda x, y, r: jnp.log1p(jnp.sum((x - r["target"]) ** 2)), domain=obax.Box(-5.0, 5.0)
    )
    rounds = {"target": jnp.array([[1.0, 2.0], [-3.0, 1.0]]), "unused": jnp.ones((2, 5))}
    found = regret.outer_solutions(problem, rounds, outer_start=jnp.zeros(2))
    np.testing.assert_allclose(found.outer_var, rounds["target"], atol=1e-8)
    assert np.all(np.asarray(found.descents) >= 4) and not np.any(found.lower_estimate)
    assert "descents agree" in found.global_evidence


class TestMutants:
    def test_a_search_that_takes_everything_for_convex(self, monkeypatch):
        """Without the test of convexity nothing is descended from and nothing is flagged."""
        monkeypatch.setattr(places.Probes, "convex", lambda *_: jnp.asarray(True))
        rounds = ripples(13)[:39]  # another length: compiled anew
        found = regret.outer_solutions(RIPPLES, rounds, outer_start=ZERO)
        assert not np.any(found.descents) and found.global_evidence == "convex on the points seen"
        values = jax.vmap(RIPPLES.outer, (0, None, 0))(found.outer_var, None, rounds)
        assert np.any(np.asarray(values) > 1e-3)


WRONG = obax.Problem(lambda x, y, r: (x - r) ** 2, outer_argmin=lambda r: r + 1.0)


class TestSweeps:
    """A wrong outer_argmin: 11 in place of 14."""

    def test_vmap_is_silent_and_check_is_not(self):
        rounds = jnp.array([1.0, 2.0, 3.0])
        curves = jax.vmap(lambda x: regret.dynamic(WRONG, x, rounds))(jnp.zeros((2, 3)))
        np.testing.assert_allclose(curves.total, 11.0)
        with pytest.warns(regret.ComparatorWarning, match=r"optimum was not reached.*setting"):
            assert regret.check(curves) is curves

    def test_a_sweep_warns_by_itself(self):
        rounds = jnp.array([1.0, 2.0, 3.0])
        with pytest.warns(regret.ComparatorWarning, match="outer_argmin does not minimise"):
            curves = regret.sweep(regret.dynamic, WRONG, jnp.zeros((2, 3)), rounds)
        np.testing.assert_allclose(curves.total, 11.0)

    def test_a_decision_that_is_better_is_found_in_its_setting(self):
        shifted = obax.Problem(lambda x, y, r: (x - r) ** 2 + 1, outer_argmin=lambda r: r + 1e-6)
        x = jnp.zeros((2, 3)).at[1, 2].set(3.0)
        solver = regret.Solver(tolerance=1e-5)  # the residual passes, and its square is below it
        curves = regret.sweep(regret.dynamic, shifted, x, jnp.array([1.0, 2.0, 3.0]), solver=solver)
        assert not np.any(curves.comparators.beaten)
        tight = obax.Problem(lambda x, y, r: jnp.abs(x - r), outer_argmin=lambda r: r + 0.1)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            regret.sweep(regret.dynamic, tight, x, jnp.array([1.0, 2.0, 3.0]), solver=solver)
        messages = [str(one.message) for one in caught]
        assert any("in round 3 of setting 2 the decision" in message for message in messages)
        assert all(one.filename == __file__ for one in caught)

    def test_right_ones_are_silent(self):
        problem = obax.Problem(lambda x, y, r: (x - r) ** 2, outer_argmin=lambda r: r)
        curve = regret.sweep(
            regret.static, problem, jnp.zeros((2, 3)), jnp.ones((2, 3)), own_rounds=True
        )
        np.testing.assert_allclose(curve.total, 3.0)
        with pytest.raises(ValueError, match="result must be a RegretCurve"):
            regret.check(3.0)


class TestFollower:
    """A follower with two wells: the well of the start is taken for the argmin."""

    def test_unbounded_below(self):
        problem = obax.Problem(lambda x, y, r: (y - r) ** 2, lambda x, y, r: y**3 - x * y)
        with pytest.warns(regret.FollowerWarning, match="lower value than at y"):
            regret.inner_solution(problem, jnp.ones(2), jnp.ones(2), inner_start=jnp.ones(()))

    def test_the_shallow_of_two_wells(self):
        problem = obax.Problem(
            lambda x, y, r: (y - r) ** 2, lambda x, y, r: (y**2 - 1) ** 2 + 0.1 * x * y
        )
        with pytest.warns(regret.FollowerWarning, match="lower value than at y"):
            regret.inner_solution(problem, jnp.ones(2), jnp.ones(2), inner_start=jnp.ones(()))

    def test_a_closed_form_that_names_the_shallow_one(self):
        problem = obax.Problem(
            lambda x, y, r: (y - r) ** 2,
            lambda x, y, r: (y**2 - 1) ** 2 + 0.1 * y,
            inner_argmin=lambda x, r: 0.0 * x + max(np.roots([4.0, 0.0, -4.0, 0.1]).real),
        )
        with pytest.warns(regret.FollowerWarning, match="lower value than at y"):
            regret.inner_solution(problem, jnp.ones(2), jnp.ones(2))

    def test_not_convex_away_from_the_answer(self):
        problem = obax.Problem(
            lambda x, y, r: (y - r) ** 2, lambda x, y, r: jnp.log1p((y - x) ** 2)
        )
        with pytest.warns(regret.FollowerWarning, match="not strongly convex"):
            regret.inner_solution(problem, jnp.ones(2), jnp.ones(2), inner_start=jnp.ones(()))

    def test_strongly_convex_ones_pass(self):
        problem = obax.Problem(
            lambda x, y, r: (y - r) ** 2, lambda x, y, r: jnp.cosh(y - x) + 1e-3 * y**2
        )
        found = regret.inner_solution(problem, jnp.ones(2), jnp.ones(2), inner_start=ZERO)
        assert np.all(found.convexity.at_answer > 0)


def test_an_infimum_that_is_not_attained():
    """phi = exp(-x) r falls for ever; far out its gradient underflows to zero."""
    problem = obax.Problem(lambda x, y, r: jnp.exp(-y) * r, lambda x, y, r: (y - x) ** 2)
    starts = {"outer_start": ZERO, "inner_start": ZERO}
    for solve in (regret.static_solution, regret.outer_solutions):
        with pytest.warns(regret.ComparatorWarning, match="leader's optimum was not reached"):
            assert not solve(problem, jnp.ones(3), **starts).converged


@pytest.mark.slow
def test_150_variables_with_condition_1e7():
    bend = jnp.asarray(np.geomspace(1e-7, 1.0, 150))
    problem = obax.Problem(lambda x, y, r: jnp.sum(bend * jnp.log(jnp.cosh(x - r))))
    target = jnp.asarray(np.random.default_rng(0).normal(size=(1, 150)))
    found = regret.outer_solutions(problem, target, outer_start=jnp.zeros(150))
    assert found.converged
    np.testing.assert_allclose(problem.outer(found.outer_var[0], None, target[0]), 0, atol=1e-15)


def folded(dim):
    """A follower that answers max(x, 0), so that phi has a kink and its minimum at x = 0."""
    return obax.Problem(
        lambda x, y, r: 0.5 * jnp.sum((y + 1) ** 2 - r * x + 0.1 * x**2) + 1,
        lambda x, y, r: 0.5 * jnp.sum((y - x) ** 2),
        domain=obax.Box(-3.0, 3.0),
        inner_domain=obax.Box(0.0, 5.0),
    )


class TestKinks:
    """A minimum at which the gradient of phi jumps from negative to positive."""

    def test_the_minimum_is_reached(self):
        start, slopes = jnp.ones(2), jnp.array([0.3, 1.0, 1.7])
        found = regret.outer_solutions(folded(2), slopes, outer_start=start, inner_start=start)
        assert found.converged
        np.testing.assert_allclose(found.outer_var, 0.0, atol=1e-8)
        assert np.all(np.asarray(found.above) <= 1e-9)

    def test_a_search_that_stops_beside_it_says_how_far_it_is_off(self, monkeypatch):
        """Without its last turns the search ends beside the kink, and the bound is no less."""
        monkeypatch.setattr(kinks, "MOST_TURNS", 2)
        start, slopes = jnp.ones(2), jnp.array([0.3, 1.0])  # another length: compiled anew
        with pytest.warns(regret.ComparatorWarning, match="above its minimum in each"):
            found = regret.outer_solutions(folded(2), slopes, outer_start=start, inner_start=start)
        values = jax.vmap(folded(2).outer)(found.outer_var, found.inner_var, slopes)
        off = np.asarray(values) - 2.0
        assert not found.converged and np.any(off > 1e-9)
        assert np.all(off <= np.asarray(found.above))


def test_a_second_call_passes_through_few_functions():
    """Of obax alone: what is compiled is not traced again, and arguments are checked once."""
    problem = obax.Problem(lambda x, y, r: (y - r) ** 2, lambda x, y, r: (y - x) ** 2)
    rounds, start = jnp.linspace(0.0, 1.0, 7), jnp.zeros(())

    def call():
        return regret.dynamic(problem, jnp.zeros(7), rounds, inner_start=start)

    call()
    assert len(calls(call)) <= 30
