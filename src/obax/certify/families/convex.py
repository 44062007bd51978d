r"""Families for the four convex settings, all of the form of `affine`.

The first family of a setting is the one whose growth in T is fitted: its path lengths are sublinear
and the promised order is visible at a few hundred rounds.
"""

import numpy as np

from ...domain import Ball, Box
from ...problems import Instance
from .affine import INNER_DIM, OUTER_DIM, affine
from .ingredients import Draws, Numbers, spectral


def _orthonormal(draws: Draws) -> Numbers:
    """Return orthonormal columns: with H = I the follower is perfectly conditioned, kappa_g =
    L_y = 1."""
    return np.asarray(np.linalg.qr(draws.generator.normal(size=(INNER_DIM, OUTER_DIM)))[0])


def _slope(draws: Draws) -> Numbers:
    return np.asarray(draws.generator.normal(size=(INNER_DIM, OUTER_DIM)) / np.sqrt(OUTER_DIM))


def _rank_one(draws: Draws) -> Numbers:
    """Return a slope with a null space in x: phi is convex, but not strongly."""
    return np.outer(draws.unit(INNER_DIM), draws.unit(OUTER_DIM))


# --- strongly convex, on the unit ball ------------------------------------------------------------


def settling(draws: Draws) -> Instance:
    """Return drifts of length 1/t, with kappa_g = 1 and the start at the far end. alpha mu_f =
    1/128 is the most that the dynamic theorem ever allows, so that the leader does arrive."""
    target = 0.8 * draws.unit(OUTER_DIM)
    A, b = _orthonormal(draws), draws.settle(INNER_DIM, 0.3)
    p = target + draws.settle(OUTER_DIM, 0.3)
    return affine(
        _ball(), draws.horizon, start=-target, A=A, b=b, Q=1.0, p=p, R=1.0, q=p @ A.T + b,
        start_gap=0.5,
    )  # fmt: skip


def crossing(draws: Draws) -> Instance:
    """Return a way from one end of a diameter to a fixed optimum at the other. With a steep
    answer, |dy*/dx| = kappa_g = 10, the curvature (1 + kappa_g^2) ell_f1 of phi is nearly L_f,
    which is (1 + kappa_g)^2 ell_f1, and losses are so large that the 1 in 1 + L_f of the squared
    bound does not matter: a fifth of the bound is used."""
    end, A = draws.unit(OUTER_DIM), 10.0 * _orthonormal(draws)
    return affine(_ball(), draws.horizon, start=-end, A=A, Q=100.0, p=end, R=100.0, q=A @ end)


def walking(draws: Draws) -> Instance:
    """Return targets that walk, and now and then leave the ball."""
    A, b = _slope(draws), draws.walk(INNER_DIM, 0.05)
    p = draws.generator.normal(size=OUTER_DIM) + draws.walk(OUTER_DIM, 0.1)
    return affine(
        _ball(), draws.horizon, A=A, H=draws.curvature(INNER_DIM, 2.5), b=b,
        Q=draws.generator.uniform(0.5, 1.0, OUTER_DIM), p=p, R=1.0,
        q=b + draws.walk(INNER_DIM, 0.1), start_gap=1.0,
    )  # fmt: skip


def jumping(draws: Draws) -> Instance:
    """Return targets that jump eight times and stand still in between."""
    A, b = _slope(draws), draws.jump(INNER_DIM, 0.3)
    return affine(
        _ball(), draws.horizon, A=A, H=draws.curvature(INNER_DIM, 1.5), b=b, Q=1.0,
        p=draws.jump(OUTER_DIM, 0.7), R=0.5, q=b + draws.jump(INNER_DIM, 0.7),
    )  # fmt: skip


def turning_active(draws: Draws) -> Instance:
    """Return a follower whose slope A_t turns, with targets outside the ball, which always
    binds."""
    p = 3.0 * draws.unit(OUTER_DIM) + draws.scatter(OUTER_DIM, 0.3)
    b = draws.walk(INNER_DIM, 0.05)
    return affine(
        _ball(), draws.horizon, b=b, Q=1.0, p=p, R=0.2, q=b,
        A=draws.turning((INNER_DIM, OUTER_DIM)), H=draws.curvature(INNER_DIM, 2.0), start_gap=0.2,
    )  # fmt: skip


