"""Online meta-learning: hypergradients of the four methods, and which parameters move."""

import functools

import equinox as eqx
import jax
import jax.flatten_util
import jax.numpy as jnp
import numpy as np
import pytest

import obax
from obax import hypergradient as hg, models
from obax.problems import embed_task, meta_learning, task_logits

pytestmark = pytest.mark.usefixtures("quick_compilation")

BETA, STEPS = 0.3, 2
# The step and the number of steps with which the implicit follower converges.
LAMBDA, SMALL, LONG = 20.0, 0.02, 100


@pytest.fixture(scope="module")
def model():
    return models.cnn(jax.random.key(0), (4, 4, 2), 2, filters=2, blocks=1)[0]


def task(seed):
    """2-way 2-shot."""
    rng = np.random.default_rng(seed)
    labels = np.array([0, 0, 1, 1], np.int32)
    inputs = rng.standard_normal((2, 4, 4, 4, 2)) + 0.5 * labels[:, None, None, None]
    return {"support": (inputs[0], labels), "query": (inputs[1], labels)}


TASKS = [task(seed) for seed in range(3)]


def loss(features, head, batch):
    """Cross-entropy of the network in this file's own words."""
    inputs, labels = batch
    running = (models.Statistics(jnp.zeros(2), jnp.ones(2)),)
    hidden, _ = features(inputs, running, training=True)
    logits = hidden @ head.weight + head.bias
    return jnp.mean(jax.nn.logsumexp(logits, axis=1) - logits[jnp.arange(4), labels])


def descend(objective, start, steps, rate=BETA):
    def step(_, z):
        return jax.tree.map(lambda a, b: a - rate * b, z, jax.grad(objective)(z))

    return jax.lax.fori_loop(0, steps, step, start)


def value_of_whole(x, task, *, proximity=0.0, steps=STEPS, rate=BETA):
    """x -> L(y_K(x); query), everything adapts."""

    def objective(z):
        squares = jax.tree.map(lambda a, b: jnp.sum((a - b) ** 2), z, x)
        near = 0.5 * proximity * sum(jax.tree.leaves(squares))
        return loss(z.features, z.head, task["support"]) + near

    y = descend(objective, x, steps, rate)
    return loss(y.features, y.head, task["query"])


def value_of_head(x, task, *, proximity=0.0, steps=STEPS, rate=BETA):
    """x -> L(features of x, head_K(x); query)."""

    def objective(z):
        squares = jax.tree.map(lambda a, b: jnp.sum((a - b) ** 2), z, x.head)
        near = 0.5 * proximity * sum(jax.tree.leaves(squares))
        return loss(x.features, z, task["support"]) + near

    y = descend(objective, x.head, steps, rate)
    return loss(x.features, y, task["query"])


ANIL = meta_learning("plain", part="head")
ITD_BIO = meta_learning("plain", part="head", leader="features")
METHODS = {
    "prox-linear": obax.prox_linear(BETA, 1.0, window=1),
    "implicit": obax.OAGD(
        meta_learning("implicit", proximity=LAMBDA), 1.0, SMALL, LONG, None, hg.Dense()
    ),
    "implicit head": obax.OAGD(
        meta_learning("implicit", part="head", proximity=LAMBDA), 1.0, SMALL, LONG, None, hg.CG()
    ),
    "MAML": obax.ITD(meta_learning("plain"), 1.0, BETA, STEPS, capacity=2),
    "ANIL": obax.ITD(ANIL, 1.0, BETA, STEPS, capacity=2, prepare=embed_task(ANIL)),
    "ITD-BiO": obax.ITD(ITD_BIO, 1.0, BETA, STEPS, capacity=2, prepare=embed_task(ITD_BIO)),
}
VALUES = {
    "prox-linear": functools.partial(value_of_whole, steps=1),
    "implicit": functools.partial(value_of_whole, proximity=LAMBDA, steps=LONG, rate=SMALL),
    "implicit head": functools.partial(value_of_head, proximity=LAMBDA, steps=LONG, rate=SMALL),
    "MAML": value_of_whole,
    "ANIL": value_of_head,
    "ITD-BiO": value_of_head,
}


@pytest.fixture(scope="module")
def after_one_task(model):
    """x_1 - x_2 with alpha = 1 is the hypergradient."""
    return {
        name: eqx.filter_jit(algorithm.step)(
            algorithm.init(model, algorithm.problem.inner_start(model), TASKS[0]), TASKS[0]
        )
        for name, algorithm in METHODS.items()
    }


