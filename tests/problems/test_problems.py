"""Ready problems: what they claim to know in closed form is so."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import obax
from obax.problems import comparability, dynamic_regression, lower_bound_game, quadratic

pytestmark = pytest.mark.usefixtures("quick_compilation")

INSTANCES = {
    "comparability-inner": lambda: comparability(6),
    "comparability-outer": lambda: comparability(6, "outer"),
    "lower-bound-game": lambda: lower_bound_game(6),
    "quadratic": lambda: quadratic(6),
    "quadratic-active-box": lambda: quadratic(6, 3, 2, box=0.1, outer_condition=5.0),
    "quadratic-wide": lambda: quadratic(6, 1, 4, condition=20.0, drift=0.3),
    "regression": lambda: dynamic_regression(6, 3),
    "regression-many": lambda: dynamic_regression(7, 2, 4, 4, samples=3, correlation=0.5),
}
each_instance = pytest.mark.parametrize("make", INSTANCES.values(), ids=INSTANCES)


def at(instance, t):
    return jax.tree.map(lambda leaf: leaf[t], instance.rounds)


@each_instance
def test_inner_argmin_is_the_followers_answer(make):
    instance = make()
    problem = instance.problem
    slope = jax.jit(jax.grad(problem.inner, 1))
    for t in range(instance.horizon):
        for x in (instance.outer_var, instance.outer_var + 0.05):
            y = problem.inner_argmin(x, at(instance, t))
            np.testing.assert_allclose(slope(x, y, at(instance, t)), 0.0, atol=1e-10)
    bend = jax.hessian(problem.inner, 1)(instance.outer_var, y, at(instance, 0))
    assert np.all(np.linalg.eigvalsh(np.atleast_2d(bend)) > 0)


@pytest.mark.parametrize("name", [name for name in INSTANCES if "regression" not in name])
def test_outer_argmin_is_the_leaders_answer(name):
    instance = INSTANCES[name]()
    problem = instance.problem

    @jax.jit
    def projected_step(x, round):
        value = lambda x: problem.outer(x, problem.inner_argmin(x, round), round)  # noqa: E731
        return problem.domain.project(x - 0.1 * jax.grad(value)(x))

    for t in range(instance.horizon):
        best = problem.outer_argmin(at(instance, t))
        assert problem.domain.contains(best)
        # A fixed point of a projected gradient step, of a strongly convex function.
        np.testing.assert_allclose(projected_step(best, at(instance, t)), best, atol=1e-12)
    if "active" in name:
        assert np.any(np.abs(best) == 0.1)


@each_instance
def test_instances_fit_together_and_repeat(make):
    instance = make()
    obax.OAGD(instance.problem, 0.1, 0.1).init(
        instance.outer_var, instance.inner_var, instance.example_round
    )
    assert instance.horizon == len(jax.tree.leaves(instance.rounds)[0])
    jax.tree.map(np.testing.assert_array_equal, make().rounds, instance.rounds)


@pytest.mark.parametrize("sequence", ["inner", "outer"])
def test_comparability_path_lengths(sequence):
    """P = 0 with one sequence and Y = 0 with the other; the rest grows like sqrt(T) and log T."""
    horizon = 400
    instance = comparability(horizon, sequence)
    x = np.asarray(jax.vmap(instance.problem.outer_argmin)(instance.rounds))
    y = np.asarray(jax.vmap(instance.problem.inner_argmin)(jnp.asarray(x), instance.rounds))
    moving, still = (y, x) if sequence == "inner" else (x, y)
    np.testing.assert_allclose(np.diff(still), 0.0, atol=1e-15)
    jumps = np.abs(np.diff(moving))
    t = np.arange(1, horizon + 1)
    np.testing.assert_allclose(np.abs(moving), 1 / np.sqrt(t), rtol=1e-12)
    # |z_t - z_{t-1}| = 1/sqrt(t) + 1/sqrt(t-1).
    np.testing.assert_allclose(jumps.sum(), 4 * np.sqrt(horizon), rtol=0.2)
    np.testing.assert_allclose((jumps**2).sum(), 4 * np.log(horizon), rtol=0.2)


def test_lower_bound_game_values():
    instance = lower_bound_game(50, seed=3)
    a, b = np.asarray(instance.rounds["a"]), np.asarray(instance.rounds["b"])
    x = 0.7
    values = [
        float(
            instance.problem.outer(
                x, instance.problem.inner_argmin(x, at(instance, t)), at(instance, t)
            )
        )
        for t in range(50)
    ]
    np.testing.assert_allclose(values, 12 * (x - a) ** 2, rtol=1e-12)
    assert abs(a.mean()) < 0.5 and abs(b.mean()) < 0.5 and 0.6 < a.std() < 1.4
    assert not np.array_equal(a, lower_bound_game(50, seed=4).rounds["a"])


def test_quadratic_has_the_condition_and_the_drift_that_were_asked_for():
    instance = quadratic(30, 2, 4, condition=9.0, drift=0.03)
    for t in range(30):
        spectrum = np.linalg.eigvalsh(instance.rounds["hessian"][t])
        np.testing.assert_allclose([spectrum[0], spectrum[-1]], [1.0, 9.0], rtol=1e-10)
    for name in ("shift", "target", "center"):
        jumps = np.linalg.norm(np.diff(instance.rounds[name], axis=0), axis=1)
        assert np.all(jumps <= 0.03 + 1e-12)
        assert np.median(jumps) == pytest.approx(0.03)
    fixed = quadratic(5, drift=0.0)
    for leaf in jax.tree.leaves(fixed.rounds):
        np.testing.assert_allclose(leaf, np.broadcast_to(leaf[:1], leaf.shape), atol=1e-14)


@pytest.mark.parametrize("name", ["quadratic", "quadratic-active-box", "quadratic-wide"])
def test_quadratic_constants(name):
    """Each constant against what it bounds, at many points of the domain and of y's reach."""
    instance = INSTANCES[name]()
    problem, constants = instance.problem, instance.constants
    d1, d2 = instance.outer_var.size, instance.inner_var.size
    rng = np.random.default_rng(0)
    box = float(problem.domain.upper)
    np.testing.assert_allclose(constants.D, problem.domain.diameter(instance.outer_var))
    assert constants.ell_g2 == 0.0

    def join(function):
        return lambda z, round: function(z[:d1], z[d1:], round)

    hessian_f = jax.jit(jax.hessian(join(problem.outer)))
    hessian_g = jax.jit(jax.hessian(join(problem.inner)))
    slope_f = jax.jit(jax.grad(join(problem.outer)))
    value = jax.jit(join(problem.outer))
    along = jax.jit(
        jax.hessian(lambda x, round: problem.outer(x, problem.inner_argmin(x, round), round))
    )
    largest_g, smallest_g, largest_f, smallest = [], [], [], []
    for t in range(instance.horizon):
        round, zero = at(instance, t), jnp.zeros(d1 + d2)
        whole = np.asarray(hessian_g(zero, round))
        largest_g.append(np.linalg.norm(whole, 2))
        smallest_g.append(np.linalg.eigvalsh(whole[d1:, d1:])[0])
        largest_f.append(np.linalg.norm(hessian_f(zero, round), 2))
        smallest.append(np.linalg.eigvalsh(along(jnp.zeros(d1), round))[0])
        for _ in range(5):
            x = rng.choice([-box, box], d1)
            y = np.asarray(problem.inner_argmin(x, round))
            z = jnp.asarray(np.append(x, y))
            assert np.linalg.norm(slope_f(z, round)) <= constants.ell_f0 * (1 + 1e-12)
            assert abs(float(value(z, round))) <= constants.M * (1 + 1e-12)
    np.testing.assert_allclose(max(largest_g), constants.ell_g1, rtol=1e-10)
    np.testing.assert_allclose(min(smallest_g), constants.mu_g, rtol=1e-10)
    np.testing.assert_allclose(max(largest_f), constants.ell_f1, rtol=1e-10)
    np.testing.assert_allclose(min(smallest), constants.mu_f, rtol=1e-10)
    first = problem.inner_argmin(instance.outer_var, at(instance, 0))
    np.testing.assert_allclose(constants.D_prime, np.linalg.norm(first), rtol=1e-10)


