"""Windows against a plain list, and every complaint."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import obax
from obax._support.compiling import footprint
from obax.round_buffer import RingBuffer
from obax.window import Window

SETTINGS = settings(derandomize=True, deadline=None, max_examples=15, database=None)


@SETTINGS
@given(
    size=st.integers(1, 4),
    decay=st.floats(0.05, 1.0),
    normalise=st.sampled_from(["full", "seen"]),
    rounds=st.integers(1, 9),
    chunk=st.sampled_from([None, 1, 2]),
    rejected=st.sets(st.integers(0, 8)),
)
def test_against_a_list(size, decay, normalise, rounds, chunk, rejected):
    window = obax.Window(size, decay, normalise=normalise, chunk=chunk)
    u = decay ** np.arange(size)
    buffer = RingBuffer.like({"r": jax.ShapeDtypeStruct((), jnp.float64)}, size - 1)
    naive, t = [], 1
    for n in range(rounds):
        value = 10.0 + n
        round = {"r": jnp.asarray(value)}
        now = jnp.asarray(t, jnp.int32)
        newest_first = [value, *reversed(naive)][:size]
        # The shares: none for what is not there, u_i / W in the right place for what is.
        terms = window.terms(buffer, round, now)
        share, full = terms.shares(), u.sum()
        if normalise == "seen":
            full = u[: len(newest_first)].sum()
        if normalise == "seen" or len(newest_first) == size:
            np.testing.assert_allclose(share.sum(), 1.0, rtol=1e-12)
        assert int(terms.number) == len(newest_first)
        for age, place in enumerate(reversed(terms.oldest_first.tolist())):
            present = age < len(newest_first)
            assert bool(terms.present[place]) == present
            expected = u[age] / full if present else 0.0
            np.testing.assert_allclose(share[place], expected, rtol=1e-12)
            if present:
                assert terms.rounds["r"][place] == newest_first[age]
            else:
                assert terms.filled()["r"][place] == value
        # The mean of a function of the rounds, which is NaN for what is not there.
        square = lambda one: jnp.where(one["r"] == 0, jnp.nan, one["r"] ** 2)  # noqa: E731
        expected = sum(u[i] * r**2 for i, r in enumerate(newest_first)) / full
        found = terms.mean(window.map(square, terms.rounds))
        np.testing.assert_allclose(found, expected, rtol=1e-12)
        accepted = n not in rejected
        if size > 1:
            before = buffer
            buffer = buffer.push(now, round, jnp.asarray(accepted))
            if not accepted:
                np.testing.assert_array_equal(buffer.rounds["r"], before.rounds["r"])
                np.testing.assert_array_equal(buffer.present, before.present)
        if accepted:
            naive, t = [*naive, value][-max(size - 1, 0) :] if size > 1 else [], t + 1


def after(size, t):
    """A window and its buffer after rounds 1, 2, ..., t - 1, and round t."""
    window = obax.Window(size, normalise="seen")
    buffer = window.past(jnp.zeros(()))
    for s in range(1, t):
        buffer = buffer.push(jnp.asarray(s, jnp.int32), jnp.asarray(float(s)), jnp.asarray(True))
    return window, buffer, jnp.asarray(t, jnp.int32)


@pytest.mark.parametrize("t", [2, 3, 6, 9])
@pytest.mark.parametrize("kept", [0, 1, 2, 100, 2**31 - 1])
def test_only_the_most_recent_rounds_survive_a_cut(t, kept):
    window, buffer, now = after(4, t)
    cut = buffer.keep_recent(now, jnp.asarray(kept))
    terms = window.terms(cut, jnp.asarray(float(t)), now)
    left = sorted(terms.rounds[terms.present].tolist())
    assert left == list(range(max(1, t - min(kept, 3)), t + 1))
    np.testing.assert_allclose(terms.shares()[terms.present], 1 / len(left))
    # What is cut comes back by being overwritten, never by itself.
    following = cut.push(now, jnp.asarray(float(t)), jnp.asarray(True))
    terms = window.terms(following, jnp.asarray(-1.0), now + 1)
    assert sorted(terms.rounds[terms.present].tolist()) == [-1.0, *left[-3:]]
    # A rejected round leaves what there was before the cut.
    same = cut.push(now, jnp.asarray(float(t)), jnp.asarray(False), before=buffer)
    assert jax.tree.all(jax.tree.map(np.array_equal, same, buffer))


def test_explicit_weights():
    window = obax.Window(3, weights=[1, 0.5, 0.5])
    assert window.weights.tolist() == [1.0, 0.5, 0.5]
    _, buffer, t = after(3, 7)
    share = window.terms(buffer, jnp.asarray(7.0), t).shares()
    np.testing.assert_allclose(share.sum(), 1.0)
    np.testing.assert_allclose(share[-1], 0.5)


@pytest.mark.parametrize("impl", ["threefry2x32", "rbg"])
def test_random_keys_in_the_buffer(impl):
    keys = jax.random.split(jax.random.key(1, impl=impl), 3)
    buffer = RingBuffer.like(jax.eval_shape(lambda: keys[0]), 2)
    for t in (1, 2):
        buffer = buffer.push(jnp.asarray(t, jnp.int32), keys[t - 1], jnp.asarray(True))
    stacked = buffer.stacked(keys[2])
    np.testing.assert_array_equal(jax.random.key_data(stacked), jax.random.key_data(keys))


def test_the_buffer_does_not_grow():
    buffer = RingBuffer.like(jax.ShapeDtypeStruct((4,), jnp.float32), 9)
    after = buffer.push(jnp.asarray(10**6, jnp.int32), jnp.ones(4, jnp.float32), jnp.asarray(True))
    assert after.rounds.shape == (9, 4)
    assert after.rounds.dtype == jnp.float32


COMPLAINTS = [
    (lambda: obax.Window(0), "Window.size must be an integer >= 1, but got 0"),
    (lambda: obax.Window(-2), "Window.size must be an integer >= 1, but got -2"),
    (lambda: obax.Window(2.0), "Window.size must be an integer >= 1, but got 2.0"),
    (lambda: obax.Window(True), "Window.size must be an integer >= 1, but got True"),
    (lambda: obax.Window(2, decay=0.0), "Window.decay must be a number > 0, but got 0.0"),
    (lambda: obax.Window(2, decay=1.5), r"Window.decay must be in \(0, 1\], but got 1.5"),
    (lambda: obax.Window(2, decay="a"), "Window.decay must be a number, but got 'a'"),
    (lambda: obax.Window(2, weights=[1.0, 1.1]), r"1 = u_0 >= u_1 >= ... > 0, but got \[1.0, 1.1"),
    (lambda: obax.Window(2, weights=[0.5, 0.5]), "1 = u_0 >= u_1"),
    (lambda: obax.Window(2, weights=[1.0, 0.0]), "1 = u_0 >= u_1"),
    (lambda: obax.Window(2, weights=[1.0]), r"Window.weights must be 2 numbers.*shape \(1,\)"),
    (lambda: obax.Window(2, weights=[1.0, np.nan]), "Window.weights must be finite"),
    (lambda: obax.Window(2, follower="all"), "Window.follower must be one of 'current', 'window'"),
    (lambda: obax.Window(2, curvature="x"), "Window.curvature must be one of 'own', 'current'"),
    (lambda: obax.Window(2, normalise=None), "Window.normalise must be one of 'full', 'seen'"),
    (lambda: obax.Window(2, chunk=0), "Window.chunk must be an integer >= 1, but got 0"),
    (lambda: obax.Window(2, cut="now"), "Window.cut must be 'reset', or a detector.*got 'now'"),
    (lambda: obax.Window(2, cut=True), "Window.cut must be 'reset', or a detector.*got True"),
    (
        lambda: obax.Window(2, follower="each", curvature="current"),
        "Window.curvature must be 'own' with follower='each', but got 'current'",
    ),
    (
        lambda: obax.Window(2, curvature="window"),
        "Window.curvature must be 'own' or 'current' with follower='current', but got 'window'",
    ),
]


@pytest.mark.parametrize(("make", "message"), COMPLAINTS)
def test_complaints(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_decay_and_weights_exclude_each_other():
    with pytest.raises(ValueError, match="must not both be given"):
        obax.Window(2, 0.5, weights=[1.0, 0.5])


def test_large_terms_are_evaluated_in_chunks_that_fit():
    stacked = jnp.zeros((50, 128, 256), jnp.float32)
    matrix = jnp.ones((256, 8192), jnp.float32)
    needs = lambda round: jnp.tanh(round[:, :1] * matrix[0]).sum()  # noqa: E731
    # Products of 4 MiB and their tanh, beside each other for a moment: 32 terms in 256 MiB.
    assert Window(50).chunk_for(needs, stacked) == 25
    assert Window(50, chunk=7).chunk_for(needs, stacked) == 7
    assert Window(50).chunk_for(jnp.sum, stacked) == 50
    # What is small is not looked at.
    assert Window(50).chunk_for(needs, stacked[:, :1, :1]) == 50


def test_a_footprint_counts_what_is_alive_at_once():
    x = jnp.zeros(1000, jnp.float32)
    one_after_the_other = lambda x: jnp.sin(jnp.sin(jnp.sin(x)))  # noqa: E731
    side_by_side = lambda x: jnp.sin(x) * jnp.cos(x) * jnp.tan(x)  # noqa: E731
    assert footprint(one_after_the_other, x) == 8_000
    assert footprint(side_by_side, x) >= 12_000
    looped = lambda x: jax.lax.fori_loop(0, 9, lambda _, y: jnp.sin(y) + jnp.cos(y), x)  # noqa: E731
    assert footprint(looped, x) >= 12_000