@pytest.mark.parametrize("name", METHODS)
def test_hypergradients_against_finite_differences(name, model, after_one_task):
    state, info = after_one_task[name]
    gradient = jax.tree.map(jnp.subtract, model, state.outer_var)
    value = jax.jit(lambda x: VALUES[name](x, TASKS[0]))
    rng = np.random.default_rng(1)
    for _ in range(3):
        along = jax.tree.map(lambda leaf: rng.standard_normal(leaf.shape), model)
        if name == "ITD-BiO":
            still = jax.tree.map(jnp.zeros_like, model.head)
            along = type(model)(along.features, still)
        moved = [
            value(jax.tree.map(lambda a, b, h=h: a + h * b, model, along)) for h in (1e-5, -1e-5)
        ]
        expected = (moved[0] - moved[1]) / 2e-5
        products = jax.tree.map(lambda a, b: jnp.sum(a * b), gradient, along)
        # 1e-6: the error of central differences; the implicit follower has converged to 1e-11.
        np.testing.assert_allclose(sum(jax.tree.leaves(products)), expected, rtol=1e-6, atol=1e-7)
    assert bool(info.accepted)


def test_which_parameters_move(model, after_one_task):
    def moved(one, other):
        differences = jax.tree.map(lambda a, b: float(jnp.max(jnp.abs(a - b))), one, other)
        return max(jax.tree.leaves(differences)) > 1e-8

    for name in METHODS:
        state, _ = after_one_task[name]
        assert moved(state.outer_var.features, model.features)
        assert moved(state.outer_var.head, model.head) == (name != "ITD-BiO")
        whole = name in ("prox-linear", "implicit", "MAML")
        assert isinstance(state.inner_var, models.CNN if whole else models.Linear)
        assert moved(state.inner_var.head if whole else state.inner_var, model.head)
        if whole:
            assert moved(state.inner_var.features, model.features)
    # The two share everything but the leader's head.
    anil, itd = (after_one_task[name][0] for name in ("ANIL", "ITD-BiO"))
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-12), anil.inner_var, itd.inner_var
    )
    np.testing.assert_array_equal(itd.outer_var.head.weight, model.head.weight)
    np.testing.assert_array_equal(itd.outer_var.head.bias, model.head.bias)


def test_prox_linear_is_one_step_maml_and_keeps_its_size(model):
    """Over a window that holds the same tasks, to rounding, also when the oldest are forgotten; and
    a full window does not grow."""
    ours = obax.prox_linear(BETA, 0.5, window=3)
    maml = obax.ITD(meta_learning("plain"), 0.5, BETA, 1, capacity=3)
    state, other = (one.init(model, model, TASKS[0]) for one in (ours, maml))
    steps = eqx.filter_jit(ours.step), eqx.filter_jit(maml.step)
    sizes = set()
    for round in [*TASKS, *TASKS[:2]]:
        state, info = steps[0](state, round)
        other, wanted = steps[1](other, round)
        jax.tree.map(
            functools.partial(np.testing.assert_allclose, rtol=1e-10, atol=1e-13),
            (state.outer_var, state.inner_var),
            (other.outer_var, other.inner_var),
        )
        np.testing.assert_allclose(info.hypergradient_norm, wanted.hypergradient_norm, rtol=1e-10)
        np.testing.assert_allclose(info.solver_residual, 0, atol=1e-14)
        sizes.add(sum(leaf.nbytes for leaf in jax.tree.leaves(state)))
    assert len(sizes) == 1
    # One gradient for each follower and one for each query; no product in the solve.
    assert (info.gradients, info.hvps, info.cross_products) == (6, 0, 3)


def test_adapt_and_its_logits(model, after_one_task):
    for name in ("prox-linear", "ANIL"):
        algorithm = METHODS[name]
        y = eqx.filter_jit(obax.adapt)(algorithm, model, TASKS[0])
        jax.tree.map(
            lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-10),
            y,
            after_one_task[name][0].inner_var,
        )
        logits = task_logits(algorithm.problem, model, y, TASKS[0]["query"][0])
        value = jnp.mean(jax.nn.logsumexp(logits, 1) - logits[jnp.arange(4), TASKS[0]["query"][1]])
        np.testing.assert_allclose(value, algorithm.problem.outer(model, y, TASKS[0]), rtol=1e-12)


def test_the_closed_form_is_the_prox_linear_answer(model):
    problem = METHODS["prox-linear"].problem
    slope = jax.jit(
        lambda x: jax.grad(problem.inner, 1)(x, problem.inner_argmin(x, TASKS[0]), TASKS[0])
    )(model)
    for leaf in jax.tree.leaves(slope):
        np.testing.assert_allclose(leaf, 0, atol=1e-12)


def test_a_model_with_other_features():
    """Anything with `.features` and `.head`; dense features lose their dropout."""
    perceptron, _ = models.mlp(jax.random.key(0), 3, 2, hidden=4, dropout=0.5)
    rows = np.random.default_rng(0).standard_normal((4, 3)), np.array([0, 0, 1, 1])
    problem = meta_learning("implicit", proximity=1.0)
    value = problem.outer(perceptron, perceptron, {"support": rows, "query": rows})
    layer = perceptron.features.hidden
    hidden = np.maximum(rows[0] @ layer.weight + layer.bias, 0)
    logits = np.asarray(hidden @ perceptron.head.weight + perceptron.head.bias)
    expected = np.mean(np.log(np.exp(logits).sum(1)) - logits[np.arange(4), rows[1]])
    np.testing.assert_allclose(value, expected, rtol=1e-12)
    assert problem == meta_learning("implicit", proximity=1.0)
    wrong = rows[0], np.array([0, 0, 1, 2])
    assert np.isnan(problem.outer(perceptron, perceptron, {"support": rows, "query": wrong}))
    double = meta_learning("plain", features=lambda module, inputs: 2 * module.hidden(inputs))
    assert np.isfinite(double.outer(perceptron, perceptron, {"support": rows, "query": rows}))


