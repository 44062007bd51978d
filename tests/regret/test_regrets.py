"""Every regret against three rounds worked by hand, and the local regret against a plain loop.

The game: f_t = (y - a_t)^2 / 2 and g_t = (y - x - b_t)^2 / 2 on X = [-1, 1], so that

    y*_t(x) = x + b_t,    phi_t(x) = (x - c_t)^2 / 2    with    c_t = a_t - b_t.

    t     a    b     c     x*_t = clip(c)    phi_t(x*_t)    x_t    phi_t(x_t)
    1     1    1/2   1/2   1/2               0              0      1/8
    2     2    0     2     1                 1/2            1/2    9/8
    3     0    1     -1    -1                0              1      2
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

jax.config.update("jax_enable_x64", True)

from obax import problems, regret  # noqa: E402
from obax.domain import Box  # noqa: E402
from obax.problem import Problem  # noqa: E402
from obax.window import Window  # noqa: E402

ROUNDS = {"a": jnp.array([1.0, 2.0, 0.0]), "b": jnp.array([0.5, 0.0, 1.0])}
X = jnp.array([0.0, 0.5, 1.0])
Y0 = jnp.zeros(())


def outer(x, y, r):
    return 0.5 * (y - r["a"]) ** 2


def inner(x, y, r):
    return 0.5 * (y - x - r["b"]) ** 2


NUMERICAL = Problem(outer, inner, Box(-1.0, 1.0))
CLOSED = Problem(
    outer,
    inner,
    Box(-1.0, 1.0),
    inner_argmin=lambda x, r: x + r["b"],
    outer_argmin=lambda r: jnp.clip(r["a"] - r["b"], -1.0, 1.0),
)
SINGLE = Problem(lambda x, y, r: 0.5 * (x - r["a"] + r["b"]) ** 2, domain=Box(-1.0, 1.0))
GAMES = pytest.mark.parametrize(
    ("problem", "start"), [(NUMERICAL, Y0), (CLOSED, None), (SINGLE, None)]
)


def close(curve, expected):
    np.testing.assert_allclose(np.asarray(curve), expected, rtol=0, atol=1e-12)


@GAMES
def test_dynamic(problem, start):
    curve = regret.dynamic(problem, X, ROUNDS, inner_start=start)
    close(curve.terms, [0.125, 0.625, 2.0])
    close(curve, [0.125, 0.75, 2.75])
    assert float(curve.total) == float(curve[-1])
    assert len(curve) == 3
    close(curve.comparators.outer_var, [0.5, 1.0, -1.0])
    assert curve.comparators.closed_form == (problem is CLOSED)
    assert curve.comparators.converged and curve.decisions.converged
    if problem is not SINGLE:
        close(curve.comparators.inner_var, [1.0, 1.0, 0.0])
        close(curve.decisions.inner_var, [0.5, 0.5, 2.0])
    again = regret.dynamic(problem, X, ROUNDS, inner_start=start, comparators=curve.comparators)
    close(again, curve.cumulative)


@GAMES
def test_static(problem, start):
    # x* = mean(c) = 1/2, at which phi is 0, 9/8, 9/8.
    curve = regret.static(problem, X, ROUNDS, inner_start=start)
    close(curve.comparators.outer_var, 0.5)
    close(curve.terms, [0.125, 0.0, 0.875])
    close(curve, [0.125, 0.125, 1.0])
    assert not curve.comparators.closed_form


@pytest.mark.parametrize(("problem", "start"), [(CLOSED, None), (SINGLE, None)])
def test_interval(problem, start):
    # Rounds 1..2: mean(c) = 5/4, outside: x = 1, at which phi is 1/8, 1/2.
    close(regret.interval(problem, X, ROUNDS, 1, 2, inner_start=start), [0.0, 0.625])
    # Rounds 2..3: mean(c) = 1/2, at which phi is 9/8, 9/8.
    close(regret.interval(problem, X, ROUNDS, 2, 3, inner_start=start), [0.0, 0.875])


@pytest.mark.parametrize(("problem", "start"), [(NUMERICAL, Y0), (CLOSED, None)])
def test_local(problem, start):
    # y*_t(x_t) = 1/2, 1/2, 2 and dy*/dx = 1, so a term has slope y*_t(x_t) - a_{t-i}; W = 3/2:
    # t = 1: (-1/2) / W = -1/3;  t = 2: (-3/2 - 1/4) / W = -7/6;  t = 3: (2 + 0) / W = 4/3.
    curve = regret.local(problem, X, ROUNDS, Window(2, decay=0.5), inner_start=start)
    close(curve.terms, [1 / 9, 49 / 36, 16 / 9])
    close(curve, [1 / 9, 53 / 36, 3.25])
    # By the weight seen so far only the first round changes: (-1/2)^2.
    seen = Window(2, decay=0.5, normalise="seen")
    close(regret.local(problem, X, ROUNDS, seen, inner_start=start).terms, [1 / 4, 49 / 36, 16 / 9])
    # w = 1: the slopes -1/2, -3/2, 2.
    close(regret.local(problem, X, ROUNDS, inner_start=start).terms, [0.25, 2.25, 4.0])


def test_local_without_a_follower():
    # Slopes x_t - c_{t-i}: t = 2: (-3/2 + 0) / W = -1;  t = 3: (2 - 1/2) / W = 1.
    close(regret.local(SINGLE, X, ROUNDS, Window(2, weights=[1.0, 0.5])).terms, [1 / 9, 1.0, 1.0])


@pytest.mark.parametrize(("problem", "start"), [(NUMERICAL, Y0), (CLOSED, None)])
def test_staged(problem, start):
    # Stage 1..2: y_s(x) = x + 1/4; sum f is least at x = 5/4, outside: x = 1, y = 5/4, where f is
    # 1/32, 9/32. Stage 3: x = -1, y = 0, f = 0.
    curve = regret.staged(problem, X, ROUNDS, [2, 1], inner_start=start)
    close(curve.comparators.outer_var, [1.0, -1.0])
    close(curve.comparators.inner_var, [1.25, 0.0])
    assert curve.comparators.stage.tolist() == [0, 0, 1]
    close(curve, [3 / 32, 30 / 32, 94 / 32])
    losses = jnp.array([3.0, 1.0, 2.0])
    suffered = regret.staged(problem, X, ROUNDS, [2, 1], losses=losses, inner_start=start)
    close(suffered, [95 / 32, 118 / 32, 182 / 32])
    close(regret.played(problem, losses, ROUNDS, curve.comparators), suffered.cumulative)


@GAMES
def test_played(problem, start):
    losses = jnp.array([3.0, 1.0, 2.0])
    points = {"outer_start": jnp.zeros(()), "inner_start": start}
    close(regret.played(problem, losses, ROUNDS, **points), [3.0, 3.5, 5.5])
    close(regret.played(problem, losses, ROUNDS, "static", **points), [3.0, 2.875, 3.75])


def test_one_stage_without_a_follower_is_static():
    static = regret.static(SINGLE, X, ROUNDS)
    close(regret.staged(SINGLE, X, ROUNDS, 1), static.cumulative)


def test_pytrees_and_float32():
    # The same game in each of two coordinates, in float32: every regret doubles.
    def f(x, y, r):
        return 0.5 * jnp.sum((y["u"] - r["a"]) ** 2)

    def g(x, y, r):
        return 0.5 * jnp.sum((y["u"] - jnp.stack([x["p"], x["q"][0]]) - r["b"]) ** 2)

    problem = Problem(f, g, Box(-1.0, 1.0))
    rounds = jax.tree.map(lambda leaf: leaf.astype(jnp.float32), ROUNDS)
    single = X.astype(jnp.float32)
    x = {"p": single, "q": single[:, None]}
    y = {"u": jnp.zeros(2, jnp.float32)}
    curve = regret.dynamic(problem, x, rounds, inner_start=y)
    assert curve.cumulative.dtype == jnp.float32
    np.testing.assert_allclose(curve, [0.25, 1.5, 5.5], rtol=1e-6)
    assert curve.comparators.tolerance == 1e-4
    assert curve.comparators.outer_var["q"].shape == (3, 1)
    local = regret.local(problem, x, rounds, Window(2, decay=0.5), inner_start=y)
    np.testing.assert_allclose(local.terms, [2 / 9, 49 / 18, 32 / 9], rtol=1e-6)


def test_local_against_a_plain_loop_and_finite_differences():
    instance = problems.dynamic_regression(
        horizon=12, stages=2, outer_dim=3, inner_dim=3, samples=4
    )
    problem, rounds = instance.problem, instance.rounds
    rng = np.random.default_rng(1)
    x = rng.uniform(-3.0, 1.0, (12, 3))
    weights = [1.0, 0.7, 0.7, 0.2, 0.1]
    take = lambda t: jax.tree.map(lambda leaf: np.asarray(leaf)[t], rounds)  # noqa: E731

    def averaged(point, t):
        (a, b), losses = take(t)["training"], 0.0
        y = np.linalg.solve(a.T @ a / 4 + np.diag(2 * np.exp(point)), a.T @ b / 4)
        for i, u in enumerate(weights):
            if t - i >= 0:
                c, d = take(t - i)["validation"]
                losses += u * 0.5 * np.mean((c @ y - d) ** 2)
        return losses / sum(weights)

    h = 1e-5
    slopes = np.array(
        [
            [(averaged(x[t] + h * e, t) - averaged(x[t] - h * e, t)) / (2 * h) for e in np.eye(3)]
            for t in range(12)
        ]
    )
    expected = np.sum(slopes**2, axis=1)
    window = Window(5, weights=weights)
    for game, start, chunk in (
        (problem, None, None),
        (Problem(problem.outer, problem.inner, problem.domain), instance.inner_var, 5),
    ):
        solver = regret.Solver(chunk=chunk)
        curve = regret.local(game, jnp.asarray(x), rounds, window, inner_start=start, solver=solver)
        np.testing.assert_allclose(curve.terms, expected, rtol=1e-6)  # limited by differences


class TestBadInput:
    def test_lengths(self):
        with pytest.raises(ValueError, match=r"2 decisions and 3 rounds"):
            regret.dynamic(CLOSED, X[:2], ROUNDS)
        with pytest.raises(ValueError, match=r"lengths \[2, 3\]"):
            regret.static(CLOSED, X, {"a": ROUNDS["a"], "b": ROUNDS["b"][:2]})
        with pytest.raises(ValueError, match="losses must be 3 floating-point numbers"):
            regret.played(CLOSED, jnp.zeros(2), ROUNDS)
        with pytest.raises(ValueError, match="scalar"):
            regret.dynamic(CLOSED, jnp.zeros(()), ROUNDS)

    def test_decision_outside(self):
        with pytest.raises(ValueError, match=r"decision of round 2 does not: 1.5. 1 of 3"):
            regret.dynamic(CLOSED, X.at[1].set(1.5), ROUNDS)

    def test_interval(self):
        with pytest.raises(ValueError, match="start = 3 and stop = 2"):
            regret.interval(CLOSED, X, ROUNDS, 3, 2)
        with pytest.raises(ValueError, match="T = 3"):
            regret.interval(CLOSED, X, ROUNDS, 1, 4)

    def test_stages(self):
        with pytest.raises(ValueError, match="must sum to T = 3, but sum to 2"):
            regret.staged(CLOSED, X, ROUNDS, [1, 1])
        with pytest.raises(ValueError, match="at most T = 3, but got 4"):
            regret.staged(CLOSED, X, ROUNDS, 4)

    def test_words(self):
        with pytest.raises(ValueError, match="comparator must be one of 'dynamic', 'static'"):
            regret.played(CLOSED, jnp.zeros(3), ROUNDS, "best")
        with pytest.raises(ValueError, match=r"window must be an obax\.Window"):
            regret.local(CLOSED, X, ROUNDS, 5)
        with pytest.raises(ValueError, match=r"problem must be an obax\.Problem"):
            regret.outer_solutions(None, ROUNDS)

    def test_comparators_of_other_rounds(self):
        found = regret.outer_solutions(CLOSED, jax.tree.map(lambda leaf: leaf[:2], ROUNDS))
        with pytest.raises(ValueError, match="these 3 rounds, but belong to 2"):
            regret.dynamic(CLOSED, X, ROUNDS, comparators=found)

    def test_shapes_that_are_not_known(self):
        with pytest.raises(ValueError, match="inner_start must be given"):
            regret.dynamic(NUMERICAL, X, ROUNDS)
        with pytest.raises(ValueError, match="outer_start must be given"):
            regret.outer_solutions(NUMERICAL, ROUNDS, inner_start=Y0)
        with pytest.raises(ValueError, match="no follower"):
            regret.dynamic(SINGLE, X, ROUNDS, inner_start=Y0)

    def test_buffers(self):
        problem = Problem(lambda x, y, r, b: y, lambda x, y, r, b: (y**2, b), has_buffers=True)
        with pytest.raises(ValueError, match="not defined by the losses alone"):
            regret.dynamic(problem, X, ROUNDS, inner_start=Y0)


def test_comparators_of_another_kind_are_rejected():
    problem = Problem(lambda x, y, r: (x - r) ** 2)
    targets = jnp.array([1.0, 2.0, 4.0])
    fixed = regret.static_solution(problem, targets, outer_start=jnp.zeros(()))
    with pytest.raises(ValueError, match="must come from outer_solutions"):
        regret.dynamic(problem, jnp.zeros(3), targets, comparators=fixed)


def test_regrets_draw_themselves_and_each_other(tmp_path):
    problem = Problem(lambda x, y, r: 0.5 * (x - r) ** 2, outer_argmin=lambda r: r)
    rounds = jnp.array([1.0, 2.0, 3.0])
    one = regret.dynamic(problem, jnp.zeros(3), rounds)
    other = one.named("other")
    assert repr(one).startswith("RegretCurve('dynamic regret', 3 rounds, total=7")
    figure = (one + other + (one + other)).plot(tmp_path / "r.png")
    names = [line.get_label() for line in figure.axes[0].lines]
    assert names == ["dynamic regret", "other", "dynamic regret (3)", "other (4)"]
    np.testing.assert_allclose(figure.axes[0].lines[0].get_ydata(), [0.5, 2.5, 7.0])
    np.testing.assert_allclose(figure.axes[1].lines[0].get_ydata(), [0.5, 1.25, 7.0 / 3])
    assert (tmp_path / "r.png").stat().st_size > 1000
    assert len(one.plot().axes[0].lines) == 1
    with pytest.raises(TypeError):
        one + 3