def pressed(draws: Draws) -> Instance:
    """Return a way from a point of the sphere towards targets far outside: every step leaves the
    ball and has to be projected."""
    end, b = draws.unit(OUTER_DIM), draws.settle(INNER_DIM, 0.1)
    return affine(
        _ball(), draws.horizon, start=end, A=_slope(draws), b=b, Q=1.0, R=0.2, q=b,
        p=4.0 * end + draws.settle(OUTER_DIM, 0.3), H=draws.curvature(INNER_DIM, 2.0),
        start_gap=0.2,
    )  # fmt: skip


def scattered(draws: Draws) -> Instance:
    """Return independent targets: the best fixed x is near their mean."""
    A, b = _slope(draws), draws.settle(INNER_DIM, 0.3)
    return affine(
        _ball(), draws.horizon, A=A, H=draws.curvature(INNER_DIM, 2.0), b=b, Q=1.0,
        p=draws.scatter(OUTER_DIM, 1.0), R=0.5, q=b + draws.scatter(INNER_DIM, 1.0), start_gap=0.5,
    )  # fmt: skip


def _flipping(draws: Draws, most: float) -> tuple[Numbers, Numbers, Numbers]:
    """Return A, c and d of +-(u'x + k v'y) / sqrt(1 + k^2) with y* = k v u'x and k <= most: the
    gradient of phi_t is +-sqrt(1 + k^2) u, which is ell_f0 sqrt(1 + L_y^2), the largest there
    is."""
    k = draws.generator.uniform(1.0, most)
    u, v = np.eye(OUTER_DIM)[0], draws.unit(INNER_DIM)
    size = np.sqrt(1.0 + k**2)
    alternating = draws.signs() / size
    return k * np.outer(v, u), alternating * u, alternating * k * v


def flipping(draws: Draws, most: float = 2.0) -> Instance:
    """Return losses of alternating sign, with x_1 on the wrong side: the static bound is nearly
    tight."""
    start, mu = np.eye(OUTER_DIM)[0], draws.generator.uniform(0.5, 2.0)
    A, c, d = _flipping(draws, most)
    return affine(_ball(), draws.horizon, start=start, A=A, Q=mu, c=c, d=d)


def flipping_steep(draws: Draws) -> Instance:
    """Return the same with slopes of up to 10: printed bounds fail by factors (erratum 1)."""
    return flipping(draws, most=10.0)


# --- convex, on a box -----------------------------------------------------------------------------


def arriving(draws: Draws) -> Instance:
    """Return a way from one end of an interval to an optimum near its other end, with kappa_g =
    1: the leader's part of the dynamic bound, D^2 / (2 alpha), is nearly used up."""
    direction, v = np.eye(OUTER_DIM)[0], draws.unit(INNER_DIM)
    A = np.outer(v, direction)
    optima = 0.8 + np.clip(draws.settle(1, 0.05), -0.15, 0.15) * direction
    optima = optima * direction
    b = draws.settle(INNER_DIM, 0.1)
    return affine(
        _interval(), draws.horizon, start=-direction, A=A, b=b, Q=direction, p=optima, R=1.0,
        q=b + optima @ A.T, optima=optima,
    )  # fmt: skip


def crossing_box(draws: Draws) -> Instance:
    """Return a way along the whole interval to a fixed optimum, with kappa_g = 1. With a small
    alpha the leader's part D^2 / (2 alpha) is nearly the whole bound, and half of it is the
    regret."""
    end, v = np.eye(OUTER_DIM)[0], draws.unit(INNER_DIM)
    A = np.outer(v, end)
    return affine(
        _interval(), draws.horizon, start=-end, A=A, Q=end, p=end, R=1.0, q=A @ end,
        optima=np.broadcast_to(end, (draws.horizon, OUTER_DIM)),
    )  # fmt: skip


def _ball() -> Ball:
    return Ball(1.0)


def _interval() -> Box:
    """Return [-1, 1] x {0}, whose diameter is 2."""
    return Box(np.array([-1.0, 0.0]), np.array([1.0, 0.0]))


def _square() -> Box:
    return Box(-np.ones(OUTER_DIM), np.ones(OUTER_DIM))