def bound(model, task, proximity):
    """C in NumPy: half the largest eigenvalue of the mean of (a, 1) (a, 1)^T, and lambda."""
    running = (models.Statistics(jnp.zeros(2), jnp.ones(2)),)
    hidden, _ = model.features(task["support"][0], running, training=True)
    rows = np.hstack([np.asarray(hidden), np.ones((4, 1))])
    return np.linalg.eigvalsh(rows.T @ rows / 4)[-1] / 2 + proximity


@pytest.mark.parametrize("scale", [1.0, 10.0])
def test_curvature_in_units_is_at_most_one(model, scale):
    """At any head, also where it is near the bound; ten times the features change nothing."""
    larger = eqx.tree_at(
        lambda m: (m.features.blocks[0].scale, m.features.blocks[0].shift),
        model,
        replace_fn=lambda leaf: scale * leaf,
    )
    problem = meta_learning("implicit", part="head", proximity=0.1, unit_curvature=True)
    flat, back = jax.flatten_util.ravel_pytree(model.head)
    hessian = jax.hessian(lambda z: problem.inner(larger, back(z), TASKS[0]))
    drawn = np.random.default_rng(3).standard_normal(flat.shape)
    largest = [np.linalg.eigvalsh(hessian(size * drawn))[-1] for size in (0.0, 0.1, 1.0)]
    assert max(largest) <= 1 + 1e-9
    # Two classes that are equally likely reach the bound.
    np.testing.assert_allclose(largest[0], 1.0, rtol=1e-9)


@pytest.mark.parametrize(("adaptation", "proximity"), [("implicit", 0.5), ("plain", None)])
def test_a_step_in_units_is_one_over_the_curvature(model, adaptation, proximity):
    """The same trajectory as with beta = step / C, on the task whose C that is."""
    step = 1.9
    beta = step / bound(model, TASKS[0], proximity or 0.0)
    ends = []
    for units, rate in ((True, step), (False, beta)):
        problem = meta_learning(adaptation, part="head", proximity=proximity, unit_curvature=units)
        algorithm = obax.ITD(problem, 1.0, rate, 3, capacity=2, prepare=embed_task(problem))
        if adaptation == "implicit":
            algorithm = obax.OAGD(problem, 1.0, rate, 3, None, hg.Dense())
        state, _ = algorithm.step(algorithm.init(model, model.head, TASKS[0]), TASKS[0])
        ends.append((state.outer_var, state.inner_var))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-12), *ends)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"adaptation": "prox"}, "adaptation must be one of"),
        ({"adaptation": "prox-linear"}, "step_size must be given if and only if"),
        ({"adaptation": "plain", "step_size": 0.1}, "step_size must be given if and only if"),
        ({"adaptation": "implicit", "step_size": 0.1}, "step_size must be given if and only if"),
        ({"adaptation": "implicit"}, "proximity must be given"),
        ({"adaptation": "implicit", "proximity": -1.0}, "must be a number > 0"),
        ({"adaptation": "plain", "leader": "features"}, "part must be 'head'"),
        ({"adaptation": "plain", "features": 3}, "features must be a function"),
        ({"adaptation": "plain", "unit_curvature": True}, "unit_curvature needs part='head'"),
        (
            {"step_size": 0.1, "part": "head", "unit_curvature": True},
            "'implicit' or 'plain', .* but they are 'head' and 'prox-linear'",
        ),
        (
            {"adaptation": "plain", "part": "head", "unit_curvature": "no"},
            "unit_curvature must be",
        ),
    ],
)
def test_errors(arguments, message):
    with pytest.raises(ValueError, match=message):
        meta_learning(**arguments)


def test_errors_of_its_neighbours(model):
    with pytest.raises(ValueError, match="round must be a task"):
        METHODS["MAML"].init(model, model, (np.zeros(3), np.zeros(3)))
    plain = obax.Problem(lambda x, y, r: x * y, lambda x, y, r: (y - x) ** 2)
    with pytest.raises(ValueError, match="must come from meta_learning"):
        task_logits(plain, model, model, None)
    with pytest.raises(ValueError, match="part='head'"):
        embed_task(meta_learning("plain"))
    with pytest.raises(ValueError, match="with inner_start"):
        obax.adapt(obax.OAGD(plain, 0.1, 0.1), 1.0, 1.0)
