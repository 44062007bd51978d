"""Race: who plays, what it may lose, what it costs, and when dropped copies come back."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import obax
from obax.algorithms import race as module

DISCOUNT = 0.95


def drift(rounds, change=None):
    """Return a stream of targets that jump by ten in round `change`."""
    target = np.where(np.arange(rounds) < (change or rounds), 1.0, 11.0)
    return jnp.asarray(target + 0.1 * np.random.default_rng(0).standard_normal(rounds))


PROBLEM = obax.Problem(
    outer=lambda x, y, r: 0.5 * (y - r) ** 2 + 0.1,
    inner=lambda x, y, r: 0.5 * (y - x) ** 2,
)


@pytest.fixture(scope="module")
def played():
    """A race of 400 rounds with a change, its states and its records, round by round."""
    race = obax.Race(obax.OAGD(PROBLEM), trial=20)
    state, states, infos = race.init(0.0, 0.0, jnp.zeros(())), [], []
    for target in drift(400, 200):
        states.append(jax.device_get(state))
        state, info = race.step(state, target)
        infos.append(jax.device_get(info))
    return [*states, jax.device_get(state)], infos


def losses(states, infos):
    """Return the loss of each copy in each round; NaN where it did not learn."""
    targets, table = drift(400, 200), []
    for state, target in zip(states, targets, strict=False):
        y = state.copies.inner_var
        loss = 0.5 * (y - float(target)) ** 2 + 0.1
        learns = np.full(len(y), bool(state.trials.left > 0))
        learns[state.kept] = True
        table.append(np.where(learns, loss, np.nan))
    return np.array(table)


def test_the_copy_with_the_least_score_plays(played):
    states, infos = played
    table = losses(states, infos)
    for t, (state, after) in enumerate(itertools.pairwise(states)):
        scores = DISCOUNT * np.asarray(state.scores) + np.nan_to_num(table[t], nan=np.inf)
        assert int(after.playing) == int(np.argmin(scores))
        assert float(after.outer_var) == float(after.copies.outer_var[after.playing])
        assert infos[t].played_value == pytest.approx(table[t][state.playing])


def excess(states, infos):
    """Return how much more the race has lost than it may have, over all stretches between trials
    and all copies that learned in all of their rounds."""
    table, suffered = losses(states, infos), np.array([float(i.played_value) for i in infos])
    starts = [t for t in range(len(infos)) if t == 0 or begins(states, t)]
    found = []
    for begin, end in zip(starts, [*starts[1:], len(infos)], strict=True):
        for stop in range(begin + 1, end + 1):
            cost = float(states[stop].switch_cost - states[begin].switch_cost)
            for copy in np.flatnonzero(~np.isnan(table[begin:stop]).any(axis=0)):
                margin = suffered[begin:stop].sum() - table[begin:stop, copy].sum() - cost
                found.append(margin)
    return np.array(found)


def begins(states, t):
    return bool(states[t].trials.left > 0) and not bool(states[t - 1].trials.left > 0)


def test_its_loss_is_at_most_that_of_every_copy_and_the_switch_cost(played):
    margins = excess(*played)
    assert len(margins) > 400 and margins.max() <= 1e-9
    # It is not met by a wide margin everywhere: with every copy alone it is an equality.
    assert margins.max() > -1e-3


def test_a_race_that_plays_the_worst_copy_breaks_the_bound(monkeypatch):
    """A mutant."""
    monkeypatch.setattr(module.jnp, "argmin", jnp.argmax)
    race = obax.Race(obax.OAGD(PROBLEM), trial=20, discount=0.94)
    state, states, infos = race.init(0.0, 0.0, jnp.zeros(())), [], []
    with jax.disable_jit(False):
        step = jax.jit(lambda s, r: race.step(s, r))
        for target in drift(400)[:60]:
            states.append(jax.device_get(state))
            state, info = step(state, target)
            infos.append(jax.device_get(info))
    states.append(jax.device_get(state))
    assert excess(states, infos).max() > 0.01


def test_most_rounds_have_two_copies():
    race = obax.Race(obax.OAGD(PROBLEM))
    state = race.init(0.0, 0.0, jnp.zeros(()))
    noise = np.random.default_rng(1).exponential(size=3000) ** 3
    state, _ = obax.run(race, state, jnp.asarray(noise))
    share = int(state.trials.rounds) / 3000
    assert 2 + 6 * share <= 2.5 and share <= 1 / module.SHARE + 80 / 3000


def test_a_change_wakes_dropped_copies(played):
    states, _ = played
    began = [t for t in range(1, 400) if begins(states, t)]
    assert any(200 <= t <= 210 for t in began)


def test_steps_grow_where_the_longest_win():
    far = jnp.full(200, 1e4)
    race = obax.Race(obax.OAGD(PROBLEM))
    state = race.init(0.0, 0.0, jnp.zeros(()))
    before = float(jnp.max(state.scales))
    state, _ = obax.run(race, state, far)
    assert float(jnp.max(state.scales)) >= 10 * before


def test_a_copy_that_diverges_does_not_play():
    problem = obax.Problem(lambda x, y, r: jnp.exp(x**2 - r))
    race = obax.Race(obax.OGD(problem), outer_scales=(1e-2, 1e3), trial=5)
    state = race.init(1.0, None, jnp.zeros(()))
    state, history = obax.run(race, state, jnp.ones(50))
    assert history.rejected == 0 and np.all(np.isfinite(history.played_value))
    assert int(state.playing) == 0


def test_what_does_not_fit_is_said():
    with pytest.raises(ValueError, match="trial must be an integer >= 1"):
        obax.Race(obax.OAGD(PROBLEM), trial=0)
    with pytest.raises(ValueError, match=r"discount must be in \[0, 1\)"):
        obax.Race(obax.OAGD(PROBLEM), discount=1.0)
