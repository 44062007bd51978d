"""FSOBO against rounds worked in NumPy."""

import numpy as np
import pytest
import worked
from worked import PROBLEM, ROUNDS, X1, Y1, close, plays

import obax

pytestmark = pytest.mark.usefixtures("quick_compilation")


def test_rounds_worked_in_numpy():
    alpha, beta, delta = 0.1, 0.15, 0.2
    seen = plays(obax.FSOBO(PROBLEM, lambda t: alpha / t.astype(float), beta, delta))
    x, y, v = X1, Y1, np.zeros(3)
    for t, (r, (state, info)) in enumerate(zip(ROUNDS, seen, strict=True), start=1):
        y = y - beta * worked.g_y(x, y, r)
        error = worked.hessian(x, y, r) @ v - worked.f_y(x, y, r)
        v = v - delta * error
        direction = worked.f_x(x, y, r) - worked.cross(x, y, r, v)
        close(info.hypergradient_norm, np.linalg.norm(direction))
        close(info.solver_residual, np.linalg.norm(error) / np.linalg.norm(worked.f_y(x, y, r)))
        x = worked.project(x - alpha / t * direction)
        close(state.outer_var, x)
        close(state.inner_var, y)
        close(state.dual_var, v)
        assert [int(info.gradients), int(info.hvps), int(info.cross_products)] == [2, 1, 1]


def test_the_dual_step_is_the_inner_one_unless_given():
    one, other = obax.FSOBO(PROBLEM, 0.1, 0.2), obax.FSOBO(PROBLEM, 0.1, 0.2, 0.2)
    assert float(one.dual.step_size) == float(other.dual.step_size) == 0.2
    with pytest.raises(ValueError, match="dual_step_size must be a number > 0"):
        obax.FSOBO(PROBLEM, 0.1, 0.2, 0.0)
