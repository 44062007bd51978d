"""Whole modules as leader and follower: arrays move, the rest is held; others by one line."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import obax
from obax import regret
from obax._support.trees import StaticLeaf

pytestmark = pytest.mark.usefixtures("quick_compilation")


class Network(eqx.Module):
    """Everything that a module may hold beside its arrays."""

    first: eqx.nn.Linear
    activation: object
    dropout: eqx.nn.Dropout
    order: jax.Array
    name: str = "mine"

    def __call__(self, inputs):
        hidden = self.activation(self.first(inputs))
        return jnp.sum(self.dropout(hidden, inference=True)[self.order] * jnp.asarray([1.0, 2.0]))


def network(seed=0):
    linear = eqx.nn.Linear(2, 2, key=jax.random.key(seed))
    return Network(linear, jax.nn.tanh, eqx.nn.Dropout(0.5), jnp.array([1, 0]))


def outer(x, net, round):
    assert isinstance(net, Network)
    return (net(round) - 1.0) ** 2


def inner(x, net, round):
    assert net.name == "mine" and isinstance(net.dropout.p, float)
    near = sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves(eqx.filter(net, eqx.is_inexact_array)))
    return 0.5 * (net(round) - x) ** 2 + 0.5 * near


ROUNDS = jax.random.normal(jax.random.key(1), (4, 2))


def by_hand(steps=4):
    """The same with the arrays of the module alone."""
    arrays, rest = eqx.partition(network(), eqx.is_inexact_array)
    problem = obax.Problem(
        lambda x, y, round: outer(x, eqx.combine(y, rest), round),
        lambda x, y, round: inner(x, eqx.combine(y, rest), round),
    )
    return obax.OAGD(problem, 0.1, 0.1, 3, obax.Window(2)), arrays


def test_a_module_as_follower_goes_where_its_arrays_go_alone():
    reference, arrays = by_hand()
    algorithm = obax.OAGD(obax.Problem(outer, inner), 0.1, 0.1, 3, obax.Window(2))
    state = algorithm.init(0.3, network(), ROUNDS[0])
    state, _ = obax.run(algorithm, state, ROUNDS)
    expected, _ = obax.run(reference, reference.init(0.3, arrays, ROUNDS[0]), ROUNDS)
    for one, other in zip(
        jax.tree.leaves(state.inner_var), jax.tree.leaves(expected.inner_var), strict=True
    ):
        np.testing.assert_allclose(one, other, rtol=1e-12)
    net = obax.whole(state.inner_var)
    assert net.activation is jax.nn.tanh and net.order.dtype == jnp.int64
    assert np.isfinite(net(ROUNDS[0]))
    # Live, from what a run left.
    played, _ = next(obax.play(algorithm, state, list(ROUNDS)))
    assert isinstance(obax.whole(played.inner_var), Network)


@pytest.mark.slow
def test_the_regret_of_a_follower_that_is_a_module():
    values = jnp.array([0.2, 0.3, 0.1, 0.0])
    problem = obax.Problem(outer, inner, obax.Box(-1.0, 1.0))
    curve = regret.dynamic(problem, values, ROUNDS, inner_start=network())
    reference, arrays = by_hand()
    bare = obax.Problem(reference.problem.outer, reference.problem.inner, obax.Box(-1.0, 1.0))
    expected = regret.dynamic(bare, values, ROUNDS, inner_start=arrays)
    np.testing.assert_allclose(np.asarray(curve), np.asarray(expected), rtol=1e-9)


def test_a_module_as_leader_and_its_hypergradient():
    def outer(net, y, round):
        return (y - 1.0) ** 2

    def inner(net, y, round):
        return 0.5 * (y - net(round)) ** 2

    best = network()
    problem = obax.Problem(
        outer, inner, inner_argmin=lambda net, r: net(r), outer_argmin=lambda round: best
    )
    checked = obax.check_hypergradient(problem, network(), 0.0, ROUNDS[0])
    assert checked.relative_error < 1e-6
    algorithm = obax.SOBOW(problem, 0.1, 0.5)
    state = algorithm.init(network(), 0.0, ROUNDS[0])
    assert len(jax.tree.leaves(state.outer_var)) == 2
    state, info = algorithm.step(state, ROUNDS[0])
    assert info.accepted


def test_a_follower_that_starts_at_the_leaders_module():
    problem = obax.Problem(
        lambda x, y, round: (y(round) - 1.0) ** 2,
        lambda x, y, round: (y(round) - 1.0) ** 2,
        inner_start=lambda x: eqx.tree_at(lambda net: net.first.bias, x, x.first.bias + 1),
    )
    algorithm = obax.ITD(problem, 0.1, 0.1, capacity=2)
    state = algorithm.init(network(), network(1), ROUNDS[0])
    _, info = algorithm.step(state, ROUNDS[0])
    assert info.accepted and info.hypergradient_norm > 0


def test_saved_and_restored(tmp_path):
    reference = obax.OAGD(obax.Problem(outer, inner), 0.1, 0.1)
    state = reference.init(0.3, network(), ROUNDS[0])
    obax.save(tmp_path / "state.obax", state)
    other = reference.init(0.0, network(5), ROUNDS[0])
    found = obax.load(tmp_path / "state.obax", like=other)
    weight = obax.whole(found.inner_var).first.weight
    np.testing.assert_array_equal(weight, network().first.weight)


def test_what_is_held_is_compared_by_value():
    assert (
        StaticLeaf(jnp.array([1, 0]))
        == StaticLeaf(np.array([1, 0]))
        != StaticLeaf(jnp.array([0, 1]))
    )
    assert StaticLeaf(1) != StaticLeaf(1.0) and StaticLeaf(True) != StaticLeaf(1)
    assert (
        StaticLeaf(jax.random.key(0))
        == StaticLeaf(jax.random.key(0))
        != StaticLeaf(jax.random.key(1))
    )
    assert hash(StaticLeaf(jnp.array([1, 0]))) == hash(StaticLeaf(jnp.array([1, 0])))
    # A module that differs in what it holds is another structure.
    plain, other = network(), eqx.tree_at(lambda net: net.dropout.p, network(), 0.1)
    algorithm = obax.OAGD(obax.Problem(outer, inner), 0.1, 0.1)
    states = [algorithm.init(0.3, net, ROUNDS[0]) for net in (plain, network(), other)]
    structures = [jax.tree.structure(state) for state in states]
    assert structures[0] == structures[1] != structures[2]


def test_what_cannot_move_is_said():
    algorithm = obax.OAGD(obax.Problem(outer, inner), 0.1, 0.1)
    with pytest.raises(ValueError, match=r"at least one array leaf.*only where they are floating"):
        algorithm.init(0.3, eqx.nn.Dropout(0.5), ROUNDS[0])
    # Outside of a module a word is a mistake, as ever.
    with pytest.raises(ValueError, match=r"inner_var\['name'\] must be a floating-point array"):
        algorithm.init(0.3, {"net": network(), "name": "me"}, ROUNDS[0])


def learned(problem, y, inputs=ROUNDS[0], buffers=None):
    """Two rounds, both accepted, in which y moves; the buffers after them."""
    algorithm = obax.OAGD(problem, 0.1, 0.1)
    state = algorithm.init(jnp.zeros(()), y, inputs, buffers=buffers)
    state, history = obax.run(algorithm, state, jnp.stack([inputs, inputs]))
    assert np.all(history.accepted)
    assert history.inner_value[1] < history.inner_value[0]
    return state.buffers


def keys_as_numbers(tree):
    """The tree with plain arrays in place of keys of `jax.random`."""
    is_key = lambda leaf: jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)  # noqa: E731
    return jax.tree.map(lambda leaf: jax.random.key_data(leaf) if is_key(leaf) else leaf, tree)


def played(problem, y, inputs, buffers):
    """The buffers after two rounds, both accepted, in which y moves; live, and in a run."""
    algorithm = obax.OAGD(problem, 0.1, 0.1, hypergradient=obax.hypergradient.CG(3, damping=0.1))
    state = algorithm.init(jnp.zeros(()), y, inputs, buffers=buffers)
    start, rounds = state, jnp.stack([inputs, inputs])
    state, history = obax.run(algorithm, state, rounds)
    *_, (live, _) = obax.play(algorithm, start, list(rounds))
    assert np.all(history.accepted) and has_moved(start.inner_var, state.inner_var)
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-6),
        keys_as_numbers(live.buffers),
        keys_as_numbers(state.buffers),
    )
    return state.buffers


def losses(predict):
    """The losses of a follower that `predict` makes a function of inputs."""

    def outer(x, y, round):
        return jnp.mean((predict(y, round) - 1.0) ** 2)

    def inner(x, y, round):
        ridge = sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves(y))
        return jnp.mean((predict(y, round) - 1.0) ** 2) + jnp.exp(x) * ridge

    return obax.Problem(outer, inner)


def test_equinox_batch_norm_keeps_its_state_in_the_buffers():
    class Normed(eqx.Module):
        linear: eqx.nn.Linear
        norm: eqx.nn.BatchNorm

        def __init__(self):
            self.linear = eqx.nn.Linear(2, 3, key=jax.random.key(0))
            self.norm = eqx.nn.BatchNorm(3, axis_name="batch", mode="batch")

        def __call__(self, inputs, state):
            return self.norm(self.linear(inputs), state)

    model, state = eqx.nn.make_with_state(Normed)()

    def predict(model, state, inputs):
        batched = jax.vmap(model, axis_name="batch", in_axes=(0, None), out_axes=(0, None))
        return batched(inputs, state)

    def inner(x, y, round, state):
        out, state = predict(y, state, round)
        ridge = jnp.sum(y.linear.weight**2) + jnp.sum((y.norm.weight - 1) ** 2)
        return jnp.mean((out - 1.0) ** 2) + jnp.exp(x) * ridge, state

    def outer(x, y, round, state):
        return jnp.mean((predict(y, state, round)[0] - 1.0) ** 2)

    before = [np.asarray(leaf) for leaf in jax.tree.leaves(state)]
    after = learned(obax.Problem(outer, inner, has_buffers=True), model, ROUNDS, state)
    moved = [
        np.any(one != np.asarray(other))
        for one, other in zip(before, jax.tree.leaves(after), strict=True)
    ]
    assert any(moved)


def test_flax_nnx_by_one_line():
    nnx = pytest.importorskip("flax.nnx")
    with jax.numpy_dtype_promotion("standard"):
        model = nnx.Linear(2, 3, rngs=nnx.Rngs(0), param_dtype=jnp.float64)
        graph, y = nnx.split(model)
        learned(losses(lambda y, inputs: nnx.merge(graph, y)(inputs)), y)


def with_buffers(predict):
    """The problem of a network with buffers: `predict(y, buffers, inputs)` returns the output and
    the buffers after it."""

    def inner(x, y, round, buffers):
        out, after = predict(y, buffers, round)
        ridge = sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves(y))
        return jnp.mean((out - 1.0) ** 2) + jnp.exp(x) * ridge, after

    def outer(x, y, round, buffers):
        return jnp.mean((predict(y, buffers, round)[0] - 1.0) ** 2)

    return obax.Problem(outer, inner, has_buffers=True)


# Flax and Haiku keep statistics in single precision.
SINGLE = ROUNDS.astype(jnp.float32)


def has_moved(before, after):
    leaves = jax.tree.leaves(before), jax.tree.leaves(after)
    return any(np.any(np.asarray(a) != np.asarray(b)) for a, b in zip(*leaves, strict=True))


def test_flax_nnx_with_batch_norm_and_dropout():
    nnx = pytest.importorskip("flax.nnx")

    class Net(nnx.Module):
        def __init__(self, rngs):
            self.linear = nnx.Linear(2, 3, rngs=rngs)
            self.norm = nnx.BatchNorm(3, rngs=rngs)
            self.dropout = nnx.Dropout(0.1, rngs=rngs)

        def __call__(self, inputs):
            return self.dropout(self.norm(self.linear(inputs)))

    def predict(y, buffers, inputs):
        model = nnx.merge(graph, y, buffers, copy=True)
        out = model(inputs)
        return out, nnx.state(model, nnx.Not(nnx.Param))

    with jax.numpy_dtype_promotion("standard"):
        graph, y, buffers = nnx.split(Net(nnx.Rngs(0)), nnx.Param, ...)
        after = played(with_buffers(predict), y, SINGLE, buffers)
    assert has_moved(keys_as_numbers(buffers), keys_as_numbers(after))


def test_flax_linen_with_batch_norm_and_dropout():
    linen = pytest.importorskip("flax.linen")

    class Net(linen.Module):
        @linen.compact
        def __call__(self, inputs):
            hidden = linen.Dense(3)(inputs)
            hidden = linen.BatchNorm(use_running_average=False)(hidden)
            return linen.Dropout(0.1, deterministic=False)(hidden)

    key = jax.random.key(1)

    def predict(y, buffers, inputs):
        state = {"params": y, "batch_stats": buffers}
        out, new = Net().apply(state, inputs, mutable=["batch_stats"], rngs={"dropout": key})
        return out, new["batch_stats"]

    with jax.numpy_dtype_promotion("standard"):
        variables = Net().init({"params": key, "dropout": key}, SINGLE)
        buffers = variables["batch_stats"]
        after = played(with_buffers(predict), variables["params"], SINGLE, buffers)
    assert has_moved(buffers, after)


def test_haiku_with_batch_norm_and_dropout():
    haiku = pytest.importorskip("haiku")

    def net(inputs):
        hidden = haiku.BatchNorm(True, True, 0.9)(haiku.Linear(3)(inputs), is_training=True)
        return haiku.dropout(haiku.next_rng_key(), 0.1, hidden)

    model, key = haiku.transform_with_state(net), jax.random.PRNGKey(1)
    with jax.numpy_dtype_promotion("standard"):
        y, buffers = model.init(key, SINGLE)
        predict = lambda y, buffers, inputs: model.apply(y, buffers, key, inputs)  # noqa: E731
        after = played(with_buffers(predict), y, SINGLE, buffers)
    assert has_moved(buffers, after)


def test_flax_linen_by_one_line():
    linen = pytest.importorskip("flax.linen")
    model = linen.Dense(3, param_dtype=jnp.float64)
    y = model.init(jax.random.key(0), ROUNDS[0])
    learned(losses(model.apply), y)


def test_haiku_by_a_pure_function():
    haiku = pytest.importorskip("haiku")
    net = haiku.without_apply_rng(haiku.transform(lambda inputs: haiku.Linear(3)(inputs)))
    learned(losses(net.apply), net.init(jax.random.key(0), ROUNDS[0]))
