"""Step sizes that are left out: against rounds in NumPy, in other units, and what is reported."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import worked
from worked import PROBLEM, ROUNDS, X1, Y1, close, plays

import obax
from obax import hypergradient as hg
from obax.steps import CurvatureStep, dowg, normalised


def dowg_in_numpy(x, start, distance, root, h):
    distance = max(distance, np.linalg.norm(x - start))
    root = np.sqrt(root**2 + distance**2 * (h @ h))
    return x - distance**2 / root * h, distance, root


def test_rounds_worked_in_numpy():
    seen = plays(obax.OAGD(PROBLEM, inner_steps=3, hypergradient=hg.Dense()))
    x, y, u = X1, Y1, np.cos(1.0 + np.arange(len(Y1)))
    distance, root = 0.1 * (1 + np.linalg.norm(X1)), 0.0
    for r, (state, info) in zip(ROUNDS, seen, strict=True):
        matrix = worked.hessian(x, y, r)
        for _ in range(3):
            product = matrix @ (u / np.linalg.norm(u))
            curvature, u = np.linalg.norm(product), product
        beta = 0.5 / curvature
        close(info.inner_step_size, beta)
        for _ in range(3):
            y = y - beta * worked.g_y(x, y, r)
        h = worked.hypergradient(x, y, r)
        x, distance, root = dowg_in_numpy(x, X1, distance, root, h)
        x = worked.project(x)
        close(state.outer_var, x)
        close(state.inner_var, y)
        # Three products for the curvature and three in the dense Hessian.
        assert int(info.hvps) == 6


@pytest.fixture(scope="module")
def game():
    return obax.problems.quadratic(60, 2, 3)


def play(game, algorithm, scale=1.0, units=1.0):
    """Play a game whose losses are multiplied by `scale` and whose x is in other units."""
    problem = obax.Problem(
        lambda x, y, r: scale * game.problem.outer(x / units, y, r),
        lambda x, y, r: scale * game.problem.inner(x / units, y, r),
        obax.Box(-2.0 * units, 2.0 * units),
    )
    algorithm = algorithm(problem)
    state = algorithm.init(units * game.outer_var, game.inner_var, game.example_round)
    state, history = obax.run(algorithm, state, game.rounds)
    return state, history


@pytest.mark.parametrize("algorithm", [obax.OAGD, lambda p: obax.Race(obax.OAGD(p), trial=10)])
@pytest.mark.parametrize("scale", [1e-5, 1e5])
def test_the_scale_of_the_losses_does_not_matter(game, algorithm, scale):
    _, plain = play(game, algorithm)
    _, scaled = play(game, algorithm, scale)
    np.testing.assert_allclose(scaled.outer_var, plain.outer_var, rtol=0, atol=1e-9)
    np.testing.assert_allclose(scaled.played_value, scale * plain.played_value, rtol=1e-9)


def test_a_step_of_fixed_size_is_not_invariant(game):
    """The mutant of the test above."""
    fixed = lambda p: obax.OAGD(p, 0.1, CurvatureStep())  # noqa: E731
    (_, plain), (_, scaled) = play(game, fixed), play(game, fixed, 1e-5)
    assert np.max(np.abs(scaled.outer_var - plain.outer_var)) > 0.01


@pytest.mark.parametrize(
    "kind",
    [
        lambda p: obax.SOBOW(p),
        lambda p: obax.AOBO(p),
        lambda p: obax.F2OBO(p),
        lambda p: obax.FSOBO(p),
        lambda p: obax.RTHO(p),
        lambda p: obax.AutoBalance(p, capacity=4),
        lambda p: obax.ITD(p, capacity=3),
        lambda p: obax.OAGD(p, window=obax.Window(5, follower="window")),
        lambda p: obax.OAGD(p, inner_steps=3, hypergradient=hg.Unrolled()),
    ],
)
def test_every_algorithm_goes_without_step_sizes(kind):
    game = obax.problems.quadratic(200, 2, 3)
    algorithm = kind(game.problem)
    state = algorithm.init(game.outer_var, game.inner_var, game.example_round)
    _, history = obax.run(algorithm, state, game.rounds)
    resting = obax.OGD(game.problem)
    _, alone = obax.run(
        resting, resting.init(game.outer_var, game.inner_var, game.example_round), game.rounds
    )
    assert history.rejected == 0 and history.inner_step_size.shape == (200,)
    late = slice(100, None)
    assert history.played_value[late].mean() < alone.played_value[late].mean()


def test_a_leader_alone_goes_without_step_sizes():
    problem = obax.Problem(lambda x, y, r: jnp.sum((x - 3.0) ** 2))
    algorithm = obax.OGD(problem)
    state = algorithm.init(jnp.zeros(2), None, jnp.zeros(()))
    state, history = obax.run(algorithm, state, jnp.zeros(200))
    assert np.allclose(state.outer_var, 3.0, atol=0.05) and history.inner_step_size is None


def test_a_flat_loss_has_a_step_of_zero():
    step = CurvatureStep()
    size, direction = step.size(jnp.zeros_like, jnp.ones(3), step.init(jnp.ones(3)))
    assert size == 0 and np.all(np.isfinite(direction)) and np.linalg.norm(direction) > 0.9


def test_no_gradient_is_no_step():
    for rule in (dowg(), normalised()):
        state = rule.init(jnp.ones(2))
        update, _ = rule.update(jnp.zeros(2), state, jnp.ones(2))
        assert np.all(np.asarray(update) == 0)


def test_large_gradients_do_not_overflow():
    with jax.enable_x64(False):
        rule, x = dowg(), jnp.ones(2, jnp.float32)
        state = rule.init(x)
        update, state = rule.update(jnp.full(2, 1e18, jnp.float32), state, x)
        assert np.all(np.isfinite(update)) and np.isfinite(state.root)


def test_what_does_not_fit_is_said():
    with pytest.raises(ValueError, match="inner_step_size must be a number or a schedule with"):
        obax.OAGD(PROBLEM, inner_step_size=CurvatureStep(), inner_optimiser=optax.adam(1.0))
    with pytest.raises(ValueError, match="factor must be a number > 0"):
        CurvatureStep(0.0)
    with pytest.raises(ValueError, match="outer_step_size and outer_optimiser must be left out"):
        obax.OGD(PROBLEM, outer_step_size=0.1)


def test_a_run_that_diverges_says_so_and_names_the_level(game):
    problem = obax.Problem(
        lambda x, y, r: (y - r) ** 2, lambda x, y, r: (y - x) ** 2, obax.Box(-2.0, 2.0)
    )
    for steps, level in (((0.1, 2.5), "inner"), ((0.1, 0.1), None)):
        algorithm = obax.OAGD(problem, *steps)
        state = algorithm.init(0.0, 0.5, jnp.zeros(()))
        _, history = obax.run(algorithm, state, jnp.ones(60))
        summary = history.summary()
        assert ("diverged" in summary) == (level is not None)
        assert level is None or f"smaller {level}_step_size, or leave it out" in summary
    free = obax.Problem(lambda x, y, r: (y - r) ** 2, lambda x, y, r: (y - x) ** 2)
    algorithm = obax.OAGD(free, 2.5, 0.49)
    state = algorithm.init(0.0, 0.5, jnp.zeros(()))
    summary = obax.run(algorithm, state, jnp.ones(60))[1].summary()
    assert "the run diverged" in summary


def test_the_summary_has_the_steps(game):
    _, history = play(game, obax.OAGD)
    assert "step sizes" in history.summary()
    assert "inner_step_size" in history.to_pandas().columns
