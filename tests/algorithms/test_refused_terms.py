"""A past round that is NaN at a later x leaves the window, and the rest goes on: in every mode the
trajectory of a window from which the round was taken."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from test_oagd import PROBLEM, ROUNDS, WINDOWS, X1, Y1, inner, np_oagd, outer

import obax
from obax import hypergradient as hg
from obax._support import trees

pytestmark = pytest.mark.usefixtures("quick_compilation")

# The second round is fine in round 2 and not where the pair is in round 3.
BAD, SEEN = 2, 3
SIDES = {"outer": (True, False), "inner": (False, True), "both": (True, True)}


def spoiled(x, round, side):
    """0 where x is on the side of the round on which it is fine, and NaN beyond."""
    beyond = round["sign"] * (x[0] - round["edge"]) > 0
    return jnp.where(beyond & round["spoils"][side], jnp.nan, 0.0) * jnp.sum(x)


PARTIAL = obax.Problem(
    lambda x, y, r: outer(x, y, r) + spoiled(x, r, 0) * (1 + jnp.sum(y)),
    lambda x, y, r: inner(x, y, r) + spoiled(x, r, 1) * jnp.sum(y**2),
    obax.Box(-0.5, 0.5),
)


def oagd(window, estimator=None):
    return obax.OAGD(PARTIAL, 0.1, 0.2, 2, window, estimator or hg.Dense())


def fine(t):
    """A round that no x spoils."""
    rest = {"sign": np.asarray(1.0), "edge": np.asarray(9.0), "spoils": np.array([False, False])}
    return ROUNDS[t - 1] | rest


def rounds_for(algorithm, side):
    """The same rounds, of which one is bad beyond where x is between rounds 2 and 3."""
    state = algorithm.init(X1, Y1, fine(1))
    seen = []
    for t in range(1, SEEN + 1):
        state, info = algorithm.step(state, fine(t))
        seen.append(float(info.outer_var[0]))
    before, after = seen[BAD - 1], seen[SEEN - 1]
    edge = {"sign": np.sign(after - before), "edge": np.asarray((before + after) / 2)}
    bad = fine(BAD) | edge | {"spoils": np.array(SIDES[side])}
    return [bad if t == BAD else fine(t) for t in range(1, len(ROUNDS) + 1)]


def plays(algorithm, rounds, without=None):
    """Infos and states; before round `SEEN` the slot `without` is cleared by hand."""
    state, found = algorithm.init(X1, Y1, rounds[0]), []
    for t, r in enumerate(rounds, start=1):
        if t == SEEN and without is not None:
            kept = state.past.only(jnp.arange(state.past.slots) != without)
            state = dataclasses.replace(state, past=kept)
        state, info = algorithm.step(state, r)
        found.append((state, info))
    return found


MODES = {name: it for name, it in WINDOWS.items() if it.get("window") == 3} | {
    "window-by-window": {"window": 3, "follower": "window", "curvature": "window"},
    "average-by-window": {
        "window": 3,
        "follower": "average",
        "curvature": "window",
        "normalise": "seen",
    },
}
UNROLLED = {"window-current", "average-current", "average-by-window", "each"}
# A follower that trains on past rounds has learned from one whose outer loss alone is bad: that is
# another trajectory than without it.
LEARNS = {name for name, it in MODES.items() if it.get("follower") in ("window", "average")}
CASES = [
    (name, side, False)
    for name in MODES
    for side in (("inner", "both") if name in LEARNS else ("inner", "outer"))
]
CASES += [(name, "inner", True) for name in sorted(UNROLLED)]


@pytest.mark.parametrize(("name", "side", "unrolled"), CASES)
def test_the_rest_goes_on(name, side, unrolled):
    options = dict(MODES[name])
    size, decay = options.pop("window"), options.pop("decay", 1.0)
    window = obax.Window(size, decay, **options)
    algorithm = oagd(window, hg.Unrolled() if unrolled else None)
    rounds = rounds_for(algorithm, side)
    found = plays(algorithm, rounds)
    assert all(bool(info.accepted) for _, info in found)
    if name == "current-seen-decay" and side == "inner":
        # Nobody looks at the inner loss of a past round.
        assert [int(info.refused_terms) for _, info in found] == [0] * 5
        return
    assert [int(info.refused_terms) for _, info in found] == [0, 0, 1, 0, 0]
    assert [int(info.window_terms) for _, info in found] == [1, 2, 2, 2, 3]
    expected = plays(algorithm, [fine(t) for t in range(1, 6)], without=(BAD - 1) % (size - 1))
    for (state, info), (wanted, other) in zip(found, expected, strict=True):
        np.testing.assert_allclose(state.outer_var, wanted.outer_var, rtol=1e-12)
        np.testing.assert_allclose(state.inner_var, wanted.inner_var, rtol=1e-12)
        np.testing.assert_allclose(info.hypergradient_norm, other.hypergradient_norm, rtol=1e-12)
        np.testing.assert_array_equal(state.past.present, wanted.past.present)
        np.testing.assert_allclose(info.solver_residual, other.solver_residual, atol=1e-12)


@pytest.mark.parametrize("side", ["inner", "outer"])
def test_followers_of_their_own(side):
    algorithm = obax.WOBO(PARTIAL, 0.1, 0.2, 2, obax.Window(3), 1e-3, 2, hg.Dense())
    found = plays(algorithm, rounds_for(algorithm, side))
    assert all(bool(info.accepted) for _, info in found)
    assert [int(info.refused_terms) for _, info in found] == [0, 0, 1, 0, 0]
    expected = plays(algorithm, [fine(t) for t in range(1, 6)], without=(BAD - 1) % 2)
    for (state, _), (wanted, _) in zip(found, expected, strict=True):
        np.testing.assert_allclose(state.outer_var, wanted.outer_var, rtol=1e-12)
        np.testing.assert_allclose(state.inner_var, wanted.inner_var, rtol=1e-12)
        np.testing.assert_array_equal(state.past.present, wanted.past.present)


@pytest.mark.parametrize("name", ["own-seen-decay", "current-seen-decay", "each", "average-seen"])
def test_by_plain_lists(name):
    options = dict(WINDOWS[name])
    size, decay = options.pop("window"), options.pop("decay", 1.0)
    algorithm = oagd(obax.Window(size, decay, **options))
    there = lambda t, i: t < SEEN or t - i != BAD  # noqa: E731
    x, y, _ = np_oagd(**WINDOWS[name], there=there)
    state, _ = plays(algorithm, rounds_for(algorithm, "both"))[-1]
    np.testing.assert_allclose(state.outer_var, x, rtol=1e-10)
    np.testing.assert_allclose(state.inner_var, y, rtol=1e-10)


def test_chunks_and_a_leader_that_waits():
    late = lambda t: t >= SEEN  # noqa: E731
    for follower in ("current", "average"):
        window = obax.Window(3, curvature="current", follower=follower, chunk=2)
        algorithm = obax.OAGD(PARTIAL, 0.1, 0.2, 2, window, hg.Dense())
        rounds = rounds_for(algorithm, "outer")
        waits = dataclasses.replace(algorithm, outer_when=late)
        rounds[BAD - 1]["sign"] = np.asarray(0.0)
        assert all(bool(info.accepted) for _, info in plays(waits, rounds))
        rounds = rounds_for(algorithm, "outer")
        found = [int(info.refused_terms) for _, info in plays(algorithm, rounds)]
        assert found == [0, 0, 1, 0, 0]


def test_the_current_round_is_refused_as_ever():
    for options in ({}, {"curvature": "current"}, {"follower": "average"}, {"follower": "window"}):
        algorithm = oagd(obax.Window(3, **options))
        state, _ = plays(algorithm, [fine(1), fine(2)])[-1]
        for side in SIDES:
            # Bad at every x.
            bad = fine(3) | {"sign": np.asarray(-1.0), "spoils": np.array(SIDES[side])}
            after, info = algorithm.step(state, bad)
            assert not bool(info.accepted)
            assert jax.tree.all(jax.tree.map(np.array_equal, after, state))


def test_no_round_of_the_past_is_lost_because_the_pair_is():
    """Where everything is infinite it is the current round's fault, and nothing leaves."""
    problem = obax.Problem(lambda x, y, r: jnp.exp(r * x) + 0 * y, lambda x, y, r: (y - x) ** 2)
    algorithm = obax.OAGD(problem, 1.0, 0.1, 1, obax.Window(3))
    state = algorithm.init(0.0, 0.0, jnp.ones(()))
    for _ in range(2):
        state, _ = algorithm.step(state, jnp.ones(()))
    far = dataclasses.replace(state, outer_var=jnp.asarray(800.0))
    after, info = algorithm.step(far, jnp.ones(()))
    assert not bool(info.accepted) and after.past.present.all()


