r"""Families for the non-convex setting: a wave over a curved follower, on all of $\mathbb{R}^2$.

$$ f_t = \tfrac13 \sum_{i=1}^3 \cos(v_i'(x, y) + \theta_{t,i}), \qquad
   g_t = \tfrac12 y'Hy - y'(Bx + b_t) + \tau \sum_i \log\cosh(r_i'(x, y)). $$

$|f_t| \leq M = 1$, $\ell_{f,0}$ and $\ell_{f,1}$ are the means of $|v_i|$ and $|v_i|^2$, and with
$R = [R_x, R_y]$ of rows $r_i$

$$ \mu_g = \lambda_{\min}(H), \quad
   \ell_{g,1} = \max(\|H\| + \tau \|R_y\|^2, \|B\| + \tau \|R_x\| \|R_y\|), \quad
   \ell_{g,2} = \tfrac{4}{3 \sqrt 3} \tau \sum_i |r_i|^3, $$

the factor being the largest third derivative of log cosh. $D' = |\nabla_y g_1(x_1, y_1)| / \mu_g$.
"""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from ..._support.trees import PyTree
from ...problem import Problem
from ...problems import Instance
from ...theory import Constants
from .ingredients import Draws, Numbers, spectral

DIM, WAVES, BENDS = 2, 3, 2
NEWTON_STEPS = 10
LOG_COSH_THIRD = 4.0 / (3.0 * math.sqrt(3.0))


class Parts(NamedTuple):
    """Coefficients that are the same in every round, but for B, which may have a leading axis
    for the rounds."""

    V: Numbers
    B: Numbers
    H: Numbers
    R: Numbers
    tau: float


def _instance(start: Numbers, parts: Parts, phase: Numbers, b: Numbers) -> Instance:
    horizon, (V, B, H, R, tau) = len(phase), parts
    fixed = {
        name: np.broadcast_to(value, (horizon, *np.shape(value)))
        for name, value in parts._replace(B=B[0] if B.ndim == 3 else B)._asdict().items()
    }
    if B.ndim == 3:
        fixed["B"] = B
    rounds = {name: jnp.asarray(value) for name, value in {"phase": phase, "b": b, **fixed}.items()}
    lengths, R_x, R_y = np.linalg.norm(V, axis=1), R[:, :DIM], R[:, DIM:]
    mu_g = float(np.linalg.eigvalsh(H).min())
    x, y = jnp.asarray(start), jnp.zeros(DIM)
    first = {name: leaf[0] for name, leaf in rounds.items()}
    slope = float(np.linalg.norm(jax.grad(_inner, argnums=1)(x, y, first)))
    constants = Constants(
        ell_f0=lengths.mean(),
        ell_f1=(lengths**2).mean(),
        ell_g1=max(
            float(spectral(H) + tau * spectral(R_y) ** 2),
            float(spectral(B).max() + tau * spectral(R_x) * spectral(R_y)),
        ),
        ell_g2=tau * LOG_COSH_THIRD * (np.linalg.norm(R, axis=1) ** 3).sum(),
        mu_g=mu_g,
        D_prime=slope / mu_g,
        M=1.0,
    )
    problem = Problem(outer=_outer, inner=_inner, inner_argmin=_inner_argmin)
    return Instance(problem, rounds, x, y, constants)


def _parts(draws: Draws, tau: float) -> Parts:
    V = draws.generator.normal(size=(WAVES, 2 * DIM)) / 2.0
    B = draws.generator.normal(size=(DIM, DIM)) / 2.0
    R = draws.generator.normal(size=(BENDS, 2 * DIM)) / 2.0
    return Parts(V, B, np.diag(np.linspace(1.0, 2.0, DIM)), R, tau)


def curved_settling(draws: Draws) -> Instance:
    """Return a curved follower, with phases and follower that move by steps of length about 1/t."""
    parts = _parts(draws, 0.3)
    phase = np.linspace(0.0, 2.0, WAVES) + draws.settle(WAVES, 0.3)
    return _instance(np.array([0.5, -0.5]), parts, phase, draws.settle(DIM, 0.1))


