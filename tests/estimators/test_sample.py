"""The mathematics of a row, against closed forms, the generic machinery and finite differences."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import obax
from obax.estimators import engine
from obax.estimators.engine import Plan, Tuning
from obax.estimators.losses import Huber, Sigmoid, Softmax, Squared
from obax.estimators.sample import Past, Sample, problem, sample_step

pytestmark = pytest.mark.usefixtures("quick_compilation")
WIDTH = 4
CASES = {
    "sigmoid": (Sigmoid(), 2, 1.0),
    "softmax": (Softmax(4), 4, 2.0),
    "squared": (Squared(), 0, 0.7),
    "huber": (Huber(0.5), 0, 3.0),
}
ALL = ("penalty", "inertia", "memory", "class_weights", "logit_shifts")


def make(name, *, penalties=1, seed=0):
    """A plan, the x of a round, a past and a row, all drawn at random."""
    loss, classes, target = CASES[name]
    plan = Plan(
        WIDTH - 1, loss, classes, learned=ALL, penalties=penalties, balance=False, dtype="float64"
    )
    rng = np.random.default_rng(seed)
    k, n = loss.outputs, len(plan.entries)
    roots = rng.standard_normal((2, k, WIDTH, WIDTH))
    past = Past(
        jnp.asarray(rng.standard_normal((k, WIDTH))),
        jnp.asarray(roots[0] @ roots[0].swapaxes(1, 2)),
        jnp.asarray(roots[1] @ roots[1].swapaxes(1, 2)),
        jnp.asarray(0.1 * rng.standard_normal((n, k, WIDTH))),
    )
    x = jnp.asarray(0.5 * rng.standard_normal(n))
    features = jnp.asarray(np.append(rng.standard_normal(WIDTH - 1), 1.0))
    row = Sample(features, jnp.asarray(target), jnp.asarray(1.0), jnp.ones(k))
    return plan, x, past, row


def learned(plan, x, past, row, *, solver="cholesky", steps=20):
    call = jax.jit(
        lambda x, past, row: sample_step(
            plan.loss, solver, steps, plan.hyper, x, past, row, jnp.asarray(1.0)
        )
    )
    return call(x, past, row)


@pytest.mark.parametrize("name", CASES)
def test_the_follower_minimises_its_loss(name):
    plan, x, past, row = make(name)
    found = learned(plan, x, past, row)
    slope = jax.grad(problem(plan.loss, plan.hyper).inner, argnums=1)(
        x, found.past.weights, (past, x, row)
    )
    assert np.abs(slope).max() < 1e-6


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("penalties", [1, WIDTH - 1], ids=["one-penalty", "one-a-feature"])
def test_sensitivity_is_the_hypergradient_of_the_generic_machinery(name, penalties):
    """S' grad_y f = M grad_y f: the implicit hypergradient that OAGD uses, solved exactly."""
    plan, x, past, row = make(name, penalties=penalties)
    found = learned(plan, x, past, row)
    stated = problem(plan.loss, plan.hyper)
    y, round = found.past.weights, (past, x, row)
    gradients = jax.grad(stated.outer, argnums=(0, 1))(x, y, round)
    estimate = obax.hypergradient.Dense()(
        lambda x, y: stated.inner(x, y, round), x, y, gradients, None
    )
    ours = jnp.einsum("nkd,kd->n", found.past.sensitivity, gradients[1])
    np.testing.assert_allclose(ours, estimate.value, rtol=1e-5, atol=1e-8)


def test_one_round_of_oagd_with_many_gradient_steps_is_the_same_round():
    plan, x, past, row = make("sigmoid")
    found = learned(plan, x, past, row)
    algorithm = obax.OAGD(
        problem(plan.loss, plan.hyper),
        outer_step_size=1.0,
        inner_step_size=0.05,
        inner_steps=3000,
        hypergradient=obax.hypergradient.Dense(),
    )
    round = (past, x, row)
    state, _ = algorithm.step(algorithm.init(x, past.weights, round), round)
    np.testing.assert_allclose(state.inner_var, found.past.weights, atol=1e-6)
    gradient = jax.grad(algorithm.problem.outer, argnums=1)(x, state.inner_var, round)
    step = jnp.einsum("nkd,kd->n", found.past.sensitivity, gradient)
    np.testing.assert_allclose(x - state.outer_var, step, atol=1e-6)


@pytest.mark.parametrize("solver", ["cg", "gradient"])
def test_other_solvers_agree(solver):
    plan, x, past, row = make("softmax")
    exact = learned(plan, x, past, row)
    close = learned(plan, x, past, row, solver=solver, steps=4 if solver == "cg" else 4000)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-5), exact, close)


def test_squared_loss_without_ties_is_weighted_least_squares():
    """With next to no penalty and inertia: recursive least squares with forgetting, exactly."""
    plan = Plan(3, Squared(), learned=(), dtype="float64")
    rng = np.random.default_rng(1)
    a = np.concatenate([rng.standard_normal((40, 3)), np.ones((40, 1))], axis=1)
    b = rng.standard_normal(40)
    x = np.log([1e-14, 1e-11, 9.0])  # forgetting 0.9
    past = engine.start(plan, {}).past
    step = jax.jit(
        lambda past, row: sample_step(
            plan.loss,
            "cholesky",
            0,
            lambda _: plan.hyper(jnp.asarray(x)),
            jnp.zeros(0),
            past,
            row,
            1.0,
        )
    )
    for features, target in zip(a, b, strict=True):
        row = Sample(jnp.asarray(features), jnp.asarray(target), jnp.asarray(1.0), jnp.ones(1))
        past = step(past, row).past
    weights = 0.9 ** np.arange(39, -1, -1)
    expected = np.linalg.solve((a.T * weights) @ a, (a.T * weights) @ b)
    np.testing.assert_allclose(past.weights[0], expected, rtol=1e-5)


def test_hypergradient_of_a_whole_stream_against_finite_differences():
    """The leader's slope in each round is d(loss of that row)/dx with the same x in every round
    before; exact where the curvature does not depend on the weights, as for squared loss."""
    plan = Plan(4, Squared(), learned=("penalty", "inertia", "memory"), dtype="float64")
    rng = np.random.default_rng(2)
    rows = rng.standard_normal((25, 4))
    targets = rows @ rng.standard_normal(4) + rng.standard_normal(25)
    hold = Tuning(1e-300, 1.0, 1e9)
    begin = engine.start(plan, {"penalty": 0.1, "memory": 8.0, "inertia": 0.5})

    def losses(shift):
        vector = engine.pack(begin._replace(x=begin.x + shift))
        played = engine.advance(plan, vector, rows, targets, np.ones(25), np.ones(1), hold)[1]
        return played.loss

    def slopes():
        vector, found = engine.pack(begin), []
        for row, target in zip(rows, targets, strict=True):
            before = engine.unpack(plan, np.asarray(vector)).mean
            vector, _ = engine.advance(
                plan, vector, row[None], [target], np.ones(1), np.ones(1), hold
            )
            after = engine.unpack(plan, np.asarray(vector)).mean
            decay = engine.MEAN_DECAY
            found.append((after - decay * before) / (1 - decay))
        return np.array(found)

    eps = 1e-6
    numeric = [(losses(eps * e) - losses(-eps * e)) / (2 * eps) for e in np.eye(3)]
    np.testing.assert_allclose(slopes(), np.stack(numeric, axis=1), rtol=1e-5, atol=1e-7)
