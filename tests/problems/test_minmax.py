"""Online min-max: its closed forms, and what the hypergradient is when inner = -outer."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import obax
from obax import hypergradient as hg, regret
from obax.problems import online_minmax

pytestmark = pytest.mark.usefixtures("quick_compilation")


def at(stream, t):
    return jax.tree.map(lambda leaf: leaf[t], stream.rounds)


@pytest.mark.parametrize("box", [2.0, 0.05])
def test_closed_forms_are_saddle_points(box):
    stream = online_minmax(6, 2, 3, coupling=0.7, concavity=1.5, box=box, seed=1)
    found = regret.outer_solutions(stream.problem, stream.rounds)
    assert found.closed_form
    assert float(np.max(found.residual)) < 1e-12
    assert float(np.max(found.inner_residual)) < 1e-12
    active = np.isclose(np.abs(found.outer_var), box)
    assert np.any(active) == (box == 0.05)
    # No x in the box and no y is better for its player.
    rng = np.random.default_rng(0)
    f = stream.problem.outer
    for t in range(6):
        x, y, round = found.outer_var[t], found.inner_var[t], at(stream, t)
        for _ in range(20):
            other_x = jnp.asarray(rng.uniform(-box, box, 2))
            other_y = jnp.asarray(y + rng.standard_normal(3))
            assert f(x, other_y, round) <= f(x, y, round) + 1e-12
            best = stream.problem.inner_argmin(other_x, round)
            assert f(other_x, best, round) >= f(x, y, round) - 1e-12


def test_the_hypergradient_is_the_partial_derivative_at_the_answer():
    stream = online_minmax(1, 2, 3, seed=2)
    problem, round = stream.problem, at(stream, 0)
    x = jnp.array([0.3, -0.8])
    partial = jax.grad(problem.outer)
    y = problem.inner_argmin(x, round)
    outer_gradient = jax.grad(problem.outer, (0, 1))
    inner = lambda x, y: problem.inner(x, y, round)  # noqa: E731
    estimate = hg.Dense()(inner, x, y, outer_gradient(x, y, round), None)
    np.testing.assert_allclose(estimate.value, partial(x, y, round), rtol=1e-12)
    # Elsewhere it is that of the answer, not the partial derivative there: f is quadratic.
    away = y + jnp.array([0.5, -1.0, 2.0])
    estimate = hg.Dense()(inner, x, away, outer_gradient(x, away, round), None)
    np.testing.assert_allclose(estimate.value, partial(x, y, round), rtol=1e-12)
    assert np.linalg.norm(partial(x, away, round) - partial(x, y, round)) > 0.1
    assert obax.check_hypergradient(problem, x, y, round).ok


def test_oagd_follows_the_partial_derivative():
    stream = online_minmax(30, 2, 3, drift=0.02, seed=3)
    # concavity = 1 and one step of size 1: the follower is at its answer.
    algorithm = obax.OAGD(stream.problem, 0.3, 1.0, 1, hypergradient=hg.Dense())
    state = algorithm.init(stream.outer_var, stream.inner_var, stream.example_round)
    _, history = obax.run(algorithm, state, stream.rounds)

    def partial(x, round):
        return jax.grad(stream.problem.outer)(x, stream.problem.inner_argmin(x, round), round)

    expected = jax.vmap(partial)(history.outer_var, stream.rounds)
    np.testing.assert_allclose(
        history.hypergradient_norm, np.linalg.norm(expected, axis=1), rtol=1e-9
    )
    # And it keeps near the drifting saddle points.
    best = regret.outer_solutions(stream.problem, stream.rounds).outer_var
    assert np.max(np.linalg.norm(history.outer_var - best, axis=1)[10:]) < 0.2


def test_wrong_arguments_are_errors():
    with pytest.raises(ValueError, match="outer_dim must be at most inner_dim = 3, but got 4"):
        online_minmax(2, 4, 3)
    with pytest.raises(ValueError, match="concavity must be a number > 0"):
        online_minmax(2, concavity=0.0)
    with pytest.raises(ValueError, match="drift must be a number >= 0"):
        online_minmax(2, drift=-1.0)
