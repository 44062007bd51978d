"""AutoBalance against rounds worked in numpy, and the outer level's warm-up."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import obax
from obax import hypergradient as hg
from obax.round_buffer import random_order

A = np.array([[2.0, 0.5], [0.5, 1.0]])
TARGETS = np.array([[1.0, -1.0], [0.5, 2.0], [-2.0, 0.3], [0.7, 0.7], [1.5, -0.2]])


def inner(x, y, round):
    """Its Hessian is A times the round's scale, its cross derivative -identity."""
    scale = 1.0 + 0.1 * round[0] ** 2
    return 0.5 * scale * y @ jnp.asarray(A) @ y - x @ y + 0.1 * round @ y


def outer(x, y, round):
    return 0.5 * jnp.sum((y - round) ** 2) + 0.05 * jnp.sum(x**2)


PROBLEM = obax.Problem(outer, inner, obax.Box(-0.15, 2.0))
ALPHA, BETA = 0.3, 0.2


def algorithm(**options):
    options = {"capacity": 8, "outer_every": 2, "outer_rounds": 2, "seed": 3} | options
    return obax.AutoBalance(PROBLEM, ALPHA, BETA, hypergradient=hg.Dense(), **options)


def by_hand(rounds, orders, start=1):
    """What the docstring says, in numpy."""
    x, y, steps, trajectory = np.zeros(2), np.zeros(2), 0, []
    for t, order in enumerate(orders, 1):
        for k, s in enumerate(order):
            a = rounds[s]
            y = y - BETA * ((1 + 0.1 * a[0] ** 2) * A @ y - x + 0.1 * a)
            steps += 1
            if steps % 2 == 0 and t >= start:
                last = [rounds[order[(k - i) % len(order)]] for i in range(2)]
                hessian = np.mean([(1 + 0.1 * b[0] ** 2) * A for b in last], axis=0)
                v = np.linalg.solve(hessian, np.mean([y - b for b in last], axis=0))
                x = np.clip(x - ALPHA * (0.1 * x + v), -0.15, 2.0)
        trajectory.append((x, y))
    return trajectory


def orders_of(algorithm, horizon):
    """Round numbers in the order in which each round visits them, by way of the slots."""
    found = []
    for t in range(1, horizon + 1):
        there = jnp.arange(algorithm.capacity - 1) < t - 1
        slots = np.asarray(random_order(algorithm.seed, jnp.asarray(t), there))[:t]
        found.append([t - 1 if slot == algorithm.capacity - 1 else int(slot) for slot in slots])
    return found


@pytest.mark.parametrize("start", [1, 3])
def test_five_rounds_by_hand(start):
    one = algorithm(outer_when=lambda t: t >= start)
    orders = orders_of(one, 5)
    assert all(sorted(order) == list(range(t)) for t, order in enumerate(orders, 1))
    assert any(order != sorted(order) for order in orders)
    state = one.init(jnp.zeros(2), jnp.zeros(2), TARGETS[0])
    step = jax.jit(lambda state, round: one.step(state, round))
    gradients = hvps = 0
    for target, (x, y) in zip(TARGETS, by_hand(TARGETS, orders, start), strict=True):
        state, info = step(state, target)
        np.testing.assert_allclose(state.outer_var, x, rtol=1e-12)
        np.testing.assert_allclose(state.inner_var, y, rtol=1e-12)
        gradients, hvps = gradients + int(info.gradients), hvps + int(info.cross_products)
    # 15 steps of the follower; the leader moves after every second one, from `start` on.
    led = sum(1 for step in range(2, 16, 2) if step > (start - 1) * start / 2)
    assert gradients == 15 + 2 * led
    assert hvps == 2 * led


def test_forgets_the_oldest_beyond_its_capacity():
    one = algorithm(capacity=3, outer_every=100)
    state = one.init(jnp.zeros(2), jnp.zeros(2), TARGETS[0])
    for target in TARGETS:
        state, _ = one.step(state, jnp.asarray(target))
    kept = {tuple(row) for row in np.asarray(state.past.rounds).tolist()}
    assert kept == {tuple(TARGETS[3]), tuple(TARGETS[4])}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"capacity": 1}, "capacity must be at least 2"),
        ({"capacity": 4, "outer_every": 0}, "outer_every"),
        ({"capacity": 4, "hypergradient": hg.Unrolled()}, "hypergradient must be one that solves"),
        ({"capacity": 4, "outer_when": lambda t: t}, "one bool"),
        ({"capacity": 4, "outer_when": 3}, "outer_when must be a function"),
    ],
)
def test_errors(options, message):
    with pytest.raises(ValueError, match=message):
        obax.AutoBalance(PROBLEM, ALPHA, BETA, **options)


def test_the_leader_of_oagd_waits_for_its_round():
    """Held rounds: x and its optimiser as they were, no hypergradient counted, the follower as in
    OGD; afterwards exactly the OAGD that starts there."""
    options = {"inner_step_size": BETA, "inner_steps": 2, "window": obax.Window(2)}
    waiting = obax.OAGD(PROBLEM, ALPHA, outer_when=lambda t: t >= 3, **options)
    plain = obax.OAGD(PROBLEM, ALPHA, **options)
    single = obax.OGD(PROBLEM, inner_step_size=BETA, inner_steps=2)
    x, y = jnp.full(2, 0.1), jnp.zeros(2)
    state, held = waiting.init(x, y, TARGETS[0]), single.init(x, y, TARGETS[0])
    for target in TARGETS[:2]:
        state, info = waiting.step(state, jnp.asarray(target))
        held, _ = single.step(held, jnp.asarray(target))
        assert (info.gradients, info.hvps, info.cross_products) == (2, 0, 0)
        assert info.hypergradient_norm == 0
        np.testing.assert_array_equal(state.outer_var, x)
        np.testing.assert_allclose(state.inner_var, held.inner_var, rtol=1e-12)
    after, info = waiting.step(state, jnp.asarray(TARGETS[2]))
    expected, wanted = plain.step(state, jnp.asarray(TARGETS[2]))
    np.testing.assert_allclose(after.outer_var, expected.outer_var, rtol=1e-12)
    assert not np.array_equal(after.outer_var, x)
    assert (info.gradients, info.hvps) == (wanted.gradients, wanted.hvps)
