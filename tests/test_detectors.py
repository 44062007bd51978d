"""Detectors of change: false alarms and delays as they are promised, simulated; and mutants."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from obax import detectors
from obax.detectors import EACH, LEVELS, NEVER, ScaleChange

RUNS, ROUNDS, PIECE = 100, 1500, 100


@eqx.filter_jit
def watch(detector, memory, losses):
    """Many runs at once, losses [rounds, runs]."""
    return jax.lax.scan(jax.vmap(detector.observe), memory, losses)


def kept(losses, detector=None):
    """`kept` of every round; in pieces of one shape, which is compiled once."""
    detector = ScaleChange() if detector is None else detector
    rounds, runs = losses.shape
    padded = np.pad(losses, ((0, -rounds % PIECE), (0, RUNS - runs)), mode="edge")
    every = lambda leaf: jnp.broadcast_to(leaf, (RUNS, *leaf.shape))  # noqa: E731
    memory, found = jax.tree.map(every, detector.init()), []
    for piece in jnp.asarray(padded, float).reshape(-1, PIECE, RUNS):
        memory, answers = watch(detector, memory, piece)
        found.append(answers)
    return np.concatenate(found)[:rounds, :runs]


def squared(*shape, seed=0, samples=1):
    """Mean squared errors of Gaussian targets."""
    rng = np.random.default_rng(seed)
    return np.mean(rng.standard_normal((*shape, samples)) ** 2, axis=-1) / 2


def alarms(found):
    """Per round."""
    return np.mean(found < NEVER)


def test_blocks_hold_what_came():
    """The rounds by hand: sizes are powers of two, four of each at most, newest first."""
    rng = np.random.default_rng(0)
    memory, losses = ScaleChange().init(), rng.uniform(0.5, 2.0, 300)
    push = jax.jit(lambda memory, loss: memory.push(loss))
    for t, loss in enumerate(losses, start=1):
        memory = push(memory, loss)
        sizes = np.asarray(memory.rounds).astype(int).ravel()
        assert sizes.sum() == t
        blocks, end = sizes[sizes > 0], t
        assert np.all(np.diff(blocks) >= 0)
        assert np.bincount(np.log2(blocks).astype(int)).max() <= EACH
        if t % 60:
            continue
        for size, top, rest in zip(*(np.asarray(field).ravel() for field in memory), strict=True):
            if size:
                mine = losses[end - int(size) : end]
                np.testing.assert_allclose([top, rest], [mine.max(), mine.sum() - mine.max()])
                end -= int(size)


def test_memory_does_not_grow_and_forgets_what_is_oldest():
    memory = ScaleChange().init()
    sizes = np.broadcast_to(2.0 ** np.arange(LEVELS)[:, None], (LEVELS, EACH))
    full = memory._replace(rounds=jnp.asarray(sizes))
    after = full.push(jnp.asarray(1.0))
    assert jax.tree.map(jnp.shape, after) == jax.tree.map(jnp.shape, memory)
    assert 2**LEVELS < float(after.rounds.sum()) < float(full.rounds.sum())


def test_evidence_is_the_likelihood_ratio():
    """By hand at every split: exponential losses, shape 1; the largest since the split left out."""
    rng = np.random.default_rng(1)
    losses = np.concatenate([rng.exponential(1.0, 40), rng.exponential(6.0, 12)])
    found = kept(losses[:, None], ScaleChange(1e-3, shape=1.0))[:, 0]
    (alarm,) = np.flatnonzero(found < NEVER)[:1]

    def evidence(t, split):
        before, since = losses[:split], np.sort(losses[split : t + 1])[:-1]
        both = np.concatenate([before, since])
        ratio = len(before) * np.log(both.mean() / before.mean())
        ratio += len(since) * np.log(both.mean() / since.mean())
        return ratio * (since.mean() > before.mean())

    at_alarm = [evidence(alarm, split) for split in range(1, alarm)]
    split = alarm - found[alarm]
    assert evidence(alarm, split) > np.log(1e3)
    # No split among its blocks was enough a round before; it need not be the best of all.
    assert max(at_alarm) < 1.5 * evidence(alarm, split)
    assert 38 <= split <= 43


@pytest.mark.parametrize(("promised", "samples"), [(1e-2, 1), (1e-3, 1), (1e-2, 4)])
def test_false_alarms_are_near_what_is_promised(promised, samples):
    detector = ScaleChange(promised, shape=samples / 2)
    rate = alarms(kept(squared(ROUNDS, RUNS, samples=samples), detector))
    assert 0.2 * promised < rate < promised
    # In other units, the same.
    if samples == 4:
        scaled = 2.0**20 * squared(ROUNDS, RUNS, samples=samples)
        assert alarms(kept(scaled, detector)) == rate


def test_a_threshold_ten_times_too_low_would_be_seen():
    class Hasty(ScaleChange):
        def observe(self, memory, loss):
            low = ScaleChange(self.false_alarms**0.1, self.shape, self.floor)
            return low.observe(memory, loss)

    assert alarms(kept(squared(300, RUNS), Hasty(1e-3))) > 10 * 1e-3


@pytest.mark.parametrize(("factor", "late"), [(4, 40), (10, 14), (1000, 3)])
def test_a_rise_is_found_soon_and_where_it_was(factor, late):
    losses = squared(600, RUNS, seed=factor)
    losses[400:] *= factor
    found = kept(losses)
    after = np.flatnonzero(np.any(found[400:] < NEVER, axis=0))
    assert len(after) > 0.98 * RUNS
    first = 400 + np.argmax(found[400:, after] < NEVER, axis=0)
    assert np.median(first) - 400 <= late
    split = first - found[first, after]
    assert np.median(np.abs(split - 400)) <= 1
    assert np.quantile(np.abs(split - 400), 0.9) <= late


def test_losses_that_fall_are_no_change():
    """A follower that learns: from 100 to 1 slowly, at once, and to nothing."""
    slow = 1 + 99 / np.arange(1, ROUNDS + 1)[:, None]
    at_once = np.where(np.arange(ROUNDS) < 700, 100.0, 1.0)[:, None]
    vanishing = 0.97 ** np.arange(ROUNDS)[:, None]
    for mean in (slow, at_once, vanishing):
        assert alarms(kept(mean * squared(ROUNDS, RUNS))) < 1e-4


def test_a_two_sided_detector_would_cut_while_the_follower_learns():
    class TwoSided(ScaleChange):
        """Cuts wherever the detector forgets."""

        def observe(self, memory, loss):
            after, _ = super().observe(memory, loss)
            left = jnp.sum(after.rounds)
            forgot = left < jnp.sum(memory.rounds) + 1
            return after, jnp.where(forgot, left.astype(jnp.int32) - 1, NEVER)

    losses = np.where(np.arange(600) < 400, 100.0, 1.0)[:, None] * squared(600, RUNS)
    assert np.all(np.any(kept(losses, TwoSided())[400:430] < NEVER, axis=0))
    assert alarms(kept(losses)[400:430]) == 0


def test_a_rise_is_held_against_what_the_follower_has_come_to():
    """After a fall from 100 to 1, a rise to 10 is one: the detector has forgotten the 100."""
    mean = np.select([np.arange(900) < 400, np.arange(900) < 800], [100.0, 1.0], 10.0)
    found = kept(mean[:, None] * squared(900, RUNS))
    assert np.mean(np.any(found[800:830] < NEVER, axis=0)) > 0.95
    assert alarms(found[:800]) < 2e-4


@pytest.mark.parametrize("outlier", [1e3, 1e9, 1e30])
def test_one_outlier_is_no_change_and_hides_none(outlier):
    losses = squared(800, 50, seed=3)
    losses[300] *= outlier
    losses[600:] *= 100
    found = kept(losses)
    assert not np.any(found[298:310] < NEVER)
    assert np.all(np.any(found[600:610] < NEVER, axis=0))
    # Two of them are one.
    losses[300:302] = outlier
    assert np.all(kept(losses)[301] == 1)


def test_heavy_tails_are_what_is_said_of_them():
    """Squared errors of Student's t with five degrees of freedom: more alarms than promised, not
    ten times as many; with a smaller shape fewer. Smoother losses: hardly any."""
    rng = np.random.default_rng(0)
    tails = rng.standard_t(5, (ROUNDS, RUNS)) ** 2
    assert alarms(kept(tails, ScaleChange(1e-3))) < 3e-3
    assert alarms(kept(tails, ScaleChange(1e-3, shape=0.25))) < 1e-4
    assert alarms(kept(rng.exponential(size=(ROUNDS, RUNS)), ScaleChange(1e-3))) < 1e-4


def test_losses_of_zero_and_below():
    rng = np.random.default_rng(0)
    # Rounding noise below the floor says nothing, whatever it does; nor do zeros.
    noise = 1e-15 * rng.exponential(size=(300, 5)) * np.where(np.arange(300) < 150, 1, 100)[:, None]
    for losses in (noise, np.zeros((300, 5)), -rng.exponential(size=(300, 5))):
        assert np.all(kept(losses) == NEVER)
    # A loss after nothing but zeros is a change, once two have come.
    losses = np.zeros((100, 1))
    losses[80:] = 1.0
    assert np.flatnonzero(kept(losses) < NEVER).tolist() == [81]
    assert kept(losses)[81, 0] == 1
    assert np.all(kept(losses, ScaleChange(floor=2.0)) == NEVER)


def test_single_precision_and_large_numbers():
    losses = squared(700, 50, seed=2)
    losses[500:] *= 30
    found = kept(losses)
    with jax.enable_x64(False):
        single = kept(losses)
    assert np.mean(found == single) > 0.999
    # A loss of another dtype than the memory's; an infinite one does not spoil the memory.
    observe = eqx.filter_jit(ScaleChange().observe)
    memory, answer = observe(ScaleChange().init(), jnp.asarray(1.0, jnp.float32))
    assert answer.dtype == jnp.int32 and int(answer) == NEVER
    memory, _ = observe(memory, jnp.asarray(jnp.inf))
    assert all(bool(jnp.all(jnp.isfinite(field))) for field in memory)


def test_as_quick_as_adwin_of_river():
    """On a rise of losses that are bounded, as River's needs them to be."""
    drift = pytest.importorskip("river.drift")
    losses = np.clip(0.02 * squared(1500, 10, seed=5), 0, 1)
    losses[1000:] = np.clip(10 * losses[1000:], 0, 1)
    theirs = []
    for run in losses.T:
        adwin, found = drift.ADWIN(), []
        for t, loss in enumerate(run):
            adwin.update(loss)
            found += [t] * (adwin.drift_detected and t >= 1000)
        theirs.append(found[0] - 1000)
    ours = np.argmax(kept(losses)[1000:] < NEVER, axis=0)
    assert np.median(ours) < np.median(theirs)


def test_arguments():
    assert repr(ScaleChange()) == "ScaleChange()"
    assert repr(ScaleChange(1e-3, shape=2)) == "ScaleChange(false_alarms=0.001, shape=2.0)"
    for name, value, expected in (
        ("false_alarms", 1.0, r"must be in \(0, 1\)"),
        ("false_alarms", 0.0, "must be a number > 0"),
        ("shape", -1.0, "must be a number > 0"),
        ("floor", "low", "must be a number"),
    ):
        with pytest.raises(ValueError, match=f"{name} {expected}"):
            ScaleChange(**{name: value})
    with pytest.raises(TypeError):
        detectors.Detector()
