"""Path lengths and variations against numbers worked by hand, and H against brute force.

The game of `test_regrets`: c = 1/2, 2, -1 and b = 1/2, 0, 1, so that x*_t = 1/2, 1, -1, static
x* = 1/2, y*_t(x*_t) = x*_t + b_t = 1, 1, 0 and y*_t(x*) = 1, 1/2, 3/2.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

jax.config.update("jax_enable_x64", True)

from obax import problems, regret, theory  # noqa: E402
from obax.domain import Ball, Box, NonNegative, Simplex, Unconstrained  # noqa: E402
from obax.problem import Problem  # noqa: E402
from obax.window import Window  # noqa: E402

pytestmark = pytest.mark.usefixtures("quick_compilation")

ROUNDS = {"a": jnp.array([1.0, 2.0, 0.0]), "b": jnp.array([0.5, 0.0, 1.0])}
ZERO = jnp.zeros(())
STARTS = {"outer_start": ZERO, "inner_start": ZERO}
GAME = Problem(
    lambda x, y, r: 0.5 * (y - r["a"]) ** 2,
    lambda x, y, r: 0.5 * (y - x - r["b"]) ** 2,
    Box(-1.0, 1.0),
)


BENT = problems.dynamic_regression(horizon=6, stages=2, inner_dim=2)


def close(curve, expected):
    np.testing.assert_allclose(np.asarray(curve), expected, rtol=0, atol=1e-12)


def test_three_rounds():
    one = regret.path_lengths(GAME, ROUNDS, order=1, **STARTS)
    close(one.P, [0.0, 0.5, 2.5])
    close(one.Y, [0.0, 0.0, 1.0])
    close(one.S, [0.0, 0.5, 3.5])
    close(one.Y_bar, [0.0, 0.5, 1.5])
    close(one.H, [0.0, 0.5, 1.5])  # y*_t(x) = x + b_t: |b_{t-1} - b_t| for every x
    assert one.H_exact
    two = regret.path_lengths(
        GAME, ROUNDS, comparators=one.comparators, static=one.static, **STARTS
    )
    close(two.P, [0.0, 0.25, 4.25])
    close(two.Y, [0.0, 0.0, 1.0])
    close(two.S, [0.0, 0.25, 5.25])
    close(two.Y_bar, [0.0, 0.25, 1.25])
    close(two.H, [0.0, 0.25, 1.25])
    assert two.totals["S"] == pytest.approx(5.25)
    assert two.order == 2


def test_without_a_follower():
    problem = Problem(lambda x, y, r: 0.5 * (x - r) ** 2, outer_argmin=lambda r: r)
    lengths = regret.path_lengths(problem, jnp.array([1.0, 3.0, 2.0]))
    close(lengths.P, [0.0, 4.0, 5.0])
    for curve in (lengths.Y, lengths.Y_bar, lengths.H):
        close(curve, [0.0, 0.0, 0.0])
    close(lengths.S, lengths.P)
    single = regret.path_lengths(problem, jnp.array([1.0]))
    assert single.totals == {"P": 0.0, "Y": 0.0, "S": 0.0, "Y_bar": 0.0, "H": 0.0}


def test_the_papers_example():
    # b_t = (-1)^t / sqrt(t). "inner": a = b, so P = 0 and Y_bar = Y; "outer": a = 0, so Y = 0.
    steps = np.abs(np.diff((-1.0) ** np.arange(1, 9) / np.sqrt(np.arange(1, 9))))
    expected = np.concatenate([[0.0], np.cumsum(steps)])
    inner = problems.comparability(8, "inner")
    lengths = regret.path_lengths(inner.problem, inner.rounds, order=1)
    close(lengths.P, np.zeros(8))
    for curve in (lengths.Y, lengths.Y_bar, lengths.H):
        close(curve, expected)
    assert lengths.H_exact
    outer = problems.comparability(8, "outer")
    lengths = regret.path_lengths(outer.problem, outer.rounds, order=1)
    close(lengths.P, expected)
    close(lengths.Y, np.zeros(8))


def test_variations_of_three_rounds():
    # |phi_{t-1} - phi_t| = |c_t - c_{t-1}| |2 x - c_{t-1} - c_t| / 2, largest at x = -1: 27/8, 9/2.
    # The slopes differ by |c_t - c_{t-1}| = 3/2, 3 everywhere.
    found = regret.variations(GAME, ROUNDS, **STARTS)
    close(found.V, [0.0, 3.375, 7.875])
    close(found.G, [0.0, 2.25, 11.25])
    close(found.F, [0.0, 0.5, 0.5])
    close(found.F_static, [0.0, 1.125, 2.25])
    close(found.squared_gradients, [0.0, 1.0, 1.0])


def turning(domain, closed=True):
    """y*_t(x) = B_t x + c_t with slopes that differ from round to round."""
    rng = np.random.default_rng(0)
    rounds = {
        "B": jnp.asarray(rng.normal(size=(5, 2, 3))),
        "c": jnp.asarray(rng.normal(size=(5, 2))),
    }
    problem = Problem(
        lambda x, y, r: 0.5 * jnp.sum(y**2) + 0.5 * jnp.sum(x**2),
        lambda x, y, r: 0.5 * jnp.sum((y - r["B"] @ x - r["c"]) ** 2),
        domain,
        inner_argmin=(lambda x, r: r["B"] @ x + r["c"]) if closed else None,
    )
    starts = {"outer_start": jnp.zeros(3), "inner_start": jnp.zeros(2)}
    return problem, rounds, starts


def brute_force(rounds, points):
    turn, gap = np.diff(rounds["B"], axis=0), np.diff(rounds["c"], axis=0)
    return np.linalg.norm(np.einsum("tij,nj->tni", turn, points) + gap[:, None], axis=2).max(axis=1)


def test_H_is_exact_at_the_corners_of_a_box():
    problem, rounds, starts = turning(Box(-1.0, 2.0), closed=False)
    lengths = regret.path_lengths(problem, rounds, order=1, **starts)
    corners = np.array(np.meshgrid(*[[-1.0, 2.0]] * 3)).reshape(3, -1).T
    close(lengths.H, np.concatenate([[0.0], np.cumsum(brute_force(rounds, corners))]))
    assert lengths.H_exact


@pytest.mark.slow
def test_H_on_other_sets():
    # H does not depend on the comparators: those of the simplex serve all.
    problem, rounds, starts = turning(Simplex(2.0))
    lengths = regret.path_lengths(problem, rounds, order=1, **starts)
    starts |= {"comparators": lengths.comparators, "static": lengths.static}
    close(np.diff(lengths.H), brute_force(rounds, 2 * np.eye(3)))
    assert lengths.H_exact
    for domain in (Unconstrained(), NonNegative()):
        problem, rounds, _ = turning(domain)
        lengths = regret.path_lengths(problem, rounds, **starts)
        assert lengths.H_exact and np.isinf(lengths.H[1:]).all()
    problem, rounds, _ = turning(Ball(1.0))
    lengths = regret.path_lengths(problem, rounds, order=1, **starts)
    sphere = np.random.default_rng(1).normal(size=(20_000, 3))
    highest = brute_force(rounds, sphere / np.linalg.norm(sphere, axis=1, keepdims=True))
    assert not lengths.H_exact
    assert np.all(np.diff(lengths.H) <= 1.001 * highest)
    assert np.all(np.diff(lengths.H) >= 0.95 * highest)  # a random search: near, not at, the top


@pytest.mark.slow
def test_H_of_a_curved_answer_is_an_estimate():
    instance = BENT
    lengths = regret.path_lengths(
        instance.problem, instance.rounds, order=1, outer_start=instance.outer_var
    )
    answers = jax.vmap(
        lambda x: jax.vmap(lambda r: instance.problem.inner_argmin(x, r))(instance.rounds)
    )(jnp.linspace(-8.0, 2.0, 4001)[:, None])
    highest = np.linalg.norm(np.diff(answers, axis=1), axis=2).max(axis=0)
    assert not lengths.H_exact
    np.testing.assert_allclose(np.diff(lengths.H), highest, rtol=1e-2)
    assert np.all(np.diff(lengths.H) <= highest * (1 + 1e-6))
    assert (
        regret.path_lengths(
            instance.problem, instance.rounds, with_H=False, outer_start=instance.outer_var
        ).H
        is None
    )


def test_bounds_are_fed_by_name():
    instance = problems.quadratic(30, 2, 2, drift=0.01)
    problem, rounds, constants = instance.problem, instance.rounds, instance.constants
    x = jnp.zeros((30, 2))
    dynamic = theory.strongly_convex_dynamic(constants)
    named = regret.bound_arguments(dynamic.bound, problem, rounds)
    assert sorted(named) == ["P_1", "P_2", "Y_1", "Y_2", "squared_gradients"]
    assert np.all(dynamic.bound(**named) >= np.asarray(regret.dynamic(problem, x, rounds)))
    static = theory.strongly_convex_static(constants)
    bound = static.bound(**regret.bound_arguments(static.bound, problem, rounds))
    assert bound.shape == (30,)
    local = theory.nonconvex_local(constants)
    with pytest.raises(ValueError, match="takes W; pass window= for W"):
        regret.bound_arguments(local.bound, problem, rounds)
    named = regret.bound_arguments(local.bound, problem, rounds, window=Window(3))
    assert float(named["W"]) == 3.0
    close(named["H_2"], regret.path_lengths(problem, rounds, 2).H)
    bent = BENT
    with pytest.warns(regret.LowerEstimateWarning, match="certifies nothing"):
        regret.bound_arguments(
            local.bound, bent.problem, bent.rounds, window=Window(3), outer_start=bent.outer_var
        )


def test_bad_input():
    for order in (0, "2", True, float("inf")):
        with pytest.raises(ValueError, match="order must be a number"):
            regret.path_lengths(GAME, ROUNDS, order, **STARTS)
    static = regret.static_solution(GAME, ROUNDS, **STARTS)
    with pytest.raises(ValueError, match="comparators must be of kind 'rounds' for 3 rounds"):
        regret.path_lengths(GAME, ROUNDS, comparators=static, **STARTS)
