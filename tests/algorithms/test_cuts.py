"""Windows that are cut: Algorithm 1 with plain lists that end at a change, flagged or detected."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from test_oagd import PROBLEM, ROUNDS, WINDOWS, X1, Y1, assert_plays, np_oagd

import obax
from obax import hypergradient as hg

pytestmark = pytest.mark.usefixtures("quick_compilation")

# A new regime begins with the fourth round.
CHANGE = 4
FLAGGED = [{**r, "reset": np.asarray(t == CHANGE)} for t, r in enumerate(ROUNDS, start=1)]
SINCE = lambda t, i: t - i >= CHANGE if t >= CHANGE else True  # noqa: E731


class Says(eqx.Module):
    """A detector that knows when: `kept[t - 1]` in round t. It remembers t and the losses."""

    kept: jax.Array

    def init(self):
        return jnp.asarray(0, jnp.int32), jnp.zeros(len(self.kept))

    def observe(self, memory, loss):
        seen, losses = memory
        return (seen + 1, losses.at[seen].set(loss)), self.kept[seen]


def says(*kept):
    return Says(jnp.asarray(kept, jnp.int32))


ALL = 2**31 - 1


def windows(name, **more):
    options = dict(WINDOWS[name])
    size, decay = options.pop("window", 1), options.pop("decay", 1.0)
    return obax.Window(size, decay, **options, **more)


def oagd(window):
    return obax.OAGD(PROBLEM, 0.1, 0.2, 2, window, hg.Dense())


@pytest.mark.parametrize("name", WINDOWS)
def test_a_flag_in_the_round_ends_the_window(name):
    window = windows(name, cut="reset")
    _, info = assert_plays(oagd(window), np_oagd(**WINDOWS[name], there=SINCE), FLAGGED)
    # Round 5: itself and round 4.
    assert int(info.window_terms) == min(2, window.size)


@pytest.mark.parametrize("name", ["own-seen-decay", "window-current", "each"])
def test_a_detector_ends_the_window(name):
    # Of round 4 the two before it stay, of round 5 the one before it.
    there = lambda t, i: i <= {4: 2, 5: 1}.get(t, ALL)  # noqa: E731
    window = windows(name, cut=says(ALL, ALL, ALL, 2, 1))
    state, _ = assert_plays(oagd(window), np_oagd(**WINDOWS[name], there=there))
    algorithm = oagd(window)
    state = algorithm.init(X1, Y1, ROUNDS[0])
    for t, r in enumerate(ROUNDS):
        before = state
        state, info = algorithm.step(state, r)
        # It was told the loss suffered, in order.
        seen, losses = state.detector
        assert int(seen) == t + 1 and losses[t] == info.played_value
        assert int(before.detector[0]) == t
        assert int(info.cut_terms) == (1 if t == 4 else 0)


def test_sobow_and_obbo_forget_what_they_stored():
    rounds = jax.tree.map(lambda *leaves: jnp.stack(leaves), *FLAGGED)
    for make in (obax.SOBOW, obax.OBBO):
        whole, cut = (
            make(PROBLEM, 0.1, 0.2, window=obax.Window(4, normalise="seen", cut=how))
            for how in (None, "reset")
        )
        alone = make(PROBLEM, 0.1, 0.2)
        example = jax.tree.map(lambda leaf: leaf[0], rounds)
        _, plain = obax.run(whole, whole.init(X1, Y1, example), rounds)
        _, found = obax.run(cut, cut.init(X1, Y1, example), rounds)
        np.testing.assert_array_equal(plain.outer_var[:4], found.outer_var[:4])
        assert found.window_terms.tolist() == [1, 2, 3, 1, 2]
        assert found.cut_terms.tolist() == [0, 0, 0, 3, 0]
        assert plain.cut_terms.tolist() == [0] * 5
        # In round 4 the direction is that of the round alone, from the same pair.
        fourth, _ = obax.run(cut, cut.init(X1, Y1, example), jax.tree.map(lambda r: r[:3], rounds))
        single = alone.init(fourth.outer_var, fourth.inner_var, example)
        single = dataclasses.replace(single, carry=fourth.carry)
        _, expected = alone.step(single, FLAGGED[3])
        np.testing.assert_allclose(
            found.hypergradient_norm[3], expected.hypergradient_norm, rtol=1e-12
        )


def test_wobo_drops_rounds_and_their_followers():
    window = obax.Window(4, normalise="seen", cut="reset")
    cut = obax.WOBO(PROBLEM, 0.1, 0.2, 2, window, 1e-3, 2, hg.Dense())
    alone = dataclasses.replace(cut, window=obax.Window())
    state = cut.init(X1, Y1, FLAGGED[0])
    for r in FLAGGED[:3]:
        state, _ = cut.step(state, r)
    single = alone.init(state.outer_var, state.inner_var, FLAGGED[0])
    expected, _ = alone.step(single, FLAGGED[3])
    state, info = cut.step(state, FLAGGED[3])
    assert (int(info.window_terms), int(info.cut_terms)) == (1, 3)
    # The tolerance is epsilon / w: another window looks more or less often, unless N ends it.
    np.testing.assert_allclose(state.outer_var, expected.outer_var, rtol=1e-12)
    with pytest.raises(ValueError, match=r"window\.replay must be left out for WOBO"):
        dataclasses.replace(cut, window=obax.Window(4, replay=obax.Replay(8)))


def test_a_rejected_round_cuts_nothing_and_tells_the_detector_nothing():
    for cut, rounds in (("reset", FLAGGED), (says(ALL, ALL, ALL, 0, ALL, ALL), ROUNDS)):
        algorithm = oagd(obax.Window(4, cut=cut))
        state = algorithm.init(X1, Y1, rounds[0])
        for r in rounds[:3]:
            state, _ = algorithm.step(state, r)
        bad = {**rounds[3], "d": np.full(3, np.inf)}
        after, info = algorithm.step(state, bad)
        assert not bool(info.accepted)
        assert jax.tree.all(jax.tree.map(np.array_equal, after, state))
        after, info = algorithm.step(state, rounds[3])
        assert bool(info.accepted) and int(info.window_terms) == 1


def test_a_loss_that_is_not_finite_is_no_evidence():
    # f_t is infinite where the follower is before it has learned, and fine afterwards.
    problem = obax.Problem(
        lambda x, y, r: jnp.where(y == 0, jnp.inf, 0.5 * (y - r) ** 2 + 0 * x),
        lambda x, y, r: 0.5 * (y - x) ** 2,
    )
    algorithm = obax.OAGD(problem, 0.1, 0.5, 1, obax.Window(2, cut=says(0, 0)))
    state = algorithm.init(1.0, 0.0, jnp.zeros(()))
    state, info = algorithm.step(state, jnp.ones(()))
    assert bool(info.accepted) and np.isinf(info.played_value)
    assert int(state.detector[0]) == 0 and np.all(np.isfinite(state.detector[1]))


def test_rounds_that_cannot_say_it_are_refused_at_once():
    algorithm = oagd(obax.Window(2, cut="reset"))
    expected = "example_round must be a dict with a boolean scalar 'reset'.*but has "
    with pytest.raises(ValueError, match=expected + "no such leaf"):
        algorithm.init(X1, Y1, ROUNDS[0])
    with pytest.raises(ValueError, match=expected + r"int32\[\]"):
        algorithm.init(X1, Y1, {**ROUNDS[0], "reset": jnp.asarray(0, jnp.int32)})
    problem = obax.Problem(lambda x, y, r: (x - r) ** 2)
    with pytest.raises(ValueError, match=expected + "no such leaf"):
        obax.OAGD(problem, 0.1, window=obax.Window(2, cut="reset")).init(0.0, None, jnp.zeros(()))


def test_a_sweep_cuts_every_run_where_it_must():
    rounds = jax.tree.map(lambda *leaves: jnp.stack(leaves), *ROUNDS)
    kept = [(ALL, ALL, ALL, 0, ALL), (ALL, 0, ALL, ALL, 1)]
    settings = [oagd(obax.Window(3, cut=says(*each))) for each in kept]
    state = settings[0].init(X1, Y1, ROUNDS[0])
    _, history = obax.sweep(settings, state, rounds)
    assert history.window_terms.tolist() == [[1, 2, 3, 1, 2], [1, 1, 2, 3, 2]]
    for one, setting in zip(history, settings, strict=True):
        _, alone = obax.run(setting, state, rounds)
        np.testing.assert_allclose(one.outer_var, alone.outer_var, rtol=1e-12)


def test_windows_go_on_where_t_does_not_fit_any_more():
    algorithm = obax.OAGD(PROBLEM, 0.1, 0.2, 1, obax.Window(4, cut="reset"))
    state = algorithm.init(X1, Y1, FLAGGED[0])
    late = dataclasses.replace(state, t=jnp.asarray(2**31 - 3, jnp.int32))
    near = dataclasses.replace(state, t=jnp.asarray((2**31 - 3) % 3 + 3, jnp.int32))
    rounds = jax.tree.map(lambda *leaves: jnp.stack(leaves), *FLAGGED)
    (_, far), (_, close) = (obax.run(algorithm, start, rounds) for start in (late, near))
    assert far.window_terms.tolist() == close.window_terms.tolist() == [1, 2, 3, 1, 2]
    np.testing.assert_array_equal(far.outer_var, close.outer_var)


def test_how_it_looks():
    assert repr(obax.Window(3, cut="reset")) == "Window(3, cut='reset')"
