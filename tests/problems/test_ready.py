"""The ready problems of section 4: each against what is known of it in closed form."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import obax
from obax import hypergradient as hg
from obax.problems import (
    actor_critic,
    critic_matrix,
    hyper_cleaning,
    hyper_representation,
    strategic_regression,
    strategic_rule,
    subspace_error,
)

pytestmark = pytest.mark.usefixtures("quick_compilation")


def at(stream, t=0):
    return jax.tree.map(lambda leaf: leaf[t], stream.rounds)


def value(stream, x, round):
    """phi(x) = f(x, y*(x)) from the closed form."""
    return stream.problem.outer(x, stream.problem.inner_argmin(x, round), round)


STREAMS = {
    "strategic": lambda: strategic_regression(4, 3, genuine=0.3, seed=1),
    "actor-critic": lambda: actor_critic(4, 3, 2, seed=1),
    "cleaning": lambda: hyper_cleaning(4, 4, 1, 3, seed=1),
    "representation": lambda: hyper_representation(4, 5, 2, seed=1),
}


@pytest.mark.parametrize("name", STREAMS)
def test_answers_and_hypergradients_in_closed_form(name):
    stream = STREAMS[name]()
    round, key = at(stream, 2), jax.random.key(0)
    x = stream.outer_var + 0.1 * jax.random.normal(key, stream.outer_var.shape)
    y = stream.problem.inner_argmin(x, round)
    slope = jax.grad(stream.problem.inner, 1)(x, y, round)
    assert np.max(np.abs(slope)) < 1e-12
    # Away from it the follower is worse off.
    best = stream.problem.inner(x, y, round)
    for number in range(5):
        other = y + 0.1 * jax.random.normal(jax.random.key(number), y.shape)
        assert stream.problem.inner(x, other, round) > best
    found = hg.Dense().at(stream.problem, x, y, round)
    expected = jax.grad(lambda x: value(stream, x, round))(x)
    np.testing.assert_allclose(found.value, expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("genuine", [0.0, 1.0])
def test_the_best_rule_for_people_who_respond(genuine):
    stream = strategic_regression(1, 3, cost=0.7, genuine=genuine, noise=0.0, seed=2)
    round = at(stream)
    best = jnp.asarray(strategic_rule(np.asarray(round["theta"]), 0.7, genuine))
    slope = jax.grad(lambda x: value(stream, x, round))(best)
    assert np.max(np.abs(slope)) < 1e-12
    assert np.all(np.linalg.eigvalsh(jax.hessian(lambda x: value(stream, x, round))(best)) > 0)
    shorter = np.linalg.norm(best) / np.linalg.norm(round["theta"])
    assert (shorter < 0.9) if genuine == 0 else shorter == 1
    # The closed form is no other rule: that of plain regression is worse where effort is gaming.
    naive = value(stream, round["theta"], round)
    assert (naive > value(stream, best, round) + 1e-3) == (genuine == 0)


def test_the_best_policy_is_that_of_riccati():
    stream = actor_critic(3, 3, 2, seed=3)
    for t in range(3):
        round = at(stream, t)
        best = stream.problem.outer_argmin(round)
        np.testing.assert_allclose(value(stream, best, round), round["value"], rtol=1e-10)
        slope = jax.grad(lambda x, round=round: value(stream, x, round))(best)
        assert np.max(np.abs(slope)) < 1e-9
        # The critic's answer is a Lyapunov solution: it values what the policy really costs.
        P = critic_matrix(stream.problem.inner_argmin(best, round), 3)
        state, paid = np.array([1.0, -2.0, 0.5]), 0.0
        closed = np.asarray(round["A"] - round["B"] @ best)
        promised = state @ np.asarray(P) @ state
        for step in range(600):
            control = np.asarray(best) @ state
            paid += 0.9**step * (state @ state + control @ control)
            state = closed @ state
        np.testing.assert_allclose(promised, paid, rtol=1e-9)


def test_bad_sources_lose_their_weight_and_good_ones_keep_it():
    stream = hyper_cleaning(300, 5, 2, 3, seed=0)
    algorithm = obax.OAGD(stream.problem, 2.0, 0.3, 10, hypergradient=hg.CG(max_steps=3))
    state = algorithm.init(stream.outer_var, stream.inner_var, stream.example_round)
    state, history = obax.run(algorithm, state, stream.rounds)
    weights = jax.nn.sigmoid(state.outer_var)
    assert np.max(weights[3:]) < 0.05 < 0.5 < np.min(weights[:3])
    assert np.mean(history.played_value[-50:]) < 0.7 * np.mean(history.played_value[:50])


def test_the_leader_finds_the_space_of_the_teacher():
    stream = hyper_representation(400, 6, 2, seed=0)
    teacher = stream.rounds["teacher"][0]
    algorithm = obax.OAGD(stream.problem, 0.1, 0.1, 20, hypergradient=hg.Dense())
    state = algorithm.init(stream.outer_var, stream.inner_var, stream.example_round)
    start = subspace_error(state.outer_var, teacher)
    state, _ = obax.run(algorithm, state, stream.rounds)
    assert subspace_error(state.outer_var, teacher) < 0.15 < 0.8 < start
    assert subspace_error(jnp.eye(6)[:, :2], jnp.eye(6)[:, 2:4]) == 1


COMPLAINTS = [
    (lambda: strategic_regression(2, cost=0.0), "cost must be a number"),
    (lambda: strategic_regression(2, genuine=2.0), "genuine must be between 0 and 1"),
    (lambda: strategic_rule(np.ones(2), 1.0, 0.5), "genuine must be 0 or 1"),
    (lambda: actor_critic(2, discount=1.0), "discount must be between 0 and 1"),
    (lambda: hyper_cleaning(2, 3, 4), "bad must be between 0 and sources = 3"),
    (lambda: hyper_cleaning(2, ridge=0.0), "ridge must be a number > 0"),
    (lambda: hyper_representation(2, 2, 3), "features must be at most inputs = 2"),
]


@pytest.mark.parametrize(("make", "message"), COMPLAINTS)
def test_wrong_arguments_are_errors(make, message):
    with pytest.raises(ValueError, match=message):
        make()