def test_replayed_rounds_leave_the_reservoir():
    window = obax.Window(4, normalise="seen", replay=obax.Replay(4))
    algorithm = obax.OAGD(PARTIAL, 0.1, 0.2, 2, window)
    played = plays(algorithm, rounds_for(algorithm, "inner"))
    assert all(bool(info.accepted) for _, info in played)
    assert [int(info.refused_terms) for _, info in played] == [0, 0, 1, 0, 0]
    parts = vars(played[2][0]).values()
    reservoir = next(part for part in parts if isinstance(part, obax.replay.Reservoir))
    # Rounds 1 and 3; the second is gone.
    left = sorted(reservoir.rounds["d"][reservoir.present, 0].tolist())
    assert left == sorted([ROUNDS[0]["d"][0], ROUNDS[2]["d"][0]])


@pytest.mark.parametrize("options", [{}, {"tasks": 3}, {"chunk": 2}])
def test_tasks_of_itd_leave_its_memory(options):
    algorithm = obax.ITD(PARTIAL, 0.1, 0.2, 2, capacity=4, **options)
    found = plays(algorithm, rounds_for(algorithm, "outer"))
    assert all(bool(info.accepted) for _, info in found)
    assert sum(int(info.refused_terms) for _, info in found) == 1
    clean = [fine(t) for t in range(1, 6)]
    lost = next(t for t, (_, info) in enumerate(found) if int(info.refused_terms))
    state = algorithm.init(X1, Y1, clean[0])
    for t, r in enumerate(clean):
        if t == lost:
            kept = state.past.only(jnp.arange(3) != BAD - 1)
            state = dataclasses.replace(state, past=kept)
        state, _ = algorithm.step(state, r)
        if "tasks" not in options:
            np.testing.assert_allclose(found[t][0].outer_var, state.outer_var, rtol=1e-12)


