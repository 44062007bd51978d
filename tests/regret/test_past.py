"""The window regret at past iterates: by hand, and against the paper's where they agree.

The game of `test_regrets.py`: grad phi_t(x) = x - c_t, with c = (1/2, 2, -1) and x = (0, 1/2, 1):
the gradients are -1/2, -3/2, 2.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import obax
from obax import problems, regret

ROUNDS = {"a": jnp.array([1.0, 2.0, 0.0]), "b": jnp.array([0.5, 0.0, 1.0])}
X = jnp.array([0.0, 0.5, 1.0])
PROBLEM = obax.Problem(
    lambda x, y, r: 0.5 * (y - r["a"]) ** 2,
    lambda x, y, r: 0.5 * (y - x - r["b"]) ** 2,
    obax.Box(-1.0, 1.0),
)
SINGLE = obax.Problem(lambda x, y, r: 0.5 * (x - r["a"] + r["b"]) ** 2)


@pytest.mark.parametrize(("problem", "start"), [(PROBLEM, jnp.zeros(())), (SINGLE, None)])
@pytest.mark.parametrize(
    ("window", "means"),
    [
        (obax.Window(1), [-0.5, -1.5, 2.0]),
        (obax.Window(2), [-0.25, -1.0, 0.25]),
        (obax.Window(2, normalise="seen"), [-0.5, -1.0, 0.25]),
        (obax.Window(2, 0.5), [-1 / 3, (-1.5 - 0.25) / 1.5, (2 - 0.75) / 1.5]),
        (obax.Window(9), [-0.5 / 9, -2 / 9, 0.0]),
    ],
)
def test_three_rounds_by_hand(problem, start, window, means):
    curve = regret.local_past(problem, X, ROUNDS, window, inner_start=start)
    np.testing.assert_allclose(curve.terms, np.square(means), rtol=0, atol=1e-12)
    np.testing.assert_allclose(curve, np.cumsum(np.square(means)), rtol=0, atol=1e-12)


def test_terms_are_the_stored_hypergradients_of_sobow():
    """A follower that is always at its answer: what SOBOW follows is what is measured."""
    stream = problems.quadratic(12, 2, 3, condition=1.0, seed=4)
    window = obax.Window(3, 0.8)
    # With A = I one step of size 1 reaches the answer.
    algorithm = obax.SOBOW(stream.problem, 0.1, 1.0, window, obax.hypergradient.Dense())
    state = algorithm.init(stream.outer_var, stream.inner_var, stream.example_round)
    _, history = obax.run(algorithm, state, stream.rounds)
    curve = regret.local_past(stream.problem, history.outer_var, stream.rounds, window)
    np.testing.assert_allclose(curve.terms, history.hypergradient_norm**2, rtol=1e-9)
    other = regret.local(stream.problem, history.outer_var, stream.rounds, window)
    assert np.max(np.abs(other.terms - curve.terms)) > 1e-4


def test_one_round_or_one_decision_gives_the_local_regret_of_the_paper():
    stream = problems.quadratic(8, 2, 3, seed=4)
    rng = np.random.default_rng(0)
    x = jnp.asarray(rng.uniform(-1, 1, (8, 2)))
    ours, theirs = (
        one(stream.problem, x, stream.rounds) for one in (regret.local_past, regret.local)
    )
    np.testing.assert_allclose(ours.terms, theirs.terms, rtol=1e-12)
    # One decision and one round throughout: every term of the window is the same gradient.
    held = jnp.broadcast_to(x[0], x.shape)
    still = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf[0], leaf.shape), stream.rounds)
    window = obax.Window(4, 0.7)
    ours, theirs = (
        one(stream.problem, held, still, window) for one in (regret.local_past, regret.local)
    )
    np.testing.assert_allclose(ours.terms, theirs.terms, rtol=1e-12)


def test_a_number_is_not_a_window():
    with pytest.raises(ValueError, match=r"window must be an obax\.Window"):
        regret.local_past(SINGLE, X, ROUNDS, 3)
