"""RTHO against rounds worked in NumPy and finite differences of whole runs; and mutants of it that
these must catch."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import worked
from worked import D1, D2, PROBLEM, ROUNDS, X1, Y1, close, plays

import obax
from obax.algorithms import rtho
from obax.hypergradient.base import Pair

pytestmark = pytest.mark.usefixtures("quick_compilation")
ALPHA, BETA = 0.1, 0.15
EYE = np.eye(D2)


def cross_matrix(x, y, r):
    """d_x grad_y g, a column for each entry of x."""
    return np.stack([worked.cross(x, y, r, e) for e in EYE])


def stepped(x, y, S, r, steps):
    """K gradient steps; S as y x x."""
    for _ in range(steps):
        S = (EYE - BETA * worked.hessian(x, y, r)) @ S - BETA * cross_matrix(x, y, r)
        y = y - BETA * worked.g_y(x, y, r)
    return y, S


def proximal(x, y, S, r, _):
    """Newton steps to argmin_u g(x, u) + |u - y|^2 / (2 beta)."""
    u = y
    for _ in range(30):
        bent = worked.hessian(x, u, r) + EYE / BETA
        u = u - np.linalg.solve(bent, worked.g_y(x, u, r) + (u - y) / BETA)
    bent = worked.hessian(x, u, r) + EYE / BETA
    return u, np.linalg.solve(bent, S / BETA - cross_matrix(x, u, r))


def check_rounds(make, follow, steps=1, gamma=1.0):
    """Play the rounds and work them out."""
    x, y, S = X1, Y1, np.zeros((D2, D1))
    for r, (state, info) in zip(ROUNDS, plays(make()), strict=True):
        h = worked.f_x(x, y, r) + S.T @ worked.f_y(x, y, r)
        close(info.outer_var, x)
        close(info.played_value, worked.f(x, y, r))
        close(info.hypergradient_norm, np.linalg.norm(h))
        y, S = follow(x, y, S, r, steps)
        S = gamma * S
        x = worked.project(x - ALPHA * h)
        close(state.outer_var, x)
        close(state.inner_var, y)
        close(state.sensitivity.inner_var, S.T)


def with_steps(steps=1, kind=obax.RTHO, **options):
    return lambda: kind(PROBLEM, ALPHA, BETA, steps, **options)


def with_proximal(kind=obax.RTHO, **options):
    return lambda: kind(PROBLEM, ALPHA, BETA, proximal=True, **options)


@pytest.mark.parametrize(("steps", "horizon"), [(1, None), (3, None), (3, 4.0)])
def test_rounds_of_gradient_steps_worked_in_numpy(steps, horizon):
    gamma = 1 if horizon is None else 1 - 1 / horizon
    check_rounds(with_steps(steps, horizon=horizon), stepped, steps, gamma)


@pytest.mark.parametrize("horizon", [None, 4.0])
def test_rounds_of_the_proximal_step_worked_in_numpy(horizon):
    check_rounds(with_proximal(horizon=horizon), proximal, gamma=1 if horizon is None else 0.75)


def still(t):
    return jnp.zeros(())


def tie(x, y, start, round):
    """In a metric that moves with x."""
    gap = y - start
    return 0.5 * jnp.exp(x[1]) * gap @ round["A"] @ gap + jnp.sum(gap**2)


WHOLE_RUNS = {
    "one step": {"inner_step_size": BETA},
    "growing steps": {"inner_step_size": BETA, "inner_steps": lambda t: 1 + t // 2},
    "momentum": {"inner_optimiser": optax.sgd(BETA, momentum=0.5), "inner_steps": 2},
    "adam": {"inner_optimiser": optax.adam(BETA, eps_root=1e-8), "inner_steps": 2},
    "proximal": {"inner_step_size": BETA, "proximal": True},
    "own tie": {"proximal": tie},
}


def check_whole_run(options, kind=obax.RTHO):
    """With x held still: S_T is dy_T/dx, and the norm of the direction that of d f_t(x, y_t)/dx, by
    finite differences of the run from its first round."""
    algorithm = kind(PROBLEM, still, **options)
    rounds = jax.tree.map(lambda *leaves: jnp.stack(leaves), *ROUNDS)

    @jax.jit
    def run(x):
        state = algorithm.init(x, jnp.asarray(Y1), ROUNDS[0])
        state, history = obax.run(algorithm, state, rounds, on_rejected="skip")
        norms = history.hypergradient_norm, history.accepted
        return state.inner_var, history.played_value, state.sensitivity.inner_var, *norms

    eps = 1e-6
    pairs = [(run(X1 + eps * e), run(X1 - eps * e)) for e in np.eye(D1)]
    slopes = [np.stack([(up[i] - down[i]) / (2 * eps) for up, down in pairs]) for i in (0, 1)]
    *_, sensitivity, norms, accepted = run(X1)
    assert accepted.all() and np.abs(slopes[0]).min() > 1e-4
    close(sensitivity, slopes[0], rtol=1e-6, atol=1e-8)
    close(norms, np.linalg.norm(slopes[1], axis=0), rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("name", WHOLE_RUNS)
def test_the_sensitivity_is_the_derivative_of_the_whole_run(name):
    check_whole_run(WHOLE_RUNS[name])


class Mutant(obax.RTHO):
    """Another direction of the leader, and all else as it is."""

    def update(self, state, round):
        move = super().update(state, round)
        pair = Pair(self.problem, state.outer_var, state.inner_var)
        h = self.mutate(state, move, *pair.outer_gradient(round))
        return move._replace(leader=self.lead(state, h), estimate=move.estimate._replace(value=h))


def pulled_back(moved, slope_x, slope_y):
    """h, of a problem without buffers."""
    return slope_x + moved.inner_var @ slope_y


class Dropped(Mutant):
    def mutate(self, state, move, slope_x, slope_y):
        return slope_x


class WrongSign(Mutant):
    def mutate(self, state, move, slope_x, slope_y):
        return 2 * slope_x - pulled_back(state.sensitivity, slope_x, slope_y)


class TooLate(Mutant):
    """S is that after the round."""

    def mutate(self, state, move, slope_x, slope_y):
        return pulled_back(move.memory["sensitivity"], slope_x, slope_y)


class Unchanged(Mutant):
    """No mutant at all: what this machinery itself changes is nothing."""

    def mutate(self, state, move, slope_x, slope_y):
        return pulled_back(state.sensitivity, slope_x, slope_y)


@pytest.mark.parametrize("mutant", [Dropped, WrongSign, TooLate])
def test_a_wrong_direction_is_caught(mutant):
    with pytest.raises(AssertionError):
        check_rounds(with_steps(kind=mutant), stepped)
    with pytest.raises(AssertionError):
        check_whole_run(WHOLE_RUNS["one step"], mutant)


def test_what_makes_mutants_makes_no_difference_itself():
    check_rounds(with_steps(kind=Unchanged), stepped)
    check_whole_run(WHOLE_RUNS["one step"], Unchanged)


@pytest.mark.parametrize("name", ["descended", "nearest"])
def test_a_step_that_forgets_how_y_has_moved_is_caught(name, monkeypatch):
    """S from x alone: what one round's implicit differentiation would give."""
    true = getattr(rtho, name)

    def forgetful(first, x, before, along, *steps):
        nothing = jax.tree.map(jnp.zeros_like, along[1])
        return true(first, x, before, (along[0], nothing), *steps)

    class Forgetful(obax.RTHO):
        """Of a type of its own, for which nothing has been compiled."""

    make, follow = with_steps(kind=Forgetful), stepped
    if name == "nearest":
        make, follow = with_proximal(Forgetful), proximal
    monkeypatch.setattr(rtho, name, forgetful)
    with pytest.raises(AssertionError):
        check_rounds(make, follow)