def test_a_sweep_loses_terms_in_one_run_only():
    algorithm = oagd(obax.Window(3, curvature="current"))
    rounds = jax.tree.map(lambda *leaves: jnp.stack(leaves), *rounds_for(algorithm, "outer"))
    still = eqx.tree_at(lambda one: one.outer_step_size, algorithm, jnp.asarray(1e-12))
    state = algorithm.init(X1, Y1, fine(1))
    with pytest.warns(obax.RefusedTermWarning, match=r"^in 1 of 2 runs, history\[0\] the first"):
        _, history = obax.sweep([algorithm, still], state, rounds)
    assert history.refused_terms.tolist() == [[0, 0, 1, 0, 0], [0] * 5]
    with pytest.warns(obax.RefusedTermWarning, match="1 past round left the window in round 2 "):
        _, alone = obax.run(algorithm, state, rounds)
    with pytest.warns(
        obax.RefusedTermWarning, match="1 past round left the window in round 2 "
    ) as w:
        for _ in obax.play(algorithm, state, rounds_for(algorithm, "outer")):
            pass
    assert len(w) == 1 and w[0].filename == __file__
    np.testing.assert_allclose(history.outer_var[0], alone.outer_var, rtol=1e-12)
    assert "window: 1 past round left it, NaN or Inf at a later x or y; 2 terms" in alone.summary()
    assert alone.to_pandas()["refused_terms"].sum() == 1


def test_a_mutant_that_keeps_bad_rounds_is_seen(monkeypatch):
    monkeypatch.setattr(
        trees, "finite_entries", lambda it: jnp.ones(len(jax.tree.leaves(it)[0]), bool)
    )
    monkeypatch.setattr(trees, "finite_or", lambda value, _: value)
    for options in ({}, {"curvature": "current"}, {"follower": "window"}, {"follower": "average"}):
        # Of another size than those that are compiled already.
        algorithm = oagd(obax.Window(4, **options))
        rounds = rounds_for(algorithm, "both")
        # As it was: every later round with the bad one in the window is refused.
        accepted = [bool(info.accepted) for _, info in plays(algorithm, rounds)]
        assert accepted == [True, True, False, False, False]


def test_an_outer_loss_alone_is_refused_by_the_leader_alone():
    algorithm = oagd(obax.Window(3, follower="average"))
    found = plays(algorithm, rounds_for(algorithm, "outer"))
    assert [int(info.refused_terms) for _, info in found] == [0, 0, 1, 0, 0]
    assert all(bool(info.accepted) for _, info in found)


def test_the_message_does_not_blame_the_step_size():
    """Where a bad past round is not found, as in AutoBalance, the person is told that it is one."""
    algorithm = obax.AutoBalance(PARTIAL, 0.1, 0.2, capacity=5, outer_every=1, outer_rounds=1)
    state = algorithm.init(X1, Y1, fine(1))
    for t in (1, 2):
        state, _ = algorithm.step(state, fine(t))
    # The second round as if it were bad wherever the leader is now.
    kept = state.past.rounds
    bad = kept | {"spoils": kept["spoils"].at[1].set(True), "edge": kept["edge"].at[1].set(-9.0)}
    memory = eqx.tree_at(lambda buffer: buffer.rounds, state.past, bad)
    state = dataclasses.replace(state, past=memory)
    third = jax.tree.map(lambda leaf: jnp.asarray(leaf)[None], fine(3))
    with pytest.raises(obax.RejectedRoundError, match="would be fine alone, but with") as error:
        obax.run(algorithm, state, third)
    assert "step size is not to blame" in str(error.value)
    # And where it is the step size, it says so.
    wild = obax.OAGD(PROBLEM, 0.1, 1e200, 5, obax.Window(2))
    state, _ = wild.step(wild.init(X1, Y1, ROUNDS[0]), ROUNDS[0])
    with pytest.raises(obax.RejectedRoundError, match="a smaller step size is the usual cure"):
        obax.run(wild, state, jax.tree.map(lambda *leaves: jnp.stack(leaves), *ROUNDS))
