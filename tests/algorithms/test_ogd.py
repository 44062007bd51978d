"""OGD in both of its roles, and as OAGD without a follower."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import obax

pytestmark = pytest.mark.usefixtures("quick_compilation")

RNG = np.random.default_rng(1)
TARGETS = RNG.standard_normal((6, 3))
CURVES = RNG.uniform(0.5, 2.0, (6, 3))
ROUNDS = {"target": TARGETS, "curve": CURVES}


def loss(x, y, r):
    return 0.5 * jnp.sum(r["curve"] * (x - r["target"]) ** 2)


DOMAINS = {
    "unconstrained": (lambda: obax.Unconstrained(), lambda x: x),
    "box": (lambda: obax.Box(-0.3, 0.3), lambda x: np.clip(x, -0.3, 0.3)),
    "ball": (lambda: obax.Ball(0.5), lambda x: x * min(1.0, 0.5 / np.linalg.norm(x))),
    "non-negative": (lambda: obax.NonNegative(), lambda x: np.maximum(x, 0.0)),
}


def at(t):
    return jax.tree.map(lambda leaf: leaf[t], ROUNDS)


@pytest.mark.parametrize("name", DOMAINS)
def test_zinkevich(name):
    make, project = DOMAINS[name]
    algorithm = obax.OGD(
        obax.Problem(loss, domain=make()), outer_step_size=lambda t: 0.7 / jnp.sqrt(t.astype(float))
    )
    state, history = obax.run(algorithm, algorithm.init(np.zeros(3), None, at(0)), ROUNDS)
    x = np.zeros(3)
    for t in range(6):
        np.testing.assert_allclose(history.outer_var[t], x, atol=1e-12)
        wanted = 0.5 * np.sum(CURVES[t] * (x - TARGETS[t]) ** 2)
        np.testing.assert_allclose(history.played_value[t], wanted, rtol=1e-10)
        np.testing.assert_allclose(history.outer_value[t], wanted, rtol=1e-10)
        x = project(x - 0.7 / np.sqrt(t + 1) * CURVES[t] * (x - TARGETS[t]))
    np.testing.assert_allclose(state.outer_var, x, rtol=1e-10)
    assert history.gradients.tolist() == [1] * 6
    assert history.hvps.tolist() == history.cross_products.tolist() == [0] * 6
    assert not history.inner_value.any()


@pytest.mark.parametrize("optimiser", [None, optax.adam(0.1)], ids=["plain", "adam"])
def test_oagd_without_a_follower_and_window_is_ogd(optimiser):
    problem = obax.Problem(loss, domain=obax.Box(-0.3, 0.3))
    ends = []
    for kind in (obax.OAGD, obax.OGD):
        algorithm = kind(problem, outer_step_size=0.3, outer_optimiser=optimiser)
        state, step = algorithm.init(np.zeros(3), None, at(0)), eqx.filter_jit(algorithm.step)
        for t in range(6):
            state, info = step(state, at(t))
            ends.append((state.outer_var, info))
    for (x, info), (other, other_info) in zip(ends[:6], ends[6:], strict=True):
        np.testing.assert_array_equal(x, other)
        jax.tree.map(np.testing.assert_array_equal, info, other_info)


FOLLOWED = obax.Problem(
    outer=lambda x, y, r: 0.5 * jnp.sum((y - r["target"]) ** 2),
    inner=lambda x, y, r: 0.5 * jnp.sum(r["curve"] * (y - x * r["target"]) ** 2),
    domain=obax.Box(0.0, 1.0),
)


def test_the_baseline_holds_the_hyperparameters_and_trains_the_follower():
    algorithm = obax.OGD(FOLLOWED, inner_step_size=0.2, inner_steps=lambda t: t)
    state, history = obax.run(algorithm, algorithm.init(0.5, np.ones(3), at(0)), ROUNDS)
    y = np.ones(3)
    for t in range(6):
        np.testing.assert_allclose(
            history.played_value[t], 0.5 * np.sum((y - TARGETS[t]) ** 2), rtol=1e-10
        )
        for _ in range(t + 1):
            y = y - 0.2 * CURVES[t] * (y - 0.5 * TARGETS[t])
        np.testing.assert_allclose(
            history.outer_value[t], 0.5 * np.sum((y - TARGETS[t]) ** 2), rtol=1e-10
        )
    np.testing.assert_allclose(state.inner_var, y, rtol=1e-10)
    assert float(state.outer_var) == 0.5
    assert history.outer_var.tolist() == [0.5] * 6
    assert history.gradients.tolist() == [1, 2, 3, 4, 5, 6]
    assert not history.hypergradient_norm.any()


def test_the_baseline_is_oagd_with_a_leader_that_stands_still():
    ogd = obax.OGD(FOLLOWED, inner_step_size=0.2, inner_steps=2)
    oagd = obax.OAGD(FOLLOWED, lambda t: 0.0, 0.2, 2)
    ends = []
    for algorithm in (ogd, oagd):
        state, history = obax.run(algorithm, algorithm.init(0.5, np.ones(3), at(0)), ROUNDS)
        ends.append((state.inner_var, history.played_value, history.inner_value))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-12), *ends)


def test_momentum_on_the_follower():
    algorithm = obax.OGD(
        FOLLOWED, inner_step_size=0.5, inner_optimiser=optax.sgd(0.2, momentum=0.9)
    )
    state, _ = obax.run(algorithm, algorithm.init(0.5, np.ones(3), at(0)), ROUNDS)
    y, m = np.ones(3), np.zeros(3)
    for t in range(6):
        m = CURVES[t] * (y - 0.5 * TARGETS[t]) + 0.9 * m
        y = y - 0.5 * 0.2 * m
    np.testing.assert_allclose(state.inner_var, y, rtol=1e-10)


def test_the_follower_starts_where_the_problem_says():
    problem = obax.Problem(FOLLOWED.outer, FOLLOWED.inner, inner_start=lambda x: x * jnp.ones(3))
    algorithm = obax.OGD(problem, inner_step_size=0.2)
    state, step = algorithm.init(0.5, np.zeros(3), at(0)), eqx.filter_jit(algorithm.step)
    for t in range(2):
        state, info = step(state, at(t))
        start = np.full(3, 0.5)
        np.testing.assert_allclose(
            state.inner_var, start - 0.2 * CURVES[t] * (start - 0.5 * TARGETS[t]), rtol=1e-12
        )
        np.testing.assert_allclose(info.played_value, 0.5 * np.sum((start - TARGETS[t]) ** 2))


COMPLAINTS = [
    (lambda: obax.OGD(obax.Problem(loss), 0.0), "outer_step_size must be a number > 0, but got 0"),
    (
        lambda: obax.OGD(obax.Problem(loss), 0.1, 0.1),
        "inner_step_size and inner_optimiser must be left out.*has no follower",
    ),
    (
        lambda: obax.OGD(FOLLOWED, 0.1, 0.1),
        "outer_step_size and outer_optimiser must be left out.*x is held fixed",
    ),
    (lambda: obax.OGD(FOLLOWED, None, 0.1, 0), "inner_steps must be an integer >= 1, but got 0"),
]


@pytest.mark.parametrize(("make", "message"), COMPLAINTS)
def test_complaints(make, message):
    with pytest.raises(ValueError, match=message):
        make()