def test_regression_is_section_4_1():
    instance = dynamic_regression(10, 2, noise=0.0)
    a, b = instance.rounds["training"]
    x, y = np.array([-1.5]), np.arange(5.0)
    round = at(instance, 4)
    error = float(a[4] @ y - b[4])
    wanted = 0.5 * error**2 + np.exp(-1.5) * np.sum(y**2)
    np.testing.assert_allclose(instance.problem.inner(x, y, round), wanted, rtol=1e-12)
    av, bv = (leaf[4] for leaf in instance.rounds["validation"])
    np.testing.assert_allclose(
        instance.problem.outer(x, y, round), 0.5 * (av @ y - bv) ** 2, rtol=1e-12
    )
    # Without noise five samples of a stage give its model, the same for training and validation.
    models = [np.linalg.solve(a[s : s + 5], b[s : s + 5]) for s in (0, 5)]
    av, bv = instance.rounds["validation"]
    for start, model in zip((0, 5), models, strict=True):
        np.testing.assert_allclose(av[start : start + 5] @ model, bv[start : start + 5], rtol=1e-6)
    assert not np.allclose(*models)
    np.testing.assert_array_equal(instance.outer_var, [-3.0])


def test_regression_noise_is_in_its_interval():
    quiet, loud = dynamic_regression(200, 1, noise=0.0), dynamic_regression(200, 1, noise=0.1)
    noise = np.asarray(loud.rounds["training"][1] - quiet.rounds["training"][1])
    assert noise.min() >= 0.0
    assert 0.09 < noise.max() <= 0.1


