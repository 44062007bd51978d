"""Networks against XLA's own convolution, numpy and finite differences."""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import obax
from obax import hypergradient as hg, models
from obax.hypergradient.base import linearize
from obax.models.convolution import (
    convolve,
    convolve_and_measure,
    extreme_of_windows,
    resolve,
)

pytestmark = pytest.mark.usefixtures("quick_compilation")

KEY = jax.random.key(0)
RNG = np.random.default_rng(0)
RAW = np.array([3, 4], np.uint32)


def normal(*shape):
    return jnp.asarray(RNG.standard_normal(shape))


# --- convolutions ---------------------------------------------------------------------------------


@eqx.filter_jit
def derivatives(method, inputs, kernel, direction):
    """Value, gradient and a second derivative of a function that is not linear in the output."""

    def loss(both):
        return jnp.sum(jnp.sin(convolve(*both, method)))

    both = (inputs, kernel)
    slope, second = jax.jvp(jax.grad(loss), (both,), (direction,))
    return convolve(*both, method), slope, second


# Sizes that four does not divide leave the last tiles partly empty; a single row is all border;
# an empty batch is a batch; the last has many tiles.
@pytest.mark.parametrize("shape", [(2, 6, 5, 3), (1, 1, 4, 2), (0, 4, 4, 2), (4, 31, 32, 1)])
@pytest.mark.parametrize("method", ["patches", "winograd"])
def test_convolutions_agree_with_xla(method, shape):
    kernel = normal(3, 3, shape[-1], 4)
    inputs, direction = normal(*shape), (normal(*shape), normal(*kernel.shape))
    got = derivatives(method, inputs, kernel, direction)
    wanted = derivatives("native", inputs, kernel, direction)
    for one, other in zip(jax.tree.leaves(got), jax.tree.leaves(wanted), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-12)


def test_winograd_in_single_precision():
    """Interpolation rounds more than a sum does: 6e-7 of the outputs' size here, a sum 2e-7."""
    inputs, kernel = normal(2, 8, 8, 64), normal(3, 3, 64, 8)
    exact = np.asarray(convolve(inputs, kernel, "native"))
    rounded = convolve(inputs.astype(jnp.float32), kernel.astype(jnp.float32), "winograd")
    assert rounded.dtype == jnp.float32
    error = np.asarray(rounded, np.float64) - exact
    assert np.linalg.norm(error) < 1e-6 * np.linalg.norm(exact)


def test_native_is_the_sum_over_the_neighbourhood():
    """The reference itself, against the definition."""
    inputs, kernel = normal(1, 4, 5, 2), normal(3, 3, 2, 3)
    padded = np.pad(inputs, ((0, 0), (1, 1), (1, 1), (0, 0)))
    wanted = np.zeros((1, 4, 5, 3))
    for i in range(3):
        for j in range(3):
            wanted += padded[:, i : i + 4, j : j + 5] @ np.asarray(kernel)[i, j]
    np.testing.assert_allclose(convolve(inputs, kernel, "native"), wanted, rtol=1e-12)


@pytest.mark.parametrize("method", ["patches", "winograd"])
def test_moments_and_their_derivatives(method):
    inputs, kernel, mix = normal(3, 4, 5, 2) + 2.0, normal(3, 3, 2, 3), normal(2, 3)

    def direct(kernel):
        images = convolve(inputs, kernel, "native")
        mean = jnp.mean(images, (0, 1, 2))
        return mean, jnp.mean((images - mean) ** 2, (0, 1, 2))

    def measured(kernel):
        return convolve_and_measure(inputs, kernel, method)[1:]

    def second(moments):
        weighted = lambda k: jnp.sum(jnp.sin(jnp.stack(moments(k))) * mix)  # noqa: E731
        return jax.jit(lambda k: jax.jvp(jax.grad(weighted), (k,), (jnp.cos(k),)))(kernel)

    np.testing.assert_allclose(jnp.stack(measured(kernel)), jnp.stack(direct(kernel)), rtol=1e-12)
    for got, wanted in zip(second(measured), second(direct), strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-9, atol=1e-10)


def test_auto_is_resolved_by_backend_and_layer(monkeypatch):
    assert [resolve("auto", channels) for channels in (1, 3, 64)] == [
        "patches",
        "patches",
        "winograd",
    ]
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    assert resolve("auto", 64) == "native"
    assert resolve("winograd", 64) == "winograd"


# --- pooling --------------------------------------------------------------------------------------