def test_a_start_that_is_the_leaders_moves_with_it_and_with_nothing_else():
    """y_t = x^2 / 2 in each round, so h = diag(x) (y_t - r), whatever the follower does after."""
    problem = obax.Problem(
        lambda x, y, r: 0.5 * jnp.sum((y - r) ** 2),
        lambda x, y, r: 0.5 * jnp.sum((y - 3 * r) ** 2),
        inner_start=lambda x: x**2 / 2,
    )
    for options in ({}, {"proximal": True}):
        algorithm = obax.RTHO(problem, ALPHA, BETA, **options)
        x, r = np.array([0.5, -1.0]), np.array([1.0, 2.0])
        state, step = algorithm.init(x, np.zeros(2), r), eqx.filter_jit(algorithm.step)
        for _ in range(3):
            state, _ = step(state, r)
            x = x - ALPHA * x * (x**2 / 2 - r)
            close(state.outer_var, x)


def test_oracle_calls_are_those_of_every_entry_of_the_leader():
    (_, info), *_ = plays(with_steps(3)())
    assert [int(info.gradients), int(info.hvps), int(info.cross_products)] == [4, 6, 6]
    assert float(info.solver_residual) == 0
    (_, info), *_ = plays(with_proximal()())
    evaluations = int(info.gradients) - 1
    assert 3 <= evaluations <= 10
    assert [int(info.hvps), int(info.cross_products)] == [D2 * evaluations, D1]
    assert float(info.solver_residual) < 1e-13


