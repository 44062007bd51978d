"""SOBOW against rounds worked in NumPy; it is OAGD for w = 1 and K = 1."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import worked
from worked import PROBLEM, ROUNDS, X1, Y1, close, plays

import obax
from obax import hypergradient as hg

pytestmark = pytest.mark.usefixtures("quick_compilation")
ALPHA, BETA = 0.1, 0.15


@pytest.mark.parametrize(("size", "normalise"), [(1, "full"), (3, "full"), (2, "seen")])
def test_rounds_worked_in_numpy(size, normalise):
    window = obax.Window(size, 0.7, normalise=normalise)
    seen = plays(obax.SOBOW(PROBLEM, ALPHA, BETA, window, hg.Dense()))
    x, y, stored = X1, Y1, []
    for r, (state, info) in zip(ROUNDS, seen, strict=True):
        y = y - BETA * worked.g_y(x, y, r)
        stored.insert(0, worked.hypergradient(x, y, r))
        u = 0.7 ** np.arange(size)
        terms = stored[:size]
        total = u.sum() if normalise == "full" else u[: len(terms)].sum()
        direction = sum(weight * h for weight, h in zip(u, terms, strict=False)) / total
        close(info.outer_var, x)
        close(info.hypergradient_norm, np.linalg.norm(direction))
        x = worked.project(x - ALPHA * direction)
        close(state.outer_var, x)
        close(state.inner_var, y)
        assert [int(info.gradients), int(info.hvps), int(info.cross_products)] == [2, 3, 1]


def test_v_is_warm_started_and_gets_a_few_steps_of_cg():
    estimator = hg.CG(max_steps=1, warm_start=True)
    seen = plays(obax.SOBOW(PROBLEM, ALPHA, BETA, hypergradient=estimator))
    x, y, v = X1, Y1, np.zeros(3)
    for r, (state, info) in zip(ROUNDS, seen, strict=True):
        y = y - BETA * worked.g_y(x, y, r)
        left = worked.f_y(x, y, r) - worked.hessian(x, y, r) @ v
        v = v + (left @ left) / (left @ worked.hessian(x, y, r) @ left) * left
        x = worked.project(x - ALPHA * (worked.f_x(x, y, r) - worked.cross(x, y, r, v)))
        close(state.carry, v)
        close(state.outer_var, x)
        # One product for the warm start's residual, one for the step.
        assert [int(info.gradients), int(info.hvps), int(info.cross_products)] == [2, 2, 1]


def test_window_of_one_is_oagd_with_one_step():
    estimator = hg.CG(max_steps=5, warm_start=True)
    rounds = jax.tree.map(lambda *leaves: jnp.stack(leaves), *ROUNDS)
    histories = []
    for algorithm in (
        obax.SOBOW(PROBLEM, ALPHA, BETA),
        obax.OAGD(PROBLEM, ALPHA, BETA, 1, hypergradient=estimator),
    ):
        state = algorithm.init(X1, Y1, ROUNDS[0])
        histories.append(
            obax.run(algorithm, state, rounds, record=lambda s: (s.inner_var, s.carry))
        )
    (first, ours), (second, theirs) = histories
    jax.tree.map(np.testing.assert_array_equal, ours, theirs)
    np.testing.assert_array_equal(first.outer_var, second.outer_var)


def test_what_does_not_fit_is_said():
    alone = obax.Problem(lambda x, y, r: x**2)
    with pytest.raises(ValueError, match=r"must have a follower for SOBOW.*use obax\.OGD"):
        obax.SOBOW(alone, 0.1, 0.1)
    with pytest.raises(ValueError, match=r"window\.follower and window\.curvature"):
        obax.SOBOW(PROBLEM, 0.1, 0.1, obax.Window(3, curvature="current"))
    with pytest.raises(
        ValueError, match=r"hypergradient must be one that solves H v = grad_y f.*Unrolled"
    ):
        obax.SOBOW(PROBLEM, 0.1, 0.1, hypergradient=hg.Unrolled())
    with pytest.raises(ValueError, match=r"window must be an obax\.Window"):
        obax.SOBOW(PROBLEM, 0.1, 0.1, 10)
    with pytest.raises(ValueError, match="outer_step_size must be a number > 0"):
        obax.SOBOW(PROBLEM, -0.1, 0.1)
