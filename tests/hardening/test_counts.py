"""Counts that come to the end of 32 bits."""

import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest

import obax
from obax.algorithms import base


def windowed(size):
    problem = obax.Problem(
        outer=lambda x, y, round: 0.5 * jnp.sum((y - round) ** 2),
        inner=lambda x, y, round: 0.5 * jnp.sum((y - x) ** 2),
    )
    algorithm = obax.OAGD(problem, 0.1, 0.2, window=obax.Window(size, decay=0.5))
    rounds = jnp.asarray(np.random.default_rng(0).normal(size=(40, 2)))
    state = algorithm.init(jnp.zeros(2), jnp.zeros(2), rounds[0])
    state, _ = obax.run(algorithm, state, rounds[:9])
    return algorithm, state, rounds[9:]


def late(state, before):
    """The same state with t in the same slot of its buffer, so many rounds before the end."""
    t = base.LAST - before
    t -= (t - int(state.t)) % state.past.slots
    return dataclasses.replace(state, t=jnp.asarray(t, jnp.int32))


def check(size):
    algorithm, state, rounds = windowed(size)
    _, early = obax.run(algorithm, state, rounds)
    end, history = obax.run(algorithm, late(state, 10), rounds)
    np.testing.assert_array_equal(history.outer_var, early.outer_var)
    assert np.all(np.asarray(history.t) > 2**30) and int(end.t) > 2**30
    assert np.asarray(history.accepted).all()


def test_a_window_goes_on_beyond_32_bits():
    check(4)


def test_the_test_sees_a_count_that_wraps(monkeypatch):
    monkeypatch.setattr(base, "_next", lambda state: state.t + 1)
    with pytest.raises(AssertionError):
        check(6)  # another size, which is not compiled yet
