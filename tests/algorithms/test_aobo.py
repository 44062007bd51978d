"""AOBO against rounds worked in NumPy: as many steps as the tolerance asks for, and no more."""

import numpy as np
import pytest
import worked
from worked import PROBLEM, ROUNDS, X1, Y1, close, plays

import obax
from obax import hypergradient as hg

pytestmark = pytest.mark.usefixtures("quick_compilation")


@pytest.mark.parametrize(("tolerance", "most"), [(0.05, 100), (1e-9, 7)])
def test_rounds_worked_in_numpy(tolerance, most):
    alpha, beta = 0.1, 0.15
    seen = plays(obax.AOBO(PROBLEM, alpha, beta, tolerance, most, hg.Dense()))
    x, y, taken = X1, Y1, []
    for r, (state, info) in zip(ROUNDS, seen, strict=True):
        steps = 0
        while np.linalg.norm(worked.g_y(x, y, r)) > tolerance and steps < most:
            y = y - beta * worked.g_y(x, y, r)
            steps += 1
        taken.append(steps)
        close(info.inner_gradient_norm, np.linalg.norm(worked.g_y(x, y, r)))
        x = worked.project(x - alpha * worked.hypergradient(x, y, r))
        close(state.outer_var, x)
        close(state.inner_var, y)
        counts = [int(info.gradients), int(info.hvps), int(info.cross_products)]
        assert counts == [steps + 2, 3, 1]
    # Neither test is one where the bound and the tolerance say the same.
    assert max(taken) < 100 if most == 100 else taken == [7] * len(ROUNDS)


def test_a_follower_at_its_answer_takes_no_step():
    problem = obax.Problem(lambda x, y, r: 0.5 * (y - r) ** 2, lambda x, y, r: 0.5 * (y - x) ** 2)
    algorithm = obax.AOBO(problem, 0.5, 0.5)
    state = algorithm.init(1.0, 1.0, np.zeros(()))
    state, info = algorithm.step(state, np.asarray(3.0))
    assert (float(state.inner_var), float(state.outer_var), int(info.gradients)) == (1.0, 2.0, 2)


def test_what_does_not_fit_is_said():
    with pytest.raises(ValueError, match="tolerance must be a number > 0"):
        obax.AOBO(PROBLEM, 0.1, 0.1, 0.0)
    with pytest.raises(ValueError, match="max_inner_steps must be an integer >= 1"):
        obax.AOBO(PROBLEM, 0.1, 0.1, max_inner_steps=0)
