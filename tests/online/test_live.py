"""What `play` hands out is packed until somebody looks at it, and nobody can tell."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import obax
from obax._support.packing import Words, is_packed
from obax.checkpoint import to_bytes

PROBLEM = obax.Problem(
    lambda x, y, r: 0.5 * jnp.sum((y - r["target"]) ** 2) + 0.5 * jnp.sum(x["a"] ** 2),
    lambda x, y, r: 0.5 * jnp.sum((y - x["a"] * r["scale"]) ** 2),
)
ALGORITHM = obax.OAGD(PROBLEM, 0.1, 0.2, 2, obax.Window(2))


def start(precision=np.float64):
    round = {"target": np.zeros(3, precision), "scale": np.zeros((), precision)}
    return ALGORITHM.init({"a": np.ones(3, precision)}, np.zeros(3, precision), round)


def rounds(precision=np.float64, kind=np.asarray):
    values = np.random.default_rng(0).normal(size=(4, 4)).astype(precision)
    return [{"target": kind(row[:3]), "scale": kind(row[3])} for row in values]


def equal(left, right):
    assert jax.tree.structure(left) == jax.tree.structure(right)
    jax.tree.map(np.testing.assert_array_equal, left, right)


def test_fields_stay_packed_until_they_are_read():
    state, info = next(obax.play(ALGORITHM, start(), rounds()))
    assert is_packed(state) and is_packed(info)
    assert isinstance(info.played_value, jax.Array)
    assert is_packed(info)
    jax.tree.leaves(info)
    assert not is_packed(info)


def test_a_packed_state_and_info_are_like_any_other():
    before = start()
    state, info = next(obax.play(ALGORITHM, before, rounds()))
    wanted, record = eqx.filter_jit(ALGORITHM.step)(before, rounds()[0])
    for came, real in ((state, wanted), (info, record)):
        assert type(came) is type(real) and isinstance(came, eqx.Module)
        for field in dataclasses.fields(real):
            left, right = getattr(came, field.name), getattr(real, field.name)
            if field.metadata.get("static"):
                assert left is right
                continue
            jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-12), left, right)
        assert jax.tree.structure(came) == jax.tree.structure(real)
        for a, b in zip(jax.tree.leaves(came), jax.tree.leaves(real), strict=True):
            assert isinstance(a, jax.Array)
            assert (a.shape, a.dtype, a.weak_type) == (b.shape, b.dtype, b.weak_type)
        with pytest.raises(AttributeError, match="has no attribute 'nonsense'"):
            _ = came.nonsense


@pytest.mark.parametrize(
    "use",
    [
        lambda s: jax.tree.map(lambda leaf: leaf, s),
        lambda s: dataclasses.replace(s, t=s.t),
        lambda s: eqx.tree_at(lambda state: state.t, s, s.t),
        lambda s: ALGORITHM.step(s, rounds()[1])[0],
        lambda s: obax.run(ALGORITHM, s, jax.tree.map(lambda *r: np.stack(r), *rounds()))[0],
        lambda s: next(obax.play(ALGORITHM, s, rounds()[1:]))[0],
        lambda s: s,
    ],
    ids=["map", "replace", "tree_at", "step", "run", "play", "save"],
)
def test_a_packed_state_can_be_used_as_it_is(use):
    looked_at, _ = next(obax.play(ALGORITHM, start(), rounds()))
    jax.tree.leaves(looked_at)
    packed, _ = next(obax.play(ALGORITHM, start(), rounds()))
    assert is_packed(packed)
    assert to_bytes(use(packed)) == to_bytes(use(looked_at))


def test_rounds_of_numpy_of_jax_and_of_both_are_the_same_stream():
    plain, host = rounds(kind=jnp.asarray), rounds()
    mixed = [h | {"scale": p["scale"]} for h, p in zip(host, plain, strict=True)]
    ends = [list(obax.play(ALGORITHM, start(), source)) for source in (host, plain, mixed)]
    for other in ends[1:]:
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-12), ends[0], other)


def test_a_source_may_use_one_buffer_for_all_rounds():
    buffer = {"target": np.zeros(3), "scale": np.zeros(())}

    def source():
        for round in rounds():
            for name, values in round.items():
                buffer[name][...] = values
            yield buffer

    kept = list(obax.play(ALGORITHM, start(), source()))
    equal(kept, list(obax.play(ALGORITHM, start(), rounds())))


def test_a_round_of_double_precision_is_converted_where_jax_would():
    with jax.enable_x64(False):
        algorithm = obax.OGD(obax.Problem(lambda x, y, r: (x - r) ** 2), outer_step_size=0.1)
        state = algorithm.init(0.0, None, np.zeros((), np.float32))
        single = list(obax.play(algorithm, state, [np.float32(0.1)] * 2))
        equal(list(obax.play(algorithm, state, [np.asarray(0.1)] * 2)), single)


def test_a_state_first_looked_at_inside_a_trace_leaks_nothing():
    state, _ = next(obax.play(ALGORITHM, start(), rounds()))
    assert is_packed(state)
    doubled = jax.jit(lambda: 2 * state.outer_var["a"])()
    whole = jax.jit(lambda: jax.tree.map(lambda leaf: leaf, state))()
    np.testing.assert_allclose(doubled, 2 * np.asarray(state.outer_var["a"]), rtol=1e-12)
    equal(whole, state)


def test_a_committed_state_stays_where_it_is():
    device = jax.devices()[0]
    state = jax.device_put(start(), device)
    after, info = list(obax.play(ALGORITHM, state, rounds()))[-1]
    assert after.outer_var["a"].committed and info.t.committed
    equal(after, list(obax.play(ALGORITHM, start(), rounds()))[-1][0])


class Grown(obax.OGD):
    """A broken step: its state comes back in another precision."""

    def step(self, state, round):
        state, info = super().step(state, round)
        return eqx.tree_at(lambda s: s.outer_var, state, state.outer_var.astype(jnp.float32)), info


def test_a_step_that_changes_its_state_is_an_error():
    algorithm = Grown(obax.Problem(lambda x, y, r: (x - r) ** 2), outer_step_size=0.1)
    state = algorithm.init(0.0, None, np.zeros(()))
    with pytest.raises(ValueError, match=r"Grown\.step must return a state of the structure"):
        next(obax.play(algorithm, state, [np.zeros(())]))


class WithDefault(obax.algorithms.OAGDState):
    extra: jax.Array = None


def test_a_field_with_a_default_is_not_mistaken_for_it():
    from obax.online.live import View

    state = WithDefault(**vars(start()), extra=jnp.asarray(5.0))
    view = View(state)
    found = view.unpacked((view.words.to_bytes(jax.tree.leaves(state)), [], None))
    assert float(found.extra) == 5.0
    equal(found, state)


def test_words_keep_every_bit():
    tree = {
        "double": jnp.array([[1.0, -0.0, jnp.nan], [jnp.inf, 5e-324, -1e300]]),
        "single": jnp.array([1.5, -jnp.inf], jnp.float32),
        "signed": jnp.array(-(2**40)),
        "flags": jnp.array([True, False, True]),
        "half": jnp.ones(3, jnp.bfloat16),
        "small": jnp.arange(3, dtype=jnp.uint8),
        "none": jnp.zeros((0, 2)),
        "large": jnp.arange(2000.0),
        "key": jax.random.key(3),
    }
    words = Words(tree)
    assert len(words.alone) == 4
    row, alone = jax.jit(lambda t: (jnp.concatenate(words.pack(t)[0]), words.pack(t)[1]))(tree)
    back = jax.jit(words.unpack)(row, alone)
    data = np.asarray(row).tobytes()
    leaves = jax.tree.leaves(tree)
    assert words.to_bytes(leaves) == data
    for i, (leaf, again) in enumerate(zip(leaves, jax.tree.leaves(back), strict=True)):
        assert (leaf.shape, leaf.dtype) == (again.shape, again.dtype)
        if i in words.spans:
            host = words.from_bytes(data, i)
            assert np.asarray(leaf).tobytes() == np.asarray(again).tobytes() == host.tobytes()
            assert (host.shape, host.dtype) == (leaf.shape, leaf.dtype)