def _planted(draws: Draws, optima: Numbers, *, R: float = 0.0, s: float = 0.0) -> Instance:
    """Return losses with q_t = A o_t + b_t, so that o_t is a global minimiser: gradients vanish
    at the optima."""
    A, b = _rank_one(draws), draws.walk(INNER_DIM, 0.05)
    optima = 0.9 * optima / np.maximum(1.0, np.abs(optima).max(axis=1, keepdims=True))
    return affine(
        _square(), draws.horizon, A=A, H=draws.curvature(INNER_DIM, 2.5), b=b, q=b + optima @ A.T,
        optima=optima, start_gap=0.5, R=R, s=s,
    )  # fmt: skip


def planted_walk(draws: Draws) -> Instance:
    """Return log cosh losses whose interior minimisers walk."""
    return _planted(draws, draws.walk(OUTER_DIM, 0.1), s=1.0)


def planted_jumps(draws: Draws) -> Instance:
    """Return log cosh losses whose interior minimisers jump."""
    return _planted(draws, draws.jump(OUTER_DIM, 0.7), s=1.0)


def planted_quadratic(draws: Draws) -> Instance:
    """Return quadratics of rank one with independent minimisers: path lengths of order T."""
    return _planted(draws, draws.scatter(OUTER_DIM, 0.5), R=1.0)


def pressed_edge(draws: Draws) -> Instance:
    """Return a way from a corner along the diagonal towards minimisers inside. The gradients
    vanish there, but every step leaves the square across its edge until the leader has slid
    along it."""
    diagonal, b = np.full(OUTER_DIM, np.sqrt(0.5)), draws.settle(INNER_DIM, 0.1)
    A = np.outer(draws.unit(INNER_DIM), diagonal)
    optima = 0.7 * np.ones(OUTER_DIM) + np.clip(draws.settle(1, 0.05), -0.15, 0.15)
    return affine(
        _square(), draws.horizon, start=np.array([1.0, -1.0]), A=A, b=b, R=1.0,
        q=b + optima @ A.T, optima=optima, H=draws.curvature(INNER_DIM, 1.5), start_gap=0.2,
    )  # fmt: skip


def flipping_linear(draws: Draws, most: float = 2.0) -> Instance:
    """Return linear losses of alternating sign: the regret is of order sqrt(T), nearly at the
    static bound."""
    A, c, d = _flipping(draws, most)
    return affine(_interval(), draws.horizon, start=np.eye(OUTER_DIM)[0], A=A, c=c, d=d)


def flipping_linear_steep(draws: Draws) -> Instance:
    """Return the same with slopes of up to 10: the steps move x from end to end for k^2 rounds."""
    return flipping_linear(draws, most=10.0)


def bent_scatter(draws: Draws) -> Instance:
    """Return log cosh losses with independent targets."""
    b = draws.settle(INNER_DIM, 0.3)
    return affine(
        _square(), draws.horizon, A=_rank_one(draws), b=b, s=1.0, H=draws.curvature(INNER_DIM, 2.5),
        q=b + draws.scatter(INNER_DIM, 1.0), start_gap=0.5,
    )  # fmt: skip


def biased_corner(draws: Draws) -> Instance:
    """Return linear losses with a bias: the best fixed x is a corner of the box."""
    bias = 0.5 * np.sign(draws.generator.normal(size=OUTER_DIM))
    return affine(
        _square(), draws.horizon, A=_slope(draws), s=0.2, H=draws.curvature(INNER_DIM, 1.5),
        b=draws.settle(INNER_DIM, 0.2), c=bias + draws.scatter(OUTER_DIM, 0.5), start_gap=0.5,
    )  # fmt: skip


def turning_bent(draws: Draws) -> Instance:
    """Return log cosh losses under a turning slope: the follower's path at the fixed x depends
    on x."""
    A = draws.turning((INNER_DIM, OUTER_DIM))
    A = A / np.maximum(1.0, spectral(A))[:, None, None]
    return affine(
        _square(), draws.horizon, A=A, s=1.0, start_gap=0.2, H=draws.curvature(INNER_DIM, 2.0),
        q=draws.scatter(INNER_DIM, 1.0),
    )  # fmt: skip
