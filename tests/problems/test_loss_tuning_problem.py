"""The loss-tuning problem: its losses, its derivatives, what it rejects."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import obax
from obax.problems import balanced_weights, loss_tuning, loss_tuning_start

J, D, N = 3, 4, 12


class Linear(eqx.Module):
    """A classifier of one's own: anything that is called like a model of `obax.models`."""

    weight: jax.Array

    def __call__(self, inputs, buffers, *, training, key):
        return inputs @ self.weight, buffers


def a_round(seed=0, labels=None):
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, J, N).astype(np.int32) if labels is None else labels
    rows = lambda: jnp.asarray(rng.standard_normal((N, D)))  # noqa: E731
    return {
        "train": (rows(), jnp.asarray(labels)),
        "valid": (rows(), jnp.asarray(labels[::-1].copy())),
        "class_weights": jnp.asarray([1.5, 3.0, 6.0]),
        "key": jnp.zeros(2, jnp.uint32),
    }


def x_of(gamma, delta):
    return {"gamma": jnp.asarray(gamma), "delta": jnp.asarray(delta)}


@pytest.mark.parametrize("link", ["identity", "sigmoid"])
def test_the_losses_are_those_of_the_paper(link):
    problem = loss_tuning(J, link=link)
    round, weight = a_round(), np.random.default_rng(1).standard_normal((D, J))
    gamma, delta = np.array([0.5, 1.0, 2.0]), np.array([0.1, -0.2, 0.3])
    x, y = x_of(gamma, delta), Linear(jnp.asarray(weight))
    scale = gamma if link == "identity" else 1 / (1 + np.exp(-gamma))
    inner = outer = 0.0
    for a, b in zip(*map(np.asarray, round["train"]), strict=True):
        logits = scale * (a @ weight) + delta
        inner += -np.log(np.exp(logits[b]) / np.exp(logits).sum()) / N
    for a, b in zip(*map(np.asarray, round["valid"]), strict=True):
        logits = a @ weight
        u = np.asarray(round["class_weights"])[b]
        outer += -u * np.log(np.exp(logits[b]) / np.exp(logits).sum()) / N
    np.testing.assert_allclose(problem.inner_loss(x, y, round, ())[0], inner, rtol=1e-12)
    np.testing.assert_allclose(problem.outer_loss(x, y, round, ()), outer, rtol=1e-12)


def test_the_follower_reaches_the_leader_and_nothing_else_does():
    problem, round, y = loss_tuning(J), a_round(), Linear(jnp.ones((D, J)))
    slope = jax.grad(problem.outer_loss)(loss_tuning_start(J), y, round, ())
    assert not any(np.any(leaf) for leaf in jax.tree.leaves(slope))
    cross = jax.jacfwd(jax.grad(lambda x, y: problem.inner_loss(x, y, round, ())[0], 1))
    assert all(np.any(leaf) for leaf in jax.tree.leaves(cross(loss_tuning_start(J), y)))


def test_gamma_stays_positive():
    problem = loss_tuning(J)
    algorithm = obax.OAGD(problem, 1e4, 0.1)
    state = algorithm.init(loss_tuning_start(J), Linear(jnp.ones((D, J))), a_round(), buffers=())
    for seed in range(3):
        state, info = algorithm.step(state, a_round(seed))
        assert info.accepted
        assert np.all(np.asarray(state.outer_var["gamma"]) >= 0.05)
        assert np.all(np.abs(np.asarray(state.outer_var["delta"])) <= 10)


@pytest.mark.parametrize("wrong", [-1, J])
def test_a_label_outside_the_classes_is_rejected(wrong):
    problem = loss_tuning(J)
    algorithm = obax.OAGD(problem, 0.1, 0.1)
    state = algorithm.init(loss_tuning_start(J), Linear(jnp.ones((D, J))), a_round(), buffers=())
    bad = a_round(labels=np.array([0, 1, wrong] * 4, np.int32))
    after, info = algorithm.step(state, bad)
    assert not info.accepted
    assert all(
        np.array_equal(a, b)
        for a, b in zip(jax.tree.leaves(state), jax.tree.leaves(after), strict=True)
    )


def test_a_classifier_with_another_number_of_logits():
    algorithm = obax.OAGD(loss_tuning(J), 0.1, 0.1)
    with pytest.raises(ValueError, match="must return 3 logits for each row"):
        algorithm.init(loss_tuning_start(J), Linear(jnp.ones((D, 2))), a_round(), buffers=())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"classes": 1}, "at least 2"),
        ({"classes": 2, "link": "tanh"}, "link"),
        ({"classes": 2, "gamma_bounds": (0.0, 1.0)}, "must be positive"),
        ({"classes": 2, "predict": 3}, "predict"),
    ],
)
def test_errors(arguments, message):
    with pytest.raises(ValueError, match=message):
        loss_tuning(**arguments)


def test_balanced_weights():
    labels = np.repeat([0, 1, 2], [6, 3, 1])
    np.testing.assert_allclose(balanced_weights(labels, 3), [10 / 6, 10 / 3, 10], rtol=1e-6)
    with pytest.raises(ValueError, match=r"\[3\] does not.*infinite"):
        balanced_weights(labels, 4)
    with pytest.raises(ValueError, match=r"0\.\.1, but \[2\] is among them"):
        balanced_weights(labels, 2)
    with pytest.raises(ValueError, match="must be integers"):
        balanced_weights(labels / 2, 3)
