"""Numerical comparators against closed forms and independent methods."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

jax.config.update("jax_enable_x64", True)

from obax import problems, regret  # noqa: E402
from obax.domain import Ball, Box, NonNegative, Simplex  # noqa: E402
from obax.problem import Problem  # noqa: E402
from obax.regret import Solver  # noqa: E402

pytestmark = pytest.mark.usefixtures("quick_compilation")

MATRIX_FREE = Solver(dense_limit=0)  # the inner Hessian is only multiplied by


def without_formulas(instance):
    problem = instance.problem
    bare = Problem(problem.outer, problem.inner, problem.domain)
    return bare, {"outer_start": instance.outer_var, "inner_start": instance.inner_var}


# One instance for both boxes: the bounds are leaves of the problem, so it is compiled once.
QUADRATIC = problems.quadratic(15, 3, 4, condition=20.0, outer_condition=30.0, drift=0.2, box=9.0)


@pytest.mark.parametrize("box", [2.0, 0.2], ids=["inactive", "active"])
@pytest.mark.parametrize("solver", [None, MATRIX_FREE], ids=["dense", "matrix-free"])
def test_quadratic_stream(box, solver):
    instance = QUADRATIC
    bare = Problem(instance.problem.outer, instance.problem.inner, Box(-box, box))
    starts = {"outer_start": instance.outer_var, "inner_start": instance.inner_var}
    # The Hessian of phi_t is diagonal: the solution on a box is the clipped free one.
    known = np.clip(jax.vmap(instance.problem.outer_argmin)(instance.rounds), -box, box)
    answers = jax.vmap(instance.problem.inner_argmin)(jnp.asarray(known), instance.rounds)
    assert (np.abs(known) == box).any() == (box == 0.2)
    found = regret.outer_solutions(bare, instance.rounds, solver=solver, **starts)
    np.testing.assert_allclose(found.outer_var, known, rtol=0, atol=1e-8)
    np.testing.assert_allclose(found.inner_var, answers, rtol=0, atol=1e-8)
    assert found.converged and not found.closed_form
    assert found.residual.shape == (15,)
    static = regret.static_solution(bare, instance.rounds, solver=solver, **starts)
    np.testing.assert_allclose(static.outer_var, static_by_hand(instance, box), rtol=0, atol=1e-8)


def static_by_hand(instance, box):
    """argmin over the box of the mean of phi_t, whose Hessian S^T S + R is diagonal and fixed."""
    r = {name: np.asarray(value) for name, value in instance.rounds.items()}
    ridge = np.geomspace(1.0, 30.0, 3)
    bend = np.diag(r["answer"][0].T @ r["answer"][0]) + ridge
    pull = np.einsum("tij,ti->tj", r["answer"], r["target"] - r["shift"]) + ridge * r["center"]
    return np.clip(pull.mean(axis=0) / bend, -box, box)


def test_formulas_are_measured():
    known = regret.outer_solutions(QUADRATIC.problem, QUADRATIC.rounds)
    assert known.closed_form and known.inner_closed_form and known.converged
    assert float(known.residual.max()) < 1e-13


def test_small_games():
    for instance in (
        problems.comparability(9, "inner"),
        problems.comparability(9, "outer"),
        problems.lower_bound_game(9),
    ):
        bare, starts = without_formulas(instance)
        known = jax.vmap(instance.problem.outer_argmin)(instance.rounds)
        answers = jax.vmap(instance.problem.inner_argmin)(known, instance.rounds)
        found = regret.outer_solutions(bare, instance.rounds, **starts)
        np.testing.assert_allclose(found.outer_var, known, rtol=0, atol=1e-12)
        np.testing.assert_allclose(found.inner_var, answers, rtol=0, atol=1e-12)


def test_regression_follower():
    instance = problems.dynamic_regression(horizon=10, stages=2)
    bare, _ = without_formulas(instance)
    x = jnp.linspace(-6.0, 2.0, 10)[:, None]
    known = regret.inner_solution(instance.problem, x, instance.rounds)
    for solver in (None, MATRIX_FREE):
        found = regret.inner_solution(
            bare, x, instance.rounds, inner_start=instance.inner_var, solver=solver
        )
        np.testing.assert_allclose(found.inner_var, known.inner_var, rtol=1e-8, atol=1e-8)
    one = regret.inner_solution(instance.problem, x[3], instance.rounds, stacked=False)
    assert one.inner_var.shape == (10, 5)
    np.testing.assert_allclose(one.inner_var[3], known.inner_var[3], rtol=1e-12)


def test_follower_that_is_not_quadratic():
    # g = sum log cosh(y - x - r) + |y|^2 / 20, far from where Newton's method converges undamped.
    def inner(x, y, r):
        return jnp.sum(jnp.logaddexp(y - x - r, x + r - y)) + 0.05 * jnp.sum(y**2)

    problem = Problem(lambda x, y, r: jnp.sum(y**2), inner)
    x, rounds = jnp.linspace(-20.0, 20.0, 8).reshape(4, 2), jnp.arange(4.0)
    found = regret.inner_solution(problem, x, rounds, inner_start=jnp.full(2, 5.0))
    y = np.asarray(found.inner_var)
    slope = np.tanh(y - np.asarray(x) - np.arange(4.0)[:, None]) + 0.1 * y
    assert np.abs(slope).max() < 1e-10
    assert found.converged


def skew_quadratic(dim=5, rounds=6):
    """phi_t(x) = (x - c_t) . Q (x - c_t) / 2 by way of a follower, Q far from diagonal."""
    rng = np.random.default_rng(3)
    root = rng.standard_normal((dim, dim))
    matrix = root @ root.T + 0.2 * np.eye(dim)
    factor = jnp.asarray(np.linalg.cholesky(matrix).T)
    problem = {
        "outer": lambda x, y, r: 0.5 * jnp.sum(y**2),
        "inner": lambda x, y, r: 0.5 * jnp.sum((y - factor @ (x - r)) ** 2),
    }
    return problem, matrix, rng.standard_normal((rounds, dim))


def test_ball():
    # Independent: the Lagrange condition (Q + lambda I) x = Q c with |x| = radius, by bisection.
    losses, matrix, centres = skew_quadratic()
    radius = 0.7
    problem = Problem(**losses, domain=Ball(radius))
    starts = {"outer_start": jnp.zeros(5), "inner_start": jnp.zeros(5)}

    def exact(c):
        low, high = 0.0, 1e6
        for _ in range(200):
            middle = (low + high) / 2
            x = np.linalg.solve(matrix + middle * np.eye(5), matrix @ c)
            low, high = (middle, high) if np.linalg.norm(x) > radius else (low, middle)
        return x

    expected = [exact(c) for c in centres]
    assert np.linalg.norm(expected, axis=1).max() > 0.699
    found = regret.outer_solutions(problem, jnp.asarray(centres), **starts)
    np.testing.assert_allclose(found.outer_var, expected, rtol=0, atol=1e-8)


@pytest.mark.parametrize("name", ["simplex", "non-negative"])
def test_polyhedra(name):
    # Independent: every set of free coordinates, and the Lagrange conditions on it.
    losses, matrix, centres = skew_quadratic()
    domain = {"simplex": Simplex(), "non-negative": NonNegative()}[name]
    problem = Problem(**losses, domain=domain)
    starts = {"outer_start": jnp.zeros(5), "inner_start": jnp.zeros(5)}

    def exact(c):
        best = (np.inf, None)
        for mask in range(1 if name == "simplex" else 0, 32):
            free = [i for i in range(5) if mask >> i & 1]
            x = np.zeros(5)
            if free:
                q, pull = matrix[np.ix_(free, free)], (matrix @ c)[free]
                x[free] = np.linalg.solve(q, pull)
                if name == "simplex":
                    ones = np.linalg.solve(q, np.ones(len(free)))
                    x[free] += ones * (1 - x[free].sum()) / ones.sum()
            value = 0.5 * (x - c) @ matrix @ (x - c)
            if x.min() >= 0 and value < best[0]:
                best = (value, x)
        return best[1]

    expected = np.array([exact(c) for c in centres])
    assert (expected == 0).any()
    for solver in (None, MATRIX_FREE) if name == "simplex" else (None,):
        found = regret.outer_solutions(problem, jnp.asarray(centres), solver=solver, **starts)
        np.testing.assert_allclose(found.outer_var, expected, rtol=0, atol=1e-8)


def test_leader_that_is_not_quadratic():
    # phi_t(x) = log cosh(2 x - r) + x^4 / 4: one coordinate, against bisection of its derivative.
    problem = Problem(
        outer=lambda x, y, r: jnp.log(jnp.cosh(y)) + x**4 / 4,
        inner=lambda x, y, r: 0.5 * (y - 2 * x + r) ** 2 + 0.1 * (y - 2 * x + r) ** 4,
    )
    targets = jnp.linspace(-9.0, 9.0, 7)
    start = jnp.zeros(())
    found = regret.outer_solutions(problem, targets, outer_start=start, inner_start=start)

    def root(r):
        low, high = -10.0, 10.0
        for _ in range(200):
            x = (low + high) / 2
            low, high = (low, x) if 2 * np.tanh(2 * x - r) + x**3 > 0 else (x, high)
        return x

    np.testing.assert_allclose(found.outer_var, [root(r) for r in targets], rtol=0, atol=1e-8)
    assert found.converged


def test_linear_leader_goes_to_the_corner():
    problem = Problem(lambda x, y, r: jnp.vdot(r, x), domain=Box(-1.0, 2.0))
    rounds = jnp.array([[1.0, -1.0], [-3.0, 2.0]])
    found = regret.outer_solutions(problem, rounds, outer_start=jnp.zeros(2))
    np.testing.assert_allclose(found.outer_var, [[-1.0, 2.0], [2.0, -1.0]])


@pytest.mark.slow
def test_chunks_do_not_matter():
    instance = problems.quadratic(23, 2, 3, box=0.3)
    game = Problem(
        instance.problem.outer,
        instance.problem.inner,
        instance.problem.domain,
        instance.problem.inner_argmin,
    )
    results = []
    for chunk in (None, 7):
        solver, starts = Solver(chunk=chunk), {"outer_start": instance.outer_var}
        static = regret.static_solution(game, instance.rounds, solver=solver, **starts)
        rounds = regret.outer_solutions(game, instance.rounds, solver=solver, **starts)
        results.append((static.outer_var, static.inner_var, rounds.outer_var, rounds.inner_var))
    for a, b in zip(*results, strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-12)


def test_stages_of_the_regression():
    # Independent: normal equations of the stage's summed inner loss, and a grid over x.
    instance = problems.dynamic_regression(horizon=61, stages=3, noise=2.0, inner_dim=3, seed=4)
    lengths = (20, 20, 21)
    found = regret.stage_solutions(
        instance.problem, instance.rounds, 3, outer_start=instance.outer_var
    )
    data = jax.tree.map(np.asarray, instance.rounds)
    stop = 0
    for s, length in enumerate(lengths):
        start, stop = stop, stop + length
        (a, b), (c, d) = (
            (part[0][start:stop], part[1][start:stop])
            for part in (data["training"], data["validation"])
        )

        def model(x, a=a, b=b, length=length):
            return np.linalg.solve(a.T @ a + length * 2 * np.exp(x) * np.eye(3), a.T @ b)

        def loss(x, c=c, d=d, model=model):
            return 0.5 * np.sum((c @ model(x) - d) ** 2)

        grid = np.linspace(-8.0, 2.0, 2001)
        best = grid[np.argmin([loss(x) for x in grid])]
        x = float(found.outer_var[s, 0])
        assert abs(x - best) <= 0.005 + 1e-9
        assert loss(x) <= loss(best) + 1e-12
        np.testing.assert_allclose(found.inner_var[s], model(x), rtol=1e-8)
    assert found.converged
    assert np.bincount(found.stage).tolist() == list(lengths)


class TestWarnings:
    def test_too_few_steps(self):
        problem = Problem(lambda x, y, r: jnp.log(jnp.cosh(x - r)) + x**2)
        solver = Solver(max_steps=1, starts=0)
        with pytest.warns(regret.ComparatorWarning, match=r"leader's.*residual .*max_steps"):
            found = regret.outer_solutions(
                problem, jnp.array([2.0, 5.0]), outer_start=jnp.zeros(()), solver=solver
            )
        assert not found.converged
        assert float(found.residual.max()) > found.tolerance == 1e-10

    def test_unbounded_follower(self):
        problem = Problem(lambda x, y, r: y**2, lambda x, y, r: r * y)
        with (
            np.errstate(all="ignore"),
            pytest.warns(regret.ComparatorWarning, match="follower's optimum was not reached"),
        ):
            regret.inner_solution(problem, jnp.zeros(2), jnp.ones(2), inner_start=jnp.zeros(()))

    def test_wrong_formula(self):
        def problem(**formulas):
            return Problem(
                lambda x, y, r: 0.5 * (y - r) ** 2,
                lambda x, y, r: 0.5 * (y - x) ** 2,
                Box(-1.0, 1.0),
                **formulas,
            )

        targets = jnp.array([0.5, 3.0])
        forgot_the_box = problem(inner_argmin=lambda x, r: x, outer_argmin=lambda r: r)
        with pytest.warns(regret.ComparatorWarning, match=r"round 2.*outer_argmin does not min"):
            regret.outer_solutions(forgot_the_box, targets)
        wrong_sign = problem(inner_argmin=lambda x, r: -x)
        with pytest.warns(regret.ComparatorWarning, match=r"round 1.*inner_argmin does not min"):
            regret.inner_solution(wrong_sign, jnp.array([0.5, 0.0]), targets)

    def test_settings(self):
        with pytest.raises(ValueError, match="tolerance must be a number > 0"):
            Solver(tolerance=0.0)
        with pytest.raises(ValueError, match="max_steps must be an integer >= 1"):
            Solver(max_steps=0)
        with pytest.raises(ValueError, match="dense_limit must be an integer >= 0"):
            Solver(dense_limit=-1)


@pytest.mark.slow
def test_memory_of_a_long_horizon():
    """T = 100,000 with d1 = d2 = 10: what the searches hold beside their data stays small."""
    import resource

    instance = problems.quadratic(100_000, 10, 10, box=0.5)
    x = jnp.zeros((100_000, 10))
    assert regret.dynamic(instance.problem, x, instance.rounds).comparators.converged
    assert regret.static(instance.problem, x, instance.rounds).comparators.converged
    lengths = regret.path_lengths(instance.problem, instance.rounds)
    assert lengths.H_exact
    gigabytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    assert gigabytes < 2.0
