"""A follower that is kept in a convex set: answers, hypergradients along faces, steps, checks."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import obax
from obax import hypergradient as hg
from obax.problems import group_losses, robust_regression

pytestmark = pytest.mark.usefixtures("quick_compilation")

A = np.array([[2.0, 0.5, 0.0], [0.5, 1.5, 0.3], [0.0, 0.3, 1.0]])
B = np.array([[1.0, -0.5], [0.3, 2.0], [-1.5, 0.4]])
TARGET = jnp.array([0.6, 0.7, -0.4])
X = jnp.array([0.7, 0.4])
SETS = {
    "box": obax.Box(-0.2, jnp.array(0.3)),
    "nonnegative": obax.NonNegative(),
    "simplex": obax.Simplex(),
    "ball": obax.Ball(0.6, center=jnp.array([0.1, 0.0, -0.1])),
    "large box": obax.Box(-50.0, 50.0),
    "large ball": obax.Ball(50.0),
}


def inner(x, y, round):
    return 0.5 * y @ jnp.asarray(A) @ y - y @ (jnp.asarray(B) @ x)


def outer(x, y, round):
    return 0.5 * jnp.sum((y - TARGET) ** 2) + 0.5 * jnp.sum((x - X) ** 2)


def answer(x, kept, steps=4000):
    """By plain projected gradient steps, far beyond need."""
    step = lambda _, y: kept.project(y - 0.3 * jax.grad(inner, 1)(x, y, None))  # noqa: E731
    return jax.lax.fori_loop(0, steps, step, kept.project(jnp.zeros(3)))


@pytest.fixture(scope="module", params=SETS)
def case(request):
    """A set, y*(x) in it, and the derivative of f(x, y*(x)) by differences of the answers."""
    kept = SETS[request.param]
    phi = jax.jit(lambda x: outer(x, answer(x, kept), None))
    h = 1e-5
    slope = [(phi(X + h * e) - phi(X - h * e)) / (2 * h) for e in jnp.eye(2)]
    return request.param, kept, jax.jit(lambda x: answer(x, kept))(X), np.array(slope)


ESTIMATORS = {
    "Dense": hg.Dense(),
    "CG": hg.CG(),
    "GMRES": hg.GMRES(),
    "Neumann": hg.Neumann(400, 0.3),
    "FixedPoint": hg.FixedPoint(0.3),
}


@pytest.mark.parametrize("name", ESTIMATORS)
def test_hypergradients_move_along_the_face(case, name):
    which, kept, y, expected = case
    problem = obax.Problem(outer, inner, inner_domain=kept)
    found = jax.jit(lambda y: ESTIMATORS[name].at(problem, X, y, jnp.zeros(())))(y)
    np.testing.assert_allclose(found.value, expected, rtol=1e-6, atol=1e-8)
    assert found.residual < 1e-8
    # The mutant: the same estimator that knows of no set is wrong wherever the set holds y.
    free = obax.Problem(outer, inner)
    wrong = jax.jit(lambda y: ESTIMATORS[name].at(free, X, y, jnp.zeros(())))(y).value
    off = np.max(np.abs(wrong - expected))
    assert off < 1e-6 if which.startswith("large") else off > 0.05


def test_faces_are_those_that_hold(case):
    which, kept, y, _ = case
    slope = jax.grad(inner, 1)(X, y, None)
    P = np.asarray(jax.vmap(kept.face(y, slope).tangent)(jnp.eye(3)))
    np.testing.assert_allclose(P @ P, P, atol=1e-12)
    np.testing.assert_allclose(P, P.T, atol=1e-12)
    # At a minimum nothing that is free to move would gain by it.
    np.testing.assert_allclose(P @ np.asarray(slope), 0, atol=1e-9)
    assert kept.gradient_norm(y, slope) < 1e-9
    assert np.linalg.matrix_rank(P) == 3 if which.startswith("large") else 3 > np.trace(P) > 0.5
    # A constraint that is touched and not pressed against holds nothing.
    inwards = np.asarray(jax.vmap(kept.face(y, -10 * slope).tangent)(jnp.eye(3)))
    assert np.trace(inwards) >= np.trace(P)


ALGORITHMS = {
    "OAGD": lambda p: obax.OAGD(p, 0.05, 0.3, 60, hypergradient=hg.Dense()),
    "OAGD-window": lambda p: obax.OAGD(p, 0.05, 0.3, 60, obax.Window(2), hypergradient=hg.CG()),
    "Unrolled": lambda p: obax.OAGD(p, 0.05, 0.3, 60, hypergradient=hg.Unrolled()),
    "SOBOW": lambda p: obax.SOBOW(p, 0.05, 0.3),
    "AOBO": lambda p: obax.AOBO(p, 0.05, 0.3, tolerance=1e-9),
    "F2OBO": lambda p: obax.F2OBO(p, 0.05, 0.3, 1e4, 0.0, tolerance=1e-6),
    "WOBO": lambda p: obax.WOBO(p, 0.05, 0.3, 20, obax.Window(2), 1e-3, 1),
    "ITD": lambda p: obax.ITD(p, 0.05, 0.3, 60, capacity=2),
    "RTHO": lambda p: obax.RTHO(p, 0.05, 0.3),
}
SLOW = ("ITD", "AOBO", "F2OBO", "WOBO", "OAGD-window")


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=pytest.mark.slow if n in SLOW else ()) for n in ALGORITHMS]
)
def test_algorithms_stay_in_the_set_and_reach_the_optimum(name):
    problem = obax.Problem(outer, inner, inner_domain=obax.Simplex())
    algorithm = ALGORITHMS[name](problem)
    state = algorithm.init(jnp.zeros(2), jnp.full(3, 1 / 3), jnp.zeros(()))
    state, history = obax.run(
        algorithm, state, jnp.zeros(600), record=lambda state: state.inner_var
    )
    assert np.all(jax.vmap(obax.Simplex().contains)(history.recorded))
    np.testing.assert_allclose(state.inner_var, answer(state.outer_var, obax.Simplex()), atol=1e-4)
    # At rest by finite differences of phi, with a follower on a face.
    assert np.any(state.inner_var == 0) and np.sum(state.inner_var > 0) == 2
    phi = jax.jit(lambda x: outer(x, answer(x, obax.Simplex()), None))
    slope = [(phi(state.outer_var + 1e-5 * e) - phi(state.outer_var - 1e-5 * e)) / 2e-5
             for e in jnp.eye(2)]  # fmt: skip
    assert np.max(np.abs(slope)) < 2e-3
    assert history.inner_gradient_norm[-1] < 1e-3


def test_what_cannot_keep_it_says_so():
    problem = obax.Problem(outer, inner, inner_domain=obax.Simplex())
    for make in (obax.SOGD, lambda p: obax.FSOBO(p, 0.1, 0.1), obax.ZOSOGD):
        with pytest.raises(ValueError, match=r"inner_domain must be left out for .*use obax.OAGD"):
            make(problem)
    with pytest.raises(ValueError, match="inner_domain must be left out with proximal"):
        obax.RTHO(problem, 0.1, 0.1, proximal=True)
    with pytest.raises(
        ValueError, match=r"inner_var must start in the domain Simplex.*inner_domain"
    ):
        obax.OAGD(problem, 0.1, 0.1).init(X, jnp.zeros(3), jnp.zeros(()))
    with pytest.raises(ValueError, match="inner_domain needs a follower"):
        obax.Problem(outer, inner_domain=obax.Simplex())
    with pytest.raises(ValueError, match="inner_domain must be an obax domain"):
        obax.Problem(outer, inner, inner_domain=(0, 1))
    shaped = obax.Problem(outer, inner, inner_domain=obax.Box(jnp.zeros(2), jnp.ones(2)))
    with pytest.raises(ValueError, match="Box bounds must be scalars or fit inner_var"):
        obax.OAGD(shaped, 0.1, 0.1).init(X, jnp.zeros(3), jnp.zeros(()))

    class Odd(obax.Domain):
        def project(self, outer_var):
            return outer_var

    with pytest.raises(ValueError, match=r"knows its faces .*but Odd has no method face"):
        obax.Problem(outer, inner, inner_domain=Odd())


def test_group_weights_in_closed_form():
    stream = robust_regression(3, rho=2.0, seed=1)
    round = jax.tree.map(lambda leaf: leaf[1], stream.rounds)
    x = jnp.array([0.2, -0.1, 0.3])
    y = stream.problem.inner_argmin(x, round)
    assert np.any(y == 0) and np.sum(y > 0) > 1
    slope = jax.grad(stream.problem.inner, 1)(x, y, round)
    assert obax.Simplex().gradient_norm(y, slope) < 1e-12
    # Min-max: the hypergradient is the partial derivative at the answer, and phi's own.
    found = hg.CG().at(stream.problem, x, y, round)
    np.testing.assert_allclose(found.value, jax.grad(stream.problem.outer)(x, y, round), rtol=1e-9)
    value = lambda x: stream.problem.outer(x, stream.problem.inner_argmin(x, round), round)  # noqa: E731
    h = 1e-6
    slope = [(value(x + h * e) - value(x - h * e)) / (2 * h) for e in jnp.eye(3)]
    np.testing.assert_allclose(found.value, slope, rtol=1e-6)
    assert found.residual < 1e-10
    assert y @ group_losses(x, round) > np.mean(group_losses(x, round))


@pytest.mark.slow
def test_the_check_and_the_regret_know_of_the_set():
    stream = robust_regression(3, rho=2.0, seed=1)
    round = jax.tree.map(lambda leaf: leaf[1], stream.rounds)
    x = jnp.array([0.2, -0.1, 0.3])
    y = stream.problem.inner_argmin(x, round)
    assert obax.check_hypergradient(stream.problem, x, y, round).ok
    # The same without the closed form, which is then found by projected steps.
    problem = obax.Problem(
        stream.problem.outer, stream.problem.inner, obax.Box(-2.0, 2.0), inner_domain=obax.Simplex()
    )
    assert obax.check_hypergradient(problem, x, y, round).ok
    xs = jnp.stack([x, x, x])
    curve = obax.regret.dynamic(problem, xs, stream.rounds, inner_start=y)
    known = jax.vmap(lambda round: stream.problem.outer(
        x, stream.problem.inner_argmin(x, round), round))(stream.rounds)  # fmt: skip
    terms = np.diff(np.asarray(curve), prepend=0.0)
    assert np.all(terms > 0) and np.all(terms < np.asarray(known))
    best = obax.regret.outer_solutions(problem, stream.rounds, outer_start=x, inner_start=y)
    for t in range(3):
        round = jax.tree.map(lambda leaf, t=t: leaf[t], stream.rounds)
        at = best.outer_var[t]
        slope = jax.grad(stream.problem.outer)(at, stream.problem.inner_argmin(at, round), round)
        assert np.max(np.abs(slope)) < 1e-6