def test_pooling_and_its_derivative():
    images = np.array(normal(2, 5, 4, 3))
    images[0, :2, :2, 0] = 7.0  # a tie: the first of the window has it
    smallest = jnp.asarray([False, True, False])

    def pooled(images):
        return extreme_of_windows(images, smallest)

    windows = images[:, :4].reshape(2, 2, 2, 2, 2, 3).transpose(0, 1, 3, 2, 4, 5)
    windows = windows.reshape(2, 2, 2, 4, 3)
    wanted = np.where(smallest, windows.min(3), windows.max(3))
    got, pull = jax.vjp(pooled, jnp.asarray(images))
    np.testing.assert_array_equal(got, wanted)
    (slope,) = pull(jnp.ones_like(got))
    # Each window sends its one unit to one pixel; the odd last row gets nothing.
    assert set(np.unique(slope)) == {0.0, 1.0}
    np.testing.assert_array_equal(np.sum(slope[:, 4]), 0.0)
    np.testing.assert_array_equal(slope[0, :2, :2, 0], [[1.0, 0.0], [0.0, 0.0]])
    picked = np.asarray(slope * images).sum((1, 2))
    np.testing.assert_allclose(picked, wanted.sum((1, 2)), rtol=1e-12)


def test_pooling_does_not_hide_a_nan():
    images = np.zeros((1, 2, 2, 4))
    for channel, (i, j) in enumerate(((0, 0), (0, 1), (1, 0), (1, 1))):
        images[0, i, j, channel] = np.nan
    assert np.isnan(extreme_of_windows(jnp.asarray(images), jnp.zeros(4, bool))).all()


# --- the networks ---------------------------------------------------------------------------------

SHAPE = (9, 8, 1)


@pytest.fixture(scope="module")
def network():
    """A small network whose BatchNorm has slopes of both signs, and its first buffers."""
    model, buffers = models.cnn(KEY, SHAPE, 3, filters=4, blocks=2, batch_norm_momentum=0.25)
    signs = jnp.asarray([1.0, -0.5, 2.0, -1.5])
    where = lambda m: [block.scale for block in m.features.blocks]  # noqa: E731
    return eqx.tree_at(where, model, [signs, -signs]), buffers