@pytest.mark.parametrize("bend", [2.0, 0.5])
def test_a_proximal_step_without_a_minimum_is_rejected(bend):
    """-bend cosh(y) runs away to both sides; |y - y_t|^2 holds it only where bend is small."""
    problem = obax.Problem(lambda x, y, r: y**2, lambda x, y, r: -r * jnp.cosh(y))
    algorithm = obax.RTHO(problem, 0.1, 0.5, proximal=True)
    with pytest.warns(obax.LeaderWarning):  # x does nothing here
        start = algorithm.init(1.0, 0.1, jnp.zeros(()))
    state, info = eqx.filter_jit(algorithm.step)(start, jnp.asarray(bend))
    assert bool(info.accepted) == (bend < 1)
    assert bool(info.accepted) == (float(state.inner_var) != 0.1)


def test_what_does_not_fit_is_said():
    with pytest.raises(ValueError, match="must have a follower for RTHO"):
        obax.RTHO(obax.Problem(lambda x, y, r: x**2), 0.1, 0.1)
    with pytest.raises(ValueError, match="inner_step_size must be a number > 0"):
        obax.RTHO(PROBLEM, 0.1, proximal=True)
    with pytest.raises(ValueError, match="inner_step_size must be left out: proximal says"):
        obax.RTHO(PROBLEM, 0.1, 0.1, proximal=tie)
    for options in ({"inner_steps": 2}, {"inner_optimiser": optax.sgd(0.1)}):
        with pytest.raises(ValueError, match="inner_steps and inner_optimiser must be left out"):
            obax.RTHO(PROBLEM, 0.1, 0.1, proximal=True, **options)
    with pytest.raises(
        ValueError, match=r"proximal must be a function .* or True or False, but got 'y'"
    ):
        obax.RTHO(PROBLEM, 0.1, 0.1, proximal="y")
    vague = obax.RTHO(PROBLEM, 0.1, proximal=lambda x, y, start, r: (y - start) ** 2)
    with pytest.raises(ValueError, match="proximal must return a scalar"):
        vague.init(X1, Y1, ROUNDS[0])
    for horizon in (1, 0.5, 0):
        with pytest.raises(ValueError, match=f"horizon must be a number.* > .*, but got {horizon}"):
            obax.RTHO(PROBLEM, 0.1, 0.1, horizon=horizon)


def test_a_leader_or_a_follower_that_is_too_large_is_an_error_in_words():
    problem = obax.Problem(lambda x, y, r: jnp.sum(y**2), lambda x, y, r: jnp.sum((y - x[0]) ** 2))
    wide, long = jnp.zeros(10_000), jnp.zeros(5_000)
    with pytest.raises(ValueError, match=r"outer_var must be small.* 10,000 x 5,000; use"):
        obax.RTHO(problem, 0.1, 0.1).init(wide, long, jnp.zeros(()))
    obax.RTHO(problem, 0.1, 0.1).init(long[:2], long, jnp.zeros(()))
    with pytest.raises(ValueError, match=r"inner_var must be small.* 5,000 x 5,000; use"):
        obax.RTHO(problem, 0.1, 0.1, proximal=True).init(long[:2], long, jnp.zeros(()))
