"""Reservoirs: who is held and who is drawn, by the laws they promise, and every complaint."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import obax
from obax.replay import Reservoir

RUNS = 1500
ODDS = jnp.array([0.9, 0.09, 0.01])


def offered(replay, rounds, odds=None):
    """The reservoirs of so many independent runs after as many rounds, each with its number and a
    class. Draws depend on (seed, t) alone: runs have rounds of other numbers."""

    def one(run):
        def push(held, n):
            kind = jax.random.categorical(jax.random.fold_in(run, n), jnp.log(odds or ODDS))
            t = jax.random.randint(run, (), 1, 2**30, jnp.int32) + n
            round = {"n": n, "kind": kind.astype(jnp.int32)}
            return held.push(t, round, jnp.asarray(True), replay=replay), None

        example = dict.fromkeys(("n", "kind"), jax.ShapeDtypeStruct((), jnp.int32))
        held, _ = jax.lax.scan(
            push, replay.reservoir(example), jnp.arange(1, rounds + 1, dtype=jnp.int32)
        )
        return held

    return jax.jit(jax.vmap(one))(jax.random.split(jax.random.key(7), RUNS))


def drawn(replay, held, count):
    """What is drawn from each of them in some round: slots, and whether they hold anything."""
    t = jnp.arange(RUNS, dtype=jnp.int32)
    return jax.jit(jax.vmap(lambda one, t: one.draw(replay, t, count)))(held, t)


def surprise(counts, size):
    """How unlikely it is that `size` of len(counts) rounds were chosen alike in every run."""
    n = len(counts)
    share = size / n
    variance = RUNS * share * (1 - share) * n / (n - 1)
    return stats.chi2.sf(np.sum((counts - RUNS * share) ** 2) / variance, n - 1)


def counted(numbers, rounds):
    return np.bincount(np.asarray(numbers).ravel(), minlength=rounds + 1)[1:]


@functools.cache
def uniform():
    return offered(obax.Replay(9), 40)


def test_every_past_round_is_as_likely_to_be_held_and_to_be_drawn():
    held = uniform()
    assert held.present.all() and (held.offered == 40).all()
    assert surprise(counted(held.rounds["n"], 40), 8) > 0.01
    np.testing.assert_array_equal(held.age, 41 - held.rounds["n"])
    slots, found = drawn(obax.Replay(9), held, 3)
    assert found.all()
    numbers = jnp.take_along_axis(held.rounds["n"], slots, axis=1)
    assert surprise(counted(numbers, 40), 3) > 0.01
    # Without replacement.
    assert all(len(set(row)) == 3 for row in numbers.tolist())


@pytest.mark.parametrize("mutant", ["forgets nothing", "keeps the last"])
def test_a_reservoir_that_is_not_one_is_seen(mutant, monkeypatch):
    def place(self, replay, t):
        if mutant == "forgets nothing":
            return self.offered, self.offered < self.slots
        return self.offered % self.slots, jnp.asarray(True)

    monkeypatch.setattr(Reservoir, "place", place)
    held = offered(obax.Replay(9, seed=3), 40)
    assert surprise(counted(held.rounds["n"], 40), 8) < 1e-12


def test_ages_are_geometric_with_the_mean_that_was_asked_for():
    held = offered(obax.Replay(9, recency=20), 300)
    # The ages of one slot in each run.
    age = np.asarray(held.age[:, 3])
    assert abs(age.mean() - 20) < 4 * 20 / np.sqrt(RUNS)
    edges = stats.geom(1 / 20).ppf(np.linspace(0, 1, 11)[1:-1])
    expected = RUNS * np.diff(stats.geom(1 / 20).cdf([0, *edges, np.inf]))
    found = np.histogram(age, [0.5, *(edges + 0.5), np.inf])[0]
    assert stats.chisquare(found, expected).pvalue > 0.01
    # A mutant: as if the mean were half of that.
    halved = RUNS * np.diff(stats.geom(1 / 10).cdf([0, *edges, np.inf]))
    assert stats.chisquare(found, halved / halved.sum() * RUNS).pvalue < 1e-12


def test_before_there_are_so_many_rounds_they_are_remembered_alike():
    held = offered(obax.Replay(9, recency=40), 40)
    assert jax.tree.all(jax.tree.map(np.array_equal, held, uniform()))


def classes(round):
    return jax.nn.one_hot(round["kind"], 3)


def test_classes_are_drawn_in_equal_numbers():
    replay = obax.Replay(31, label=classes)
    held = offered(replay, 60)
    slots, found = drawn(replay, held, 6)
    assert found.all()
    kinds = jnp.take_along_axis(held.rounds["kind"], slots, axis=1)
    for have, row in zip(held.rounds["kind"].tolist(), kinds.tolist(), strict=True):
        there = np.bincount(have, minlength=3)
        got = np.bincount(row, minlength=3)
        # What rarer classes cannot fill goes to the others; nobody gets less than a fair share.
        fair = 6 // np.count_nonzero(there)
        assert (got >= np.minimum(there, fair)).all()
    plain, _ = drawn(obax.Replay(31), dataclasses.replace(held, classes=None), 6)
    usual = jnp.take_along_axis(held.rounds["kind"], plain, axis=1)
    assert np.mean(usual == 0) > 0.85 and np.mean(kinds == 0) < 0.65
    # Within a class, all alike: the frequent one, by age.
    first = jnp.where(kinds == 0, jnp.take_along_axis(held.age, slots, axis=1), 0)
    common = np.asarray(first[first > 0])
    assert stats.chisquare(np.histogram(common, 6, (0.5, 60.5))[0]).pvalue > 0.001


def test_rounds_of_many_classes_are_drawn_for_what_they_have_of_one():
    # Of two classes; one round in ten has nine tenths of the second.
    replay = obax.Replay(11, label=lambda round: round)
    held = replay.reservoir(jax.ShapeDtypeStruct((2,), jnp.float32))
    for n in range(10):
        share = 0.9 if n == 4 else 0.0 if n < 8 else 0.05
        round = jnp.array([1 - share, share], jnp.float32)
        held = held.push(jnp.asarray(n + 1, jnp.int32), round, jnp.asarray(True), replay=replay)
    t = jnp.arange(RUNS, dtype=jnp.int32)
    slots, _ = jax.vmap(lambda t: held.draw(replay, t, 2))(t)
    # One of the two draws is for the second class: 0.9 to 0.05 and 0.05 (and now and then round 4
    # is drawn for the first).
    often = np.mean(np.any(slots == 4, axis=1))
    assert abs(often - 0.9) < 0.04


def test_less_than_was_asked_for():
    for replay in (obax.Replay(6), obax.Replay(6, label=lambda round: jnp.ones(2))):
        held = replay.reservoir(jax.ShapeDtypeStruct((), jnp.float32))
        t = jnp.asarray(1, jnp.int32)
        slots, found = held.draw(replay, t, 4)
        assert not found.any() and len(set(slots.tolist())) == 4
        held = held.push(t, jnp.asarray(5.0, jnp.float32), jnp.asarray(True), replay=replay)
        slots, found = held.draw(replay, t + 1, 4)
        assert found.sum() == 1 and held.rounds[slots[np.argmax(found)]] == 5.0


def test_draws_depend_on_seed_and_round_alone():
    held = jax.tree.map(lambda leaf: leaf[0], uniform())
    draw = lambda seed, t: held.draw(obax.Replay(9, seed=seed), jnp.asarray(t), 3)[0].tolist()  # noqa: E731
    assert draw(0, 5) == draw(0, 5)
    assert len({tuple(draw(seed, 5)) for seed in range(6)}) > 3
    assert len({tuple(draw(0, t)) for t in range(6)}) > 3


@pytest.mark.parametrize("kept", [0, 7])
def test_a_cut_begins_a_reservoir_of_the_new_regime(kept):
    held = jax.tree.map(lambda leaf: leaf[0], uniform())
    cut = held.keep_recent(jnp.asarray(41), jnp.asarray(kept, jnp.int32))
    np.testing.assert_array_equal(cut.present, held.age <= kept)
    assert int(cut.offered) == kept
    slot, enters = cut.place(obax.Replay(9), jnp.asarray(41, jnp.int32))
    assert bool(enters) and not bool(cut.present[slot])


def test_counts_stop_where_32_bits_end():
    replay = obax.Replay(3)
    held = replay.reservoir(jax.ShapeDtypeStruct((), jnp.float32))
    late = jnp.asarray(2**31 - 1, jnp.int32)
    held = Reservoir(
        held.rounds,
        jnp.ones(2, bool),
        jnp.full(2, late),
        jnp.full((), late - 1),
        None,
    )
    for t in (2**31 - 3, 2**31 - 2):
        t = jnp.asarray(t, jnp.int32)
        held = held.push(t, jnp.zeros((), jnp.float32), jnp.asarray(True), replay=replay)
    assert (held.age > 0).all() and int(held.offered) == 2**31 - 2


COMPLAINTS = [
    (lambda: obax.Replay(0), "Replay.capacity must be an integer >= 1, but got 0"),
    (lambda: obax.Replay(9, recency=8), "Replay.recency must be at least capacity, 9.*got 8"),
    (lambda: obax.Replay(9, recency=8.5), "Replay.recency must be an integer >= 1, but got 8.5"),
    (lambda: obax.Replay(9, recency=jnp.ones(2)), r"one integer, but is float64\[2\]"),
    (lambda: obax.Replay(9, label=3), "Replay.label must be a function round -> how much"),
    (lambda: obax.Replay(9, seed=0.5), "Replay.seed must be an integer, but got 0.5"),
    (lambda: obax.Window(2, replay=9), "Window.replay must be an obax.Replay.*got 9"),
    (lambda: obax.Window(1, replay=obax.Replay(9)), "Window.size must be at least 2 with replay"),
    (lambda: obax.Window(9, replay=obax.Replay(8)), "at least as many rounds.*9, but.* is 8"),
    (
        lambda: obax.Replay(9, label=lambda round: 3).reservoir(jnp.zeros(())),
        "Replay.label must return how much of each class a round has, a vector such as jax.nn.one",
    ),
]


@pytest.mark.parametrize(("make", "message"), COMPLAINTS)
def test_complaints(make, message):
    with pytest.raises(ValueError, match=message):
        make()