COMPLAINTS = [
    (lambda: comparability(0), "horizon must be an integer >= 1, but got 0"),
    (lambda: comparability(3, "both"), "sequence must be one of 'inner', 'outer', but got 'both'"),
    (lambda: lower_bound_game(-1), "horizon must be an integer >= 1, but got -1"),
    (lambda: quadratic(3, 0), "outer_dim must be an integer >= 1, but got 0"),
    (lambda: quadratic(3, 1, 2.5), "inner_dim must be an integer >= 1, but got 2.5"),
    (lambda: quadratic(3, condition=0.5), "condition must be a number >= 1, but got 0.5"),
    (lambda: quadratic(3, outer_condition=0), "outer_condition must be a number >= 1, but got 0"),
    (lambda: quadratic(3, drift=-1.0), "drift must be a number >= 0, but got -1.0"),
    (lambda: quadratic(3, box=-1.0), "box must be a number > 0, but got -1.0|Box.lower"),
    (lambda: dynamic_regression(3, 0), "stages must be an integer >= 1, but got 0"),
    (lambda: dynamic_regression(3, 4), "stages must be at most horizon = 3, but got 4"),
    (lambda: dynamic_regression(3, 1, 2, 5), "outer_dim must be 1 .* or inner_dim = 5.*but got 2"),
    (lambda: dynamic_regression(3, samples=0), "samples must be an integer >= 1, but got 0"),
    (lambda: dynamic_regression(3, correlation=1.0), r"correlation must be in \[0, 1\), but got 1"),
]


@pytest.mark.parametrize(("make", "message"), COMPLAINTS)
def test_wrong_arguments_are_errors(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_the_best_penalty_of_a_sample_is_the_best_of_many():
    instance = dynamic_regression(60, 2, noise=1.0, lower=-4.0, upper=1.0)
    problem, tried = instance.problem, jnp.linspace(-4.0, 1.0, 2001)[:, None]

    def loss(x, round):
        return problem.outer(x, problem.inner_argmin(x, round), round)

    found = jax.vmap(problem.outer_argmin)(instance.rounds)
    best = jax.vmap(lambda r: jnp.min(jax.vmap(lambda x: loss(x, r))(tried)))(instance.rounds)
    reached = jax.vmap(loss)(found, instance.rounds)
    assert np.all(reached <= best + 1e-12)
    assert np.all((found >= -4.0) & (found <= 1.0))
    inside = (found > -4.0) & (found < 1.0)
    assert 5 < np.sum(inside) < 55
    np.testing.assert_allclose(reached[inside[:, 0]], 0.0, atol=1e-12)