def curved_walk(draws: Draws) -> Instance:
    """Return a curved follower, with phases and follower that walk."""
    parts, phase = _parts(draws, 0.3), draws.walk(WAVES, 0.1)
    return _instance(np.array([0.5, -0.5]), parts, phase, draws.walk(DIM, 0.02))


def affine_walk(draws: Draws) -> Instance:
    """Return an affine follower: y*_t moves by the same vector wherever x is."""
    parts, phase = _parts(draws, 0.0), draws.walk(WAVES, 0.2)
    return _instance(np.zeros(DIM), parts, phase, draws.walk(DIM, 0.02))


def turning_answer(draws: Draws) -> Instance:
    """Return g_t = |y - a_t x|^2 / 2, up to a term in x alone: the inner Jacobian a_t goes to
    and fro, so that the terms of a window depend on whose Jacobian they use."""
    parts, phase = _parts(draws, 0.0), draws.walk(WAVES, 0.1)
    swing = np.sin(0.5 * np.arange(float(draws.horizon)) + draws.generator.uniform(0.0, 6.0))
    B = (1.0 + 0.5 * swing)[:, None, None] * np.eye(DIM)
    still = np.zeros((draws.horizon, DIM))
    return _instance(np.array([0.5, -0.5]), parts._replace(B=B, H=np.eye(DIM)), phase, still)


def _along(direction: Numbers, size: float, phase: Numbers) -> Instance:
    """Return a wave along one direction of x and y alike; the follower answers y = x, kappa_g =
    1."""
    row = size * np.concatenate([direction, direction]) / math.sqrt(2.0)
    V, R = np.broadcast_to(row, (WAVES, 2 * DIM)), np.zeros((BENDS, 2 * DIM))
    parts = Parts(V, np.eye(DIM), np.eye(DIM), R, 0.0)
    phases, still = np.repeat(phase, WAVES, axis=1), np.zeros((len(phase), DIM))
    return _instance(np.zeros(DIM), parts, phases, still)


def flipping_wave(draws: Draws) -> Instance:
    """Return +-sin at its steepest point: the leader is moved to and fro for ever, and the
    regret with w = 1 is of order T, as near to the bound as a wave gets."""
    direction = np.linalg.qr(draws.generator.normal(size=(DIM, DIM)))[0][:, 0]
    return _along(direction, draws.generator.uniform(0.5, 2.0), 0.5 * math.pi * draws.signs())


def chased_wave(draws: Draws) -> Instance:
    """Return a wave that runs away from a leader sliding down its steep side for ever. F_t
    changes little within a window, so that a long one comes nearest to the bound."""
    direction = np.linalg.qr(draws.generator.normal(size=(DIM, DIM)))[0][:, 0]
    # alpha = 1 / (8 L_f) = 1 / (32 size^2) moves a leader at the steepest point, where
    # phi = cos(sqrt(2) size u + phase), by 1/16 of a radian; the wave runs a little slower.
    phase = 0.5 * math.pi - 0.85 / 16.0 * np.arange(float(draws.horizon))[:, None]
    return _along(direction, 2.0, phase)


def _outer(x: Array, y: Array, round: PyTree) -> Array:
    return jnp.mean(jnp.cos(round["V"] @ jnp.concatenate([x, y]) + round["phase"]))


def _inner(x: Array, y: Array, round: PyTree) -> Array:
    quadratic = 0.5 * jnp.vdot(y, round["H"] @ y) - jnp.vdot(y, round["B"] @ x + round["b"])
    bends = jnp.log(jnp.cosh(round["R"] @ jnp.concatenate([x, y])))
    return quadratic + round["tau"] * jnp.sum(bends)


def _inner_argmin(x: Array, round: PyTree) -> Array:
    """Return the result of full Newton steps. The Hessian lies between H and a little more, and
    the callers measure the residual."""

    def newton(y: Array, _: None) -> tuple[Array, None]:
        gradient = jax.grad(_inner, argnums=1)(x, y, round)
        bend = jax.jacfwd(jax.grad(_inner, argnums=1), argnums=1)(x, y, round)
        return y - jnp.linalg.solve(bend, gradient), None

    return jax.lax.scan(newton, jnp.zeros_like(round["b"]), None, length=NEWTON_STEPS)[0]
