"""What the base class does for every algorithm: one of one's own, its guard, its checks."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import obax
from obax import hypergradient as hg
from obax.algorithms import Algorithm, Move, State
from obax.algorithms.arguments import StepSize
from obax.round_buffer import RingBuffer

PROBLEM = obax.Problem(
    outer=lambda x, y, round: 0.5 * (y - round) ** 2,
    inner=lambda x, y, round: 0.5 * (y - x) ** 2,
)


class MineState(State):
    loudest: jax.Array


class Mine(Algorithm):
    """One step of y, one of x; remembers the last two hypergradients, and 1 / round."""

    outer_step_size: StepSize
    inner_step_size: StepSize
    field: str = eqx.field(default="loudest", static=True)

    def remember(self, start):
        past = RingBuffer.like(start.outer_var, 2)
        return MineState(**vars(start) | {"past": past}, loudest=jnp.zeros(()))

    def update(self, state, round):
        follower = self.follow(state, round)
        estimate = self.estimate(hg.Dense(), state, follower, round)
        memory = {self.field: jnp.maximum(state.loudest, 1.0 / round)}
        leader = self.lead(state, estimate.value)
        kept = {"memory": memory, "stored": estimate.value}
        return Move(leader, follower, estimate, gradients=1, **kept)


def play(algorithm, rounds):
    state = algorithm.init(0.0, 0.0, jnp.zeros(()))
    return obax.run(algorithm, state, jnp.asarray(rounds), on_rejected="skip")


def test_an_algorithm_of_ones_own_is_its_mathematics():
    state, history = play(Mine(PROBLEM, 0.5, 0.5), [1.0, 2.0, 4.0])
    # y <- y + (x - y) / 2, h = y - r, x <- x - h / 2.
    x, y, heard = 0.0, 0.0, []
    for r in (1.0, 2.0, 4.0):
        y += 0.5 * (x - y)
        heard.append(y - r)
        x -= 0.5 * heard[-1]
    np.testing.assert_allclose([state.outer_var, state.inner_var], [x, y])
    np.testing.assert_allclose(history.hypergradient_norm, np.abs(heard))
    assert history.gradients.tolist() == [2, 2, 2]
    assert float(state.loudest) == 1.0
    # Round 3 goes into slot 0.
    np.testing.assert_allclose(state.past.rounds, [heard[2], heard[1]])


def test_a_memory_that_would_not_be_finite_is_guarded_too():
    """x, y and the direction of a round 0 are finite, 1 / round is not."""
    state, history = play(Mine(PROBLEM, 0.5, 0.5), [1.0, 0.0, 2.0])
    without, _ = play(Mine(PROBLEM, 0.5, 0.5), [1.0, 2.0])
    assert history.accepted.tolist() == [True, False, True]
    jax.tree.map(np.testing.assert_array_equal, state, without)


def test_a_memory_that_the_state_does_not_have_is_an_error():
    with pytest.raises(AttributeError, match="quietest"):
        play(Mine(PROBLEM, 0.5, 0.5, "quietest"), [1.0])


@pytest.mark.parametrize("kind", [Mine, obax.FSOBO, obax.OBBO, obax.ITD, obax.AutoBalance])
def test_a_follower_is_needed_unless_the_class_says_otherwise(kind):
    alone = obax.Problem(lambda x, y, round: x)
    more = {"capacity": 4} if kind in (obax.ITD, obax.AutoBalance) else {}
    with pytest.raises(ValueError, match=rf"must have a follower for {kind.__name__}, but problem"):
        kind(alone, 0.5, 0.5, **more)


# --- schedules ------------------------------------------------------------------------------------

LATE = [
    (
        {"outer_step_size": lambda t: 0.1 - 0.001 * t},
        r"outer_step_size .*>= 0, but got .*-9.9.* at t = 10000",
    ),
    (
        {"inner_step_size": lambda t: jnp.log(5.0 - t)},
        r"inner_step_size must be finite.*nan.* at t = 10\b",
    ),
    (
        {"outer_step_size": lambda t: 1e34 * t**1.0},
        r"outer_step_size must be finite.* at t = 1000000\b",
    ),
    ({"inner_steps": lambda t: 5 - t // 2}, r"inner_steps must be .* >= 1, but got 0 at t = 10\b"),
]


@pytest.mark.parametrize(("arguments", "message"), LATE)
def test_a_schedule_that_goes_wrong_late_is_an_error_at_once(arguments, message):
    given = {"outer_step_size": 0.1, "inner_step_size": 0.1} | arguments
    single = jax.numpy_dtype_promotion("standard"), jax.enable_x64(False)
    with single[0], single[1], pytest.raises(ValueError, match=message):
        obax.OAGD(PROBLEM, **given)


def test_schedules_that_stay_right_are_taken():
    steps = [lambda t: 0.1 / jnp.sqrt(t), optax.linear_schedule(0.1, 0.0, 50), lambda t: 0.5**t]
    for step in steps:
        algorithm = obax.FSOBO(PROBLEM, step, 0.1, step)
        assert algorithm.dual.step_size is step
    assert obax.OAGD(PROBLEM, 0.1, 0.1, growing).inner_steps is growing


def growing(t):
    return t * t


def test_a_traced_number_in_a_schedule_is_let_through():
    def last(scale):
        algorithm = obax.OAGD(PROBLEM, lambda t: scale / t.astype(float), 0.5, lambda t: t)
        return play(algorithm, [1.0, 1.0])[0].outer_var

    swept = jax.vmap(last)(jnp.array([0.1, 0.2]))
    np.testing.assert_allclose(swept, [last(0.1), last(0.2)])
