"""WOBO against rounds worked in NumPy, and against OAGD where the two are one."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import worked
from worked import PROBLEM, ROUNDS, X1, Y1, close, plays, side_by_side

import obax
from obax import hypergradient as hg

pytestmark = pytest.mark.usefixtures("quick_compilation")
ALPHA, BETA, K, W = 0.1, 0.15, 2, 3


@pytest.mark.parametrize(("tolerance", "most"), [(1.8, 40), (1e-9, 3), (1e-9, 1)])
def test_rounds_worked_in_numpy(tolerance, most):
    window = obax.Window(W, decay=0.8, normalise="seen")
    algorithm = obax.WOBO(PROBLEM, ALPHA, BETA, K, window, tolerance, most, hg.Dense())
    x, followers, taken = X1, {}, []
    for t, (state, info) in enumerate(plays(algorithm)):
        # That of the new round starts from the last one's.
        followers[t] = followers.get(t - 1, Y1)
        ages = range(min(t + 1, W))
        weights = 0.8 ** np.array(ages)
        looks, near = 0, False
        while looks < most and not near:
            for i in ages:
                for _ in range(K):
                    slope = worked.g_y(x, followers[t - i], ROUNDS[t - i])
                    followers[t - i] = followers[t - i] - BETA * slope
            terms = [worked.hypergradient(x, followers[t - i], ROUNDS[t - i]) for i in ages]
            h = weights @ terms / weights.sum()
            near = np.linalg.norm(x - worked.project(x - h)) <= tolerance / W
            if not near:
                x = worked.project(x - ALPHA * h)
            looks += 1
        taken.append(looks)
        close(info.hypergradient_norm, np.linalg.norm(h))
        close(state.outer_var, x)
        close(state.inner_var, followers[t])
        asked = [int(info.gradients), int(info.hvps), int(info.cross_products)]
        assert asked == [looks * len(ages) * n for n in (K + 1, worked.D2, 1)]
        # Those of past rounds go on as well.
        for i in range(min(t + 1, W - 1)):
            close(state.followers[0][(t - i) % (W - 1)], followers[t - i])
    # Rounds that stop at the tolerance, and rounds that stop at the bound.
    assert 1 < max(taken) < most if most == 40 else taken == [most] * len(ROUNDS)
    assert not np.allclose(x, X1)


def anew(problem):
    return dataclasses.replace(problem, inner_start=lambda x: jnp.full(worked.D2, 0.3))


def test_with_one_loop_and_followers_that_start_anew_it_is_oagd_with_each():
    window = obax.Window(W, decay=0.8)
    mine = obax.WOBO(anew(PROBLEM), ALPHA, BETA, K, window, 1e-12, 1)
    each = obax.OAGD(anew(PROBLEM), ALPHA, BETA, K, obax.Window(W, decay=0.8, follower="each"))
    for (left, a), (right, b) in zip(plays(mine), plays(each), strict=True):
        close(left.outer_var, right.outer_var)
        close(left.inner_var, right.inner_var)
        for name in ("gradients", "hvps", "cross_products", "outer_value", "solver_residual"):
            close(getattr(a, name), getattr(b, name), rtol=1e-8)


def test_with_one_round_and_one_loop_it_is_oagd():
    mine = obax.WOBO(PROBLEM, ALPHA, BETA, K, tolerance=1e-12, max_outer_steps=1)
    for (left, a), (right, b) in zip(
        plays(mine), plays(obax.OAGD(PROBLEM, ALPHA, BETA, K)), strict=True
    ):
        close(left.outer_var, right.outer_var)
        close(left.inner_var, right.inner_var)
        assert int(a.gradients) == int(b.gradients)


def test_more_steps_within_a_round_keep_the_window_stationary():
    """What the tolerance promises: |h| <= epsilon / w at the end of every round."""
    stream = obax.problems.quadratic(20, 2, 3, drift=0.05, seed=1)
    window = obax.Window(5, normalise="seen")
    algorithm = obax.WOBO(stream.problem, 0.2, 0.3, 5, window, 0.05, 200)
    state = algorithm.init(stream.outer_var, stream.inner_var, stream.example_round)
    _, history = obax.run(algorithm, state, stream.rounds)
    assert np.all(np.asarray(history.hypergradient_norm) <= 0.05 / 5)
    once = dataclasses.replace(algorithm, max_outer_steps=1)
    _, single = obax.run(once, state, stream.rounds)
    # Mutant of the loop: one step is not enough for that.
    assert np.mean(np.asarray(single.hypergradient_norm) > 0.05 / 5) > 0.5


def test_a_leader_held_by_its_box_is_near():
    """In a domain the length of a projected step counts, not the gradient."""
    problem = obax.Problem(
        lambda x, y, r: 0.5 * (y - r) ** 2, lambda x, y, r: 0.5 * (y - x) ** 2, obax.Box(-1.0, 1.0)
    )
    algorithm = obax.WOBO(problem, 0.5, 0.5, max_outer_steps=50)
    state, info = algorithm.step(algorithm.init(1.0, 1.0, jnp.zeros(())), jnp.asarray(3.0))
    assert (float(state.outer_var), int(info.gradients)) == (1.0, 2)


def test_loops_of_unequal_length_run_side_by_side():
    make = lambda p, e: obax.WOBO(p, 0.1, 0.3, 1, obax.Window(2), e, 7)  # noqa: E731
    easy, hard = side_by_side(make, 5.0, 1e-6)
    assert easy.sum() < hard.sum()


def test_a_slot_that_no_round_has_filled_does_no_harm():
    """log 0 in an empty slot is not a number; the followers of such slots stay as they were."""
    problem = obax.Problem(
        lambda x, y, r: 0.5 * (y - jnp.log(r)) ** 2, lambda x, y, r: 0.5 * (y - x * r) ** 2 / r
    )
    algorithm = obax.WOBO(problem, 0.1, 0.3, 2, obax.Window(4))
    state = algorithm.init(0.5, 0.0, jnp.ones(()))
    for value in (1.0, 2.0, 3.0):
        state, info = algorithm.step(state, jnp.asarray(value))
        assert bool(info.accepted)
        assert all(np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves(state.followers))


def test_what_does_not_fit_is_said():
    with pytest.raises(ValueError, match="tolerance must be a number > 0"):
        obax.WOBO(PROBLEM, 0.1, 0.1, tolerance=0.0)
    with pytest.raises(ValueError, match="max_outer_steps must be an integer >= 1"):
        obax.WOBO(PROBLEM, 0.1, 0.1, max_outer_steps=0)
    for wrong in ({"curvature": "current"}, {"follower": "window"}, {"follower": "average"}):
        with pytest.raises(
            ValueError, match=r"window\.follower and window\.curvature must be left"
        ):
            obax.WOBO(PROBLEM, 0.1, 0.1, window=obax.Window(2, **wrong))
