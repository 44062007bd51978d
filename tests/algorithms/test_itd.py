"""ITD against rounds worked in numpy."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest

import obax

ALPHA, BETA, STEPS = 0.4, 0.2, 3
# Of each task: curvature, pull of x, target.
TASKS = np.array([[1.0, 0.5, 2.0], [2.0, -1.0, 1.0], [0.5, 2.0, -1.0], [3.0, 0.3, 0.7]])


def inner(x, y, round):
    return 0.5 * round[0] * (y - round[1] * x) ** 2


def outer(x, y, round):
    return 0.5 * (y - round[2]) ** 2 + 0.1 * x * y


FROM_X = obax.Problem(outer, inner, inner_start=lambda x: x)
GOING_ON = obax.Problem(outer, inner)


def by_hand(rounds, chosen, *, start_at_x=True, first_order=False):
    """What the docstring says: y_K = s^K y_1 + (1 - s^K) b x with s = 1 - beta a."""
    x, y, trajectory = 1.0, 0.0, []
    for t, tasks in enumerate(chosen):
        gradients = []
        for s in tasks:
            a, b, target = rounds[s]
            shrink = (1 - BETA * a) ** STEPS
            start = x if start_at_x else y
            last = shrink * start + (1 - shrink) * b * x
            slope = (shrink if start_at_x else 0.0) + (1 - shrink) * b
            if first_order:
                slope = 1.0 if start_at_x else 0.0
            gradients.append((last - target + 0.1 * x) * slope + 0.1 * last)
            if s == t:
                own = last
        x, y = x - ALPHA * np.mean(gradients), own
        trajectory.append((x, y))
    return trajectory


def play(algorithm, rounds=TASKS):
    state = algorithm.init(1.0, 0.0, rounds[0])
    step = eqx.filter_jit(algorithm.step)
    found = []
    for round in rounds:
        state, info = step(state, round)
        found.append((state, info))
    return found


@pytest.mark.parametrize(
    ("problem", "options"),
    [
        (FROM_X, {}),
        (FROM_X, {"chunk": 3, "rematerialise": True}),
        (FROM_X, {"first_order": True}),
        (GOING_ON, {}),
    ],
)
def test_all_tasks_by_hand(problem, options):
    found = play(obax.ITD(problem, ALPHA, BETA, STEPS, capacity=6, **options))
    expected = by_hand(
        TASKS,
        [range(t + 1) for t in range(4)],
        start_at_x=problem is FROM_X,
        first_order=options.get("first_order", False),
    )
    for t, ((state, info), (x, y)) in enumerate(zip(found, expected, strict=True), 1):
        np.testing.assert_allclose(state.outer_var, x, rtol=1e-12)
        np.testing.assert_allclose(state.inner_var, y, rtol=1e-12)
        assert info.gradients == t * (STEPS + 1)
        assert info.hvps == info.cross_products == (0 if "first_order" in options else t * STEPS)


def chosen_by(algorithm, t):
    return algorithm.chosen(jnp.asarray(t), jnp.arange(algorithm.capacity - 1) < t - 1)


def test_sampled_tasks_by_hand():
    rounds = np.random.default_rng(0).uniform(0.5, 2.0, (7, 3))
    algorithm = obax.ITD(FROM_X, ALPHA, BETA, STEPS, capacity=7, tasks=3, chunk=2, seed=5)
    chosen = []
    for t in range(1, 8):
        order, count = chosen_by(algorithm, t)
        slots = np.asarray(order)[: int(count)]
        chosen.append([t - 1 if slot == 6 else int(slot) for slot in slots])
    for t, tasks in enumerate(chosen, 1):
        assert len(tasks) == len(set(tasks)) == min(t, 3)
        assert tasks[0] == t - 1 and set(tasks) <= set(range(t))
    # Random, and not the same for another seed.
    assert sorted(chosen[6]) != [4, 5, 6] or sorted(chosen[5]) != [3, 4, 5]
    other = obax.ITD(FROM_X, ALPHA, BETA, STEPS, capacity=7, tasks=3, seed=6)
    assert any(
        not np.array_equal(chosen_by(other, t)[0], chosen_by(algorithm, t)[0]) for t in range(4, 8)
    )
    for (state, info), (x, _) in zip(play(algorithm, rounds), by_hand(rounds, chosen), strict=True):
        np.testing.assert_allclose(state.outer_var, x, rtol=1e-12)
        assert info.gradients <= 3 * (STEPS + 1)


def test_forgets_the_oldest_beyond_its_capacity():
    found = play(obax.ITD(FROM_X, ALPHA, BETA, STEPS, capacity=3))
    expected = by_hand(TASKS, [[0], [0, 1], [0, 1, 2], [1, 2, 3]])
    for (state, _), (x, _) in zip(found, expected, strict=True):
        np.testing.assert_allclose(state.outer_var, x, rtol=1e-12)


def test_what_is_prepared_is_differentiated():
    """g and f through x * round[1], computed once."""

    def prepared(x, round):
        return jnp.stack([round[0], round[1] * x, round[2]])

    problem = obax.Problem(
        outer, lambda x, y, round: 0.5 * round[0] * (y - round[1]) ** 2, inner_start=lambda x: x
    )
    ours = play(obax.ITD(problem, ALPHA, BETA, STEPS, capacity=6, prepare=prepared))
    plain = play(obax.ITD(FROM_X, ALPHA, BETA, STEPS, capacity=6))
    for (state, _), (wanted, _) in zip(ours, plain, strict=True):
        np.testing.assert_allclose(state.outer_var, wanted.outer_var, rtol=1e-12)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"capacity": 1}, "capacity must be at least 2"),
        (
            {"capacity": 4, "tasks": "some"},
            "tasks must be one of 'all' or an integer >= 1, but got 'some'",
        ),
        ({"capacity": 4, "tasks": 0}, "tasks must be one of 'all' or an integer >= 1, but got 0"),
        ({"capacity": 4, "inner_steps": 0}, "inner_steps"),
        ({"capacity": 4, "chunk": 0}, "chunk"),
        ({"capacity": 4, "prepare": 3}, "prepare must be a function"),
    ],
)
def test_errors(options, message):
    with pytest.raises(ValueError, match=message):
        obax.ITD(FROM_X, ALPHA, BETA, **options)
