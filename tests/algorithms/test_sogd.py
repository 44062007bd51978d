"""SOGD against rounds worked in NumPy, constraints and momentum included."""

import numpy as np
import pytest
import worked
from worked import PROBLEM, ROUNDS, X1, Y1, close, plays

import obax

pytestmark = pytest.mark.usefixtures("quick_compilation")


def directions(x, y, v, r):
    curved = worked.f_y(x, y, r) + worked.hessian(x, y, r) @ v
    return worked.g_y(x, y, r), curved, worked.f_x(x, y, r) + worked.cross(x, y, r, v)


@pytest.mark.parametrize("radius", [100.0, 0.2])
def test_rounds_worked_in_numpy(radius):
    offset, ratios, units = 400.0, (1.5, 2.0), (3.0, 4.0, 5.0)
    algorithm = obax.SOGD(
        PROBLEM,
        offset,
        *ratios,
        inner_momentum=units[0],
        dual_momentum=units[1],
        outer_momentum=units[2],
        scale=0.8,
        radius=radius,
    )
    seen = plays(algorithm)
    x, y, v = X1, Y1, np.zeros(3)
    before, d = (x, y, v), None
    clipped = 0
    for t, (r, (state, info)) in enumerate(zip(ROUNDS, seen, strict=True), start=1):
        alpha = 0.8 * (offset + t) ** (-1 / 3)
        now = directions(x, y, v, r)
        if d is None:
            d = now
        else:
            then = directions(*before, r)
            d = [
                n + (1 - min(1.0, unit * alpha**2)) * (old - p)
                for n, p, old, unit in zip(now, then, d, units, strict=True)
            ]
        close(info.hypergradient_norm, np.linalg.norm(d[2]))
        close(info.solver_residual, np.linalg.norm(now[1]) / np.linalg.norm(worked.f_y(x, y, r)))
        before = (x, y, v)
        y, v, x = (
            y - ratios[0] * alpha * d[0],
            v - ratios[1] * alpha * d[1],
            worked.project(x - alpha * d[2]),
        )
        length = np.linalg.norm(v)
        clipped += length > radius
        v = v * min(1.0, radius / length)
        for value, expected in (
            (state.outer_var, x), (state.inner_var, y), (state.dual_var, v),
            (state.momentum.outer_var, d[2]), (state.previous.inner_var, before[1]),
        ):  # fmt: skip
            close(value, expected)
        points = 1 if t == 1 else 2
        counts = [int(info.gradients), int(info.hvps), int(info.cross_products)]
        assert counts == [2 * points, points, points]
    assert (clipped > 0) == (radius == 0.2)


def test_without_momentum_it_is_three_gradient_steps():
    """c_t = 1: d_t = D_t(z_t), whatever came before."""
    seen = plays(
        obax.SOGD(PROBLEM, 400.0, inner_momentum=1e9, dual_momentum=1e9, outer_momentum=1e9)
    )
    x, y, v = X1, Y1, np.zeros(3)
    for t, (r, (state, _)) in enumerate(zip(ROUNDS, seen, strict=True), start=1):
        alpha = (400.0 + t) ** (-1 / 3)
        d_y, d_v, d_x = directions(x, y, v, r)
        x, y, v = worked.project(x - alpha * d_x), y - alpha * d_y, v - alpha * d_v
        close(state.outer_var, x)
        close(state.dual_var, v)


def test_what_does_not_fit_is_said():
    with pytest.raises(ValueError, match="offset must be a number > 0"):
        obax.SOGD(PROBLEM, 0.0)
    with pytest.raises(ValueError, match="radius must be a number > 0"):
        obax.SOGD(PROBLEM, 1.0, radius=-1.0)
    starting = obax.Problem(worked.outer, worked.inner, inner_start=lambda x: x)
    with pytest.raises(ValueError, match=r"inner_start must be None for SOGD"):
        obax.SOGD(starting)
