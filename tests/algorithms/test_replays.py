"""OAGD with a replay window, against a reservoir of plain lists."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from test_oagd import D2, PROBLEM, WINDOWS, X1, Y1, assert_plays, np_oagd
from worked import positive

import obax
from obax import hypergradient as hg

pytestmark = pytest.mark.usefixtures("quick_compilation")

RNG = np.random.default_rng(5)
T, CAPACITY, SEED = 9, 4, 11
ROUNDS = [
    {
        "A": positive(RNG, D2),
        "B": RNG.standard_normal((D2, 2)),
        "c": RNG.standard_normal(D2),
        "d": RNG.standard_normal(D2),
        "e": RNG.standard_normal(2),
    }
    for _ in range(T)
]
STACKED = jax.tree.map(lambda *leaves: jnp.stack(leaves), *ROUNDS)


def looked_at(w):
    """For each round the places of the rounds of its window, newest first, by a list of slots."""
    slots, seen = [None] * (CAPACITY - 1), {}
    for t in range(1, T + 1):
        key = jax.random.fold_in(jax.random.key(SEED), t)
        luck = np.asarray(jax.random.gumbel(jax.random.fold_in(key, 0), (len(slots),), jnp.float32))
        full = [slot for slot, held in enumerate(slots) if held is not None]
        drawn = sorted(full, key=lambda slot: -luck[slot])[: w - 1]
        seen[t] = [t - 1, *sorted((slots[slot] for slot in drawn), reverse=True)]
        place = int(jax.random.randint(jax.random.fold_in(key, 1), (), 0, t, jnp.int32))
        if None in slots:
            place = slots.index(None)
        if place < len(slots):
            slots[place] = t - 1
    return seen


def replaying(w, decay=1.0, **options):
    return obax.Window(w, decay, replay=obax.Replay(CAPACITY, seed=SEED), **options)


def test_the_plain_reservoir_looks_back_beyond_the_window():
    seen = looked_at(2)
    assert max(t - 1 - min(places) for t, places in seen.items()) > 3


@pytest.mark.parametrize(
    "name", [name for name, it in WINDOWS.items() if it.get("window") in (2, 3)]
)
def test_algorithm_1_with_drawn_terms(name):
    options = dict(WINDOWS[name])
    w, decay = options.pop("window"), options.pop("decay", 1.0)
    algorithm = obax.OAGD(PROBLEM, 0.1, 0.2, 2, replaying(w, decay, **options), hg.Dense())
    order = looked_at(w).get
    expected = np_oagd(**WINDOWS[name], order=order, rounds=ROUNDS)
    _, info = assert_plays(algorithm, expected, ROUNDS)
    assert int(info.window_terms) == w


class Remembers(hg.Dense):
    """An estimator that carries the `A` of the system it solved last, one entry of it."""

    def init(self, inner_var):
        return jnp.zeros(())

    def __call__(self, inner, x, y, gradient, carry, **kept):
        estimate = super().__call__(inner, x, y, gradient, None, **kept)
        own = jax.hessian(inner, 1)(x, y)[0, 0]
        return estimate._replace(
            value=jax.tree.map(lambda v: 0 * v + carry, estimate.value), carry=own
        )


def test_what_an_estimator_carries_follows_the_rounds():
    problem = obax.Problem(PROBLEM.outer, PROBLEM.inner)
    algorithm = obax.OAGD(problem, 1e-9, 0.2, 2, replaying(3, normalise="seen"), Remembers())
    _, history = obax.run(algorithm, algorithm.init(X1, Y1, ROUNDS[0]), STACKED)
    order, entered = looked_at(3), {}
    for t in range(2, T + 1):
        # A drawn round starts from its own; the current one from that of the newest that is held.
        starts = [ROUNDS[s]["A"][0, 0] for s in order[t][1:]]
        mean = np.asarray(history.hypergradient_norm[t - 1]) / np.sqrt(2) * (len(starts) + 1)
        entered[t] = abs(mean) - abs(sum(starts))
        assert any(np.isclose(entered[t], r["A"][0, 0]) for r in ROUNDS[: t - 1])


def test_a_sweep_over_how_much_is_remembered():
    settings = [
        obax.OAGD(PROBLEM, 0.1, 0.2, 1, obax.Window(2, replay=obax.Replay(3, recency=m)))
        for m in (3, 1000)
    ]
    state = settings[0].init(X1, Y1, ROUNDS[0])
    _, history = obax.sweep(settings, state, STACKED)
    assert not np.array_equal(history.outer_var[0], history.outer_var[1])
    for one, setting in zip(history, settings, strict=True):
        _, alone = obax.run(setting, state, STACKED)
        np.testing.assert_allclose(one.outer_var, alone.outer_var, rtol=1e-12)


def test_classes_and_cuts_in_a_run():
    rounds = STACKED | {"kind": jnp.arange(T) % 3, "reset": jnp.arange(T) == 6}
    replay = obax.Replay(7, label=lambda round: jax.nn.one_hot(round["kind"], 3))
    window = obax.Window(4, follower="average", normalise="seen", cut="reset", replay=replay)
    algorithm = obax.OAGD(PROBLEM, 0.1, 0.2, 1, window)
    state = algorithm.init(X1, Y1, jax.tree.map(lambda leaf: leaf[0], rounds))
    state, history = obax.run(algorithm, state, rounds)
    assert history.window_terms.tolist() == [1, 2, 3, 4, 4, 4, 1, 2, 3]
    assert history.cut_terms.tolist() == [0] * 6 + [6] + [0] * 2
    assert int(state.past.offered) == 3


def test_who_cannot_replay_says_so():
    with pytest.raises(ValueError, match=r"window.replay must be left out for OBBO, which stores"):
        obax.OBBO(PROBLEM, 0.1, 0.1, window=replaying(2))
    with pytest.raises(ValueError, match=r"window.replay must be left out for SOBOW, which stores"):
        obax.SOBOW(PROBLEM, 0.1, 0.1, replaying(2))