def np_network(model, inputs, buffers=None):
    """Convolution, BatchNorm, ReLU, pooling in the order of the paper, in numpy. Without buffers,
    training; returns the logits and each layer's mean and unbiased variance."""
    seen = []
    for layer, block in enumerate(model.features.blocks):
        kernel = np.asarray(block.kernel)
        batch, height, width, _ = inputs.shape
        padded = np.pad(inputs, ((0, 0), (1, 1), (1, 1), (0, 0)))
        z = sum(
            padded[:, i : i + height, j : j + width] @ kernel[i, j]
            for i in range(3)
            for j in range(3)
        )
        mean, variance = z.mean((0, 1, 2)), z.var((0, 1, 2))
        seen.append((mean, z.var((0, 1, 2), ddof=1)))
        if buffers is not None:
            mean, variance = (np.asarray(leaf) for leaf in buffers[layer])
        z = (z - mean) / np.sqrt(variance + 1e-5) * np.asarray(block.scale)
        z = np.maximum(z + np.asarray(block.shift), 0)
        z = z[:, : height // 2 * 2, : width // 2 * 2]
        inputs = z.reshape(batch, height // 2, 2, width // 2, 2, -1).max((2, 4))
    flat = inputs.reshape(len(inputs), -1)
    return flat @ np.asarray(model.head.weight) + np.asarray(model.head.bias), seen


def test_training_uses_the_batch_and_moves_the_buffers(network):
    model, buffers = network
    inputs = RNG.standard_normal((5, *SHAPE))
    logits, after = eqx.filter_jit(model)(inputs, buffers)
    wanted, seen = np_network(model, inputs)
    np.testing.assert_allclose(logits, wanted, rtol=1e-10)
    for old, new, (mean, variance) in zip(buffers, after, seen, strict=True):
        np.testing.assert_allclose(new.mean, 0.75 * old.mean + 0.25 * mean, rtol=1e-10)
        np.testing.assert_allclose(new.variance, 0.75 * old.variance + 0.25 * variance, rtol=1e-10)


def test_evaluation_uses_the_buffers_and_leaves_them(network):
    model, buffers = network
    inputs = RNG.standard_normal((5, *SHAPE))
    moved = jax.tree.map(lambda leaf: leaf + 0.3, buffers)
    logits, after = eqx.filter_jit(model)(inputs, moved, training=False)
    np.testing.assert_allclose(logits, np_network(model, inputs, moved)[0], rtol=1e-10)
    for old, new in zip(jax.tree.leaves(moved), jax.tree.leaves(after), strict=True):
        np.testing.assert_array_equal(old, new)
    # Each image on its own gives the same: nothing of the batch enters.
    alone, _ = eqx.filter_jit(model)(inputs[:1], moved, training=False)
    np.testing.assert_allclose(alone, logits[:1], rtol=1e-10)


def test_momentum_one_keeps_the_last_batch_only():
    model, buffers = models.cnn(KEY, SHAPE, 3, filters=4, blocks=1)
    first, second = normal(5, *SHAPE), normal(5, *SHAPE)
    run = eqx.filter_jit(model)
    _, after_both = run(second, run(first, buffers)[1])
    _, after_one = run(second, buffers)
    for one, both in zip(jax.tree.leaves(after_one), jax.tree.leaves(after_both), strict=True):
        np.testing.assert_array_equal(one, both)


def test_buffers_are_not_differentiated(network):
    model, buffers = network
    inputs = normal(5, *SHAPE)

    def statistics(model, buffers):
        after = model(inputs, buffers)[1]
        return sum(jnp.sum(leaf) for leaf in jax.tree.leaves(after))

    slope = jax.jit(jax.grad(statistics))(model, buffers)
    assert all(not np.any(leaf) for leaf in jax.tree.leaves(slope))


def test_leaves_are_the_parameters_and_parts_compose(network):
    model, buffers = network
    leaves = jax.tree.leaves(model)
    assert all(eqx.is_inexact_array(leaf) for leaf in leaves)
    # Kernels 9 * 4 and 9 * 4 * 4, a scale and a shift each, 2 * 2 * 4 features to 3 classes.
    assert models.count_parameters(model) == 36 + 144 + 4 * 4 + 16 * 3 + 3
    inputs = normal(5, *SHAPE)
    features, after = eqx.filter_jit(model.features)(inputs, buffers)
    logits, same = eqx.filter_jit(model)(inputs, buffers)
    np.testing.assert_allclose(model.head(features), logits, rtol=1e-12)
    for one, other in zip(jax.tree.leaves(after), jax.tree.leaves(same), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12)


@pytest.mark.parametrize(("shape", "features"), [((28, 28, 1), 64), ((32, 32, 3), 2 * 2 * 64)])
def test_the_size_of_an_image_after_the_blocks(shape, features):
    model = jax.eval_shape(lambda: models.cnn(KEY, shape, 5)[0])
    assert model.head.weight.shape == (features, 5)


def test_vmap_over_models_is_a_loop(network):
    model, buffers = network
    inputs = normal(2, 3, *SHAPE)
    pair = jax.tree.map(lambda leaf: jnp.stack([leaf, 1.5 * leaf]), model)

    def value(model, inputs):
        return jnp.sum(jnp.sin(model(inputs, buffers)[0]))

    slope = jax.jit(jax.grad(value))
    both = jax.jit(jax.vmap(jax.grad(value)))(pair, inputs)
    for i in range(2):
        alone = slope(jax.tree.map(lambda leaf, i=i: leaf[i], pair), inputs[i])
        for one, many in zip(jax.tree.leaves(alone), jax.tree.leaves(both), strict=True):
            np.testing.assert_allclose(many[i], one, rtol=1e-9, atol=1e-12)


def test_initial_weights_are_those_of_the_documentation():
    model, _ = models.mlp(KEY, features=25, classes=2, hidden=400)
    weight = np.asarray(model.features.hidden.weight)
    assert np.abs(weight).max() <= 0.2
    # Uniform in +-0.2 has deviation 0.2 / sqrt(3).
    np.testing.assert_allclose(weight.std(), 0.2 / np.sqrt(3), rtol=0.05)
    again, _ = models.mlp(jax.random.key_data(KEY), features=25, classes=2, hidden=400)
    np.testing.assert_array_equal(again.features.hidden.weight, weight)


# --- dropout --------------------------------------------------------------------------------------


def test_dropout_follows_its_key_and_is_absent_at_evaluation():
    model, buffers = models.mlp(KEY, features=4, classes=2, hidden=300, dropout=0.25)
    assert buffers == ()
    inputs = normal(7, 4)
    run = eqx.filter_jit(model)
    first, empty = run(inputs, buffers, key=RAW)
    assert empty == ()
    np.testing.assert_array_equal(run(inputs, buffers, key=RAW)[0], first)
    np.testing.assert_array_equal(run(inputs, key=jax.random.wrap_key_data(RAW))[0], first)
    assert not np.allclose(run(inputs, buffers, key=RAW + np.uint32(1))[0], first)

    hidden = np.maximum(inputs @ model.features.hidden.weight + model.features.hidden.bias, 0)
    evaluated, _ = run(inputs, buffers, training=False)
    np.testing.assert_allclose(evaluated, model.head(hidden), rtol=1e-12)
    units = model.features(inputs, key=RAW)
    dropped = np.asarray(units == 0) & (hidden > 0)
    np.testing.assert_allclose(dropped.sum() / (hidden > 0).sum(), 0.25, atol=0.05)
    kept = np.asarray(units)[~dropped]
    np.testing.assert_allclose(kept, hidden[~dropped] / 0.75, rtol=1e-12)


# --- the hypergradient of a network ---------------------------------------------------------------

ROWS, CLASSES = 6, 2
# Strong enough that the follower settles where no unit and no window is about to switch.
PULL = 20.0
IMAGES = {part: RNG.standard_normal((ROWS, 4, 4, 1)) for part in ("train", "valid")}
LABELS = {"train": np.array([0, 0, 0, 0, 1, 1]), "valid": np.array([0, 1, 0, 1, 0, 1])}
X = {"gamma": jnp.asarray([1.0, 0.7]), "delta": jnp.asarray([0.2, -0.3])}


@pytest.fixture(scope="module")
def small():
    return models.cnn(KEY, (4, 4, 1), CLASSES, filters=2, blocks=1)


def cross_entropy(logits, part):
    return -jnp.mean(jax.nn.log_softmax(logits)[jnp.arange(ROWS), LABELS[part]])


def network_inner(start, x, model):
    """With a pull towards the start. Without one there is no isolated minimiser: BatchNorm makes
    the loss the same for all lengths of a kernel."""
    first, buffers = start
    logits, _ = model(IMAGES["train"], buffers)
    away = jax.tree.map(lambda a, b: jnp.sum((a - b) ** 2), model, first)
    pull = sum(jax.tree.leaves(away))
    return cross_entropy(x["gamma"] * logits + x["delta"], "train") + PULL / 2 * pull


def network_outer(start, x, model):
    _, buffers = start
    return cross_entropy(model(IMAGES["valid"], buffers)[0], "valid")


@pytest.fixture(scope="module")
def solved(small):
    """x -> y*(x), by descent and then Newton's method on the flat parameters."""
    flat, unravel = jax.flatten_util.ravel_pytree(small[0])
    loss = lambda x, y: network_inner(small, x, unravel(y))  # noqa: E731

    @jax.jit
    def answer(x, y):
        descend = lambda _, y: y - 0.04 * jax.grad(loss, 1)(x, y)  # noqa: E731
        y = jax.lax.fori_loop(0, 200, descend, y)
        newton = lambda _, y: (  # noqa: E731
            y - jnp.linalg.solve(jax.hessian(loss, 1)(x, y), jax.grad(loss, 1)(x, y))
        )
        return jax.lax.fori_loop(0, 4, newton, y)

    y = answer(X, flat)
    curvature = np.linalg.eigvalsh(jax.jit(jax.hessian(loss, 1))(X, y))
    # The network's own part, up to 7 in size, is not lost in that of the pull.
    assert curvature[0] > 1.0
    assert np.abs(curvature - PULL).max() > 1.0
    assert np.linalg.norm(jax.grad(loss, 1)(X, y)) < 1e-12
    return answer, y, unravel, curvature[-1]


def test_hypergradient_of_a_network_against_finite_differences(small, solved):
    answer, y, unravel, top = solved
    value = jax.jit(lambda x: network_outer(small, x, unravel(answer(x, y))))
    wanted = {}
    for name, leaf in X.items():
        wanted[name] = []
        for j in range(CLASSES):
            moved = [{**X, name: leaf.at[j].add(h)} for h in (1e-3, -1e-3, 2e-3, -2e-3)]
            a, b, c, d = (float(value(x)) for x in moved)
            wanted[name].append((8 * (a - b) - (c - d)) / 12e-3)
    model = unravel(y)
    inner = functools.partial(network_inner, small)
    gradient = jax.jit(jax.grad(functools.partial(network_outer, small), (0, 1)))(X, model)
    for estimator, hvps in ((hg.CG(), None), (hg.Neumann(1000, 1.0 / float(top)), 999)):
        got = jax.jit(lambda g, e=estimator: e(inner, X, model, g))(gradient)
        np.testing.assert_allclose(got.value["gamma"], wanted["gamma"], rtol=1e-6, atol=1e-9)
        np.testing.assert_allclose(got.value["delta"], wanted["delta"], rtol=1e-6, atol=1e-9)
        assert np.linalg.norm(wanted["gamma"]) > 1e-3
        assert got.residual < 1e-6
        assert got.cross_products == 1
        assert hvps is None or got.hvps == hvps


def test_linearised_products_are_those_of_reverse_mode(small):
    model, inner = small[0], functools.partial(network_inner, small)
    v = jax.tree.map(
        lambda leaf: jnp.sin(jnp.arange(leaf.size, dtype=float)).reshape(leaf.shape), model
    )

    @jax.jit
    def both(model, v):
        _, pull = jax.vjp(jax.grad(inner, 1), X, model)
        return linearize(inner, X, model)[1](v), pull(v)

    forward, reverse = both(model, v)
    for one, other in zip(jax.tree.leaves(forward), jax.tree.leaves(reverse), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-12)


# --- through an algorithm -------------------------------------------------------------------------


def count_inner(x, y, round, buffers):
    logits, _ = y(round["inputs"])
    ridge = sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves(y))
    return jnp.mean((logits - round["goal"]) ** 2) + jnp.exp(x) * ridge, buffers + 1


def count_outer(x, y, round, buffers):
    return jnp.mean((y(round["inputs"], training=False)[0] - round["goal"]) ** 2) + 0.1 * x**2


@pytest.mark.parametrize(("curvature", "chunks"), [("own", (None, 1)), ("current", (None, 1, 2))])
def test_chunks_do_not_change_the_result(curvature, chunks):
    """A window evaluated at once, a term at a time, two at a time with one left over."""
    problem = obax.Problem(count_outer, count_inner, has_buffers=True)
    model, _ = models.mlp(KEY, 2, 2, hidden=3, dropout=0.0)
    rounds = {"inputs": normal(4, 3, 2), "goal": normal(4, 3, 2)}
    example = jax.tree.map(lambda leaf: leaf[0], rounds)
    results = []
    for chunk in chunks:
        window = obax.Window(3, 0.9, curvature=curvature, follower="window", chunk=chunk)
        algorithm = obax.OAGD(problem, 0.1, 0.05, 1, window, hg.Neumann(3, 0.05))
        state = algorithm.init(jnp.asarray(-1.0), model, example, buffers=jnp.asarray(0))
        state, history = obax.run(algorithm, state, rounds)
        # One pass over the window a round: 1 + 2 + 3 + 3 steps.
        assert int(state.buffers) == 9
        # Three terms of the series are two products a system.
        systems = np.array([1, 2, 3, 3] if curvature == "own" else [1, 1, 1, 1])
        np.testing.assert_array_equal(history.hvps, 2 * systems)
        np.testing.assert_array_equal(history.cross_products, systems)
        results.append((history.hypergradient_norm, history.solver_residual, state.outer_var))
    for other in results[1:]:
        for got, wanted in zip(other, results[0], strict=True):
            np.testing.assert_allclose(got, wanted, rtol=1e-10)


# --- complaints -----------------------------------------------------------------------------------

COMPLAINTS = [
    (
        lambda: models.cnn(KEY, (28, 28)),
        r"image_shape must be \(height, width, channels\), but got",
    ),
    (lambda: models.cnn(KEY, (28, 28, 0)), r"image_shape\[2\] must be an integer >= 1, but got 0"),
    (lambda: models.cnn(KEY, (14, 30, 1)), "at least 16 x 16 for blocks=4.*at most blocks=3"),
    (lambda: models.cnn(KEY, (1, 30, 1)), "image_shape must be at least 16 x 16.*pad the images"),
    (lambda: models.cnn(KEY, filters=0), "filters must be an integer >= 1, but got 0"),
    (lambda: models.cnn(KEY, batch_norm_momentum=1.1), r"batch_norm_momentum must be .*\[0, 1\]"),
    (lambda: models.cnn(KEY, convolution="fft"), "convolution must be one of 'auto', 'native'"),
    (lambda: models.cnn(np.zeros(3, np.uint32)), r"key must be a uint32\[2\] key .*uint32\[3\]"),
    (lambda: models.mlp(KEY, 3, 2, dropout=1.0), r"dropout must be a number in \[0, 1\), but got"),
    (lambda: models.mlp(KEY, 3, 2)[0](jnp.ones((1, 3))), "key must be given for training with"),
    (lambda: models.mlp(KEY, 3, 2)[0](jnp.ones((1, 4)), key=RAW), r"shape \(batch, 3\), but have"),
]


@pytest.mark.parametrize(("make", "message"), COMPLAINTS)
def test_wrong_arguments_are_errors(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_images_of_another_size_are_rejected(network):
    model, buffers = network
    with pytest.raises(
        ValueError, match=r"shape \(batch, 9, 8, 1\), but have shape \(5, 8, 8, 1\)"
    ):
        model(jnp.zeros((5, 8, 8, 1)), buffers)
