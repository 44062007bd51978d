"""Streams of quadratic bilevel problems and of games whose solutions are known.

They are random ones, and the small games of the paper's Appendices A.1 and C.1.
"""

from collections.abc import Mapping
from typing import Annotated, Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from .._support.checks import Count, NonNegative, Positive, Seed, checked, one_of, within
from .._support.trees import PyTree
from ..domain import Box
from ..problem import Problem
from ..theory import Constants
from .instance import Instance, in_rounds, random_walk

Sequence = Annotated[str, one_of("inner", "outer")]
Ratio = Annotated[float, within("a number >= 1", lambda value: value >= 1)]


@checked
def quadratic(
    horizon: Count,
    outer_dim: Count = 2,
    inner_dim: Count = 3,
    *,
    condition: Ratio = 4.0,
    drift: NonNegative = 0.05,
    outer_condition: Ratio = 1.0,
    radius: NonNegative = 1.0,
    box: Positive = 2.0,
    seed: Seed = 0,
) -> Instance:
    """Return a strongly convex quadratic stream with exact constants.

        g_t(x, y) = (y - B_t x - c_t)^T A_t (y - B_t x - c_t) / 2
        f_t(x, y) = q |y - d_t|^2 / 2 + (x - e_t)^T R (x - e_t) / 2

    With A_t = U_t diag(a) U_t^T and B_t = U_t S, U_t a slowly turning rotation, S rectangular
    diagonal and q = 1, y*_t(x) = B_t x + c_t, and the Hessian of f_t(x, y*_t(x)), q S^T S + R, is
    diagonal: the minimiser over a box is the clipped minimiser over R^d.

    **Arguments:**

    - `horizon`, `outer_dim`, `inner_dim`: T, d1, d2.
    - `condition`: largest over smallest eigenvalue of the inner Hessian A_t, which lie in
      [1, condition].
    - `drift`: how far the targets c_t, d_t, e_t move in a round (the length of a step of a random
      walk that is kept within `radius`), and the angle by which the rotation turns; 0 for a problem
      that does not change.
    - `outer_condition`: largest over smallest entry of R.
    - `box`: the domain is [-box, box]^d1. For small boxes the constraint is active.
    - `seed`: of all random numbers.

    `constants` are exact for the sequence on that domain, with the follower started at zero: y
    stays in a ball that the inner iteration with step 2 / (ell_g1 + mu_g) cannot leave.
    """
    rng = np.random.default_rng(seed)
    diagonal = min(outer_dim, inner_dim)
    spectrum = np.geomspace(1.0, condition, inner_dim) if inner_dim > 1 else np.ones(1)
    stretch = np.zeros((inner_dim, outer_dim))
    stretch[np.arange(diagonal), np.arange(diagonal)] = rng.uniform(0.5, 1.0, diagonal)
    ridge = np.geomspace(1.0, outer_condition, outer_dim) if outer_dim > 1 else np.ones(1)

    rotations = _turning(rng, inner_dim, horizon, drift)
    hessian = np.einsum("tij,j,tkj->tik", rotations, spectrum, rotations)
    answer = rotations @ stretch
    shift = random_walk(rng, horizon, inner_dim, drift, radius)
    target = random_walk(rng, horizon, inner_dim, drift, radius)
    center = random_walk(rng, horizon, outer_dim, drift, radius)
    values: dict[str, Any] = {"hessian": hessian, "answer": answer, "shift": shift}
    values |= {"target": target, "center": center, "box": box}
    values["ridge"] = np.broadcast_to(ridge, center.shape)
    rounds = in_rounds(horizon, values)
    problem = Problem(_outer, _inner, Box(-box, box), _inner_argmin, _outer_argmin)
    constants = _constants(spectrum, stretch, ridge, values)
    return Instance(problem, rounds, jnp.zeros(outer_dim), jnp.zeros(inner_dim), constants)


def _outer(x: Array, y: Array, round: PyTree) -> Array:
    leader = jnp.sum(round["ridge"] * (x - round["center"]) ** 2)
    return 0.5 * jnp.sum((y - round["target"]) ** 2) + 0.5 * leader


def _inner(x: Array, y: Array, round: PyTree) -> Array:
    error = y - _inner_argmin(x, round)
    return 0.5 * error @ round["hessian"] @ error


def _inner_argmin(x: Array, round: PyTree) -> Array:
    return round["answer"] @ x + round["shift"]


def _outer_argmin(round: PyTree) -> Array:
    pull = round["answer"].T @ (round["target"] - round["shift"])
    bend = jnp.sum(round["answer"] ** 2, axis=0) + round["ridge"]
    free = (pull + round["ridge"] * round["center"]) / bend
    return jnp.clip(free, -round["box"], round["box"])


def _constants(
    spectrum: np.ndarray, stretch: np.ndarray, ridge: np.ndarray, values: Mapping[str, Any]
) -> Constants:
    shift, target, center, box = (values[name] for name in ("shift", "target", "center", "box"))
    # The Hessian of g in (x, y), in the rotated coordinates in which it does not depend on t.
    cross = spectrum[:, None] * stretch
    whole = np.block([[stretch.T @ cross, -cross.T], [-cross, np.diag(spectrum)]])
    ell_g1, mu_g = float(np.linalg.norm(whole, 2)), float(spectrum[0])
    outer_dim = len(ridge)
    farthest_x = box * np.sqrt(outer_dim)
    answers = np.linalg.norm(stretch, 2) * farthest_x + np.linalg.norm(shift, axis=1).max()
    # A step contracts by (kappa - 1) / (kappa + 1) towards a point within `answers` of zero, so
    # from zero the iterates stay within kappa times that.
    reach = answers * ell_g1 / mu_g
    pull_y = reach + np.linalg.norm(target, axis=1).max()
    pull_x = np.linalg.norm(ridge * (box + np.abs(center)), axis=1).max()
    size_x = float(np.max(np.sum(ridge * (box + np.abs(center)) ** 2, axis=1)))
    return Constants(
        ell_f0=float(np.hypot(pull_x, pull_y)),
        ell_f1=float(max(1.0, ridge.max())),
        ell_g1=ell_g1,
        ell_g2=0.0,
        mu_g=mu_g,
        mu_f=float(np.min(np.sum(stretch**2, axis=0) + ridge)),
        D=2 * float(farthest_x),
        D_prime=float(np.linalg.norm(shift[0])),
        M=0.5 * float(pull_y**2 + size_x),
    )


@checked
def online_minmax(
    horizon: Count,
    outer_dim: Count = 2,
    inner_dim: Count = 3,
    *,
    convexity: Positive = 0.5,
    concavity: Positive = 1.0,
    coupling: NonNegative = 1.0,
    drift: NonNegative = 0.05,
    radius: NonNegative = 1.0,
    box: Positive = 2.0,
    seed: Seed = 0,
) -> Instance:
    """Return a strongly convex, strongly concave stream of games with known saddle points.

        min_{x in X} max_y f_t(x, y),    g_t = -f_t,
        f_t(x, y) = p |x - a_t|^2 / 2 + x^T B_t y - q |y - b_t|^2 / 2

    with B_t = s (the first d1 rows of a slowly turning rotation of R^d2), so that B_t B_t^T =
    s^2 I. Then y*_t(x) = b_t + B_t^T x / q; there grad_y f = 0, so that the gradient of the value
    is grad_x f alone; and its Hessian, (p + s^2 / q) I, makes the minimiser over a box the clipped
    one.

    **Arguments:**

    - `horizon`, `outer_dim`, `inner_dim`: T, d1 <= d2.
    - `convexity`, `concavity`, `coupling`: p, q and s above.
    - `drift`: how far a_t and b_t move in a round, within `radius`, and the angle by which the
      coupling turns.
    - `box`: the leader's domain is [-box, box]^d1.

    >>> stream = online_minmax(3)
    >>> problem, round = stream.problem, {k: leaf[0] for k, leaf in stream.rounds.items()}
    >>> x, y = jnp.ones(2), jnp.ones(3)
    >>> bool(problem.inner(x, y, round) == -problem.outer(x, y, round))
    True
    """
    if outer_dim > inner_dim:
        raise ValueError(
            f"outer_dim must be at most inner_dim = {inner_dim}, but got {outer_dim}: the saddle "
            f"point is known in closed form only then."
        )
    rng = np.random.default_rng(seed)
    values = {
        "coupling": coupling * _turning(rng, inner_dim, horizon, drift)[:, :outer_dim],
        "a": random_walk(rng, horizon, outer_dim, drift, radius),
        "b": random_walk(rng, horizon, inner_dim, drift, radius),
    }
    rounds = in_rounds(horizon, values | {"p": convexity, "q": concavity, "box": box})
    problem = Problem(_game, _negative_game, Box(-box, box), _game_inner_argmin, _game_outer_argmin)
    return Instance(problem, rounds, jnp.zeros(outer_dim), jnp.zeros(inner_dim))


def _game(x: Array, y: Array, round: PyTree) -> Array:
    own = round["p"] * jnp.sum((x - round["a"]) ** 2) - round["q"] * jnp.sum((y - round["b"]) ** 2)
    return 0.5 * own + x @ round["coupling"] @ y


def _negative_game(x: Array, y: Array, round: PyTree) -> Array:
    return -_game(x, y, round)


def _game_inner_argmin(x: Array, round: PyTree) -> Array:
    return round["b"] + round["coupling"].T @ x / round["q"]


def _game_outer_argmin(round: PyTree) -> Array:
    strength = jnp.sum(round["coupling"][0] ** 2)
    pull = round["p"] * round["a"] - round["coupling"] @ round["b"]
    return jnp.clip(pull / (round["p"] + strength / round["q"]), -round["box"], round["box"])


def _turning(rng: np.random.Generator, size: int, horizon: int, angle: float) -> np.ndarray:
    """Return rotations exp(t K) of one skew matrix K, turning by at most `angle` per round."""
    square = rng.standard_normal((size, size))
    skew = square - square.T
    frequencies, vectors = np.linalg.eigh(1j * skew)
    frequencies *= angle / max(np.abs(frequencies).max(), 1e-300)
    phases = np.exp(-1j * np.arange(horizon)[:, None] * frequencies)
    return np.einsum("ij,tj,kj->tik", vectors, phases, vectors.conj()).real


@checked
def comparability(horizon: Count, sequence: Sequence = "inner") -> Instance:
    """Return Example 1 of Appendix A.1: path lengths of which neither bounds the other.

    With x in [-1, 1],

        f_t = (x + 2 a_t)^2 / 2 + (y - b_t)^2 / 2,    g_t = y^2 / 2 - (x - b_t) y,

    so that y*_t(x) = x - b_t, x*_t = b_t - a_t and y*_t(x*_t) = -a_t (the paper prints a_t; path
    lengths do not see the sign). Always b_t = (-1)^t / sqrt(t).

    - `sequence="inner"`: a_t = b_t. Then P = 0 while Y_1 grows like sqrt(T) and Y_2 like log T.
    - `sequence="outer"`: a_t = 0. Then Y = 0 while P_1 grows like sqrt(T) and P_2 like log T.
    """
    t = np.arange(1, horizon + 1)
    b = (-1.0) ** t / np.sqrt(t)
    a = b if sequence == "inner" else np.zeros_like(b)
    problem = Problem(
        outer=lambda x, y, round: (x + 2 * round["a"]) ** 2 / 2 + (y - round["b"]) ** 2 / 2,
        inner=lambda x, y, round: y**2 / 2 - (x - round["b"]) * y,
        domain=Box(-1.0, 1.0),
        inner_argmin=lambda x, round: x - round["b"],
        outer_argmin=lambda round: round["b"] - round["a"],
    )
    rounds = in_rounds(horizon, {"a": a, "b": b})
    return Instance(problem, rounds, jnp.zeros(()), jnp.zeros(()))


@checked
def lower_bound_game(horizon: Count, seed: Seed = 0) -> Instance:
    """Return the game in the proof of Theorem 5: no algorithm has expected regret below S_{2,T}.

    With a_t, b_t independent standard normal,

        f_t = 6 (y - a_t - b_t)^2 + 6 (x - a_t)^2,    g_t = y^2 / 2 - (x + b_t) y,

    so that y*_t(x) = x + b_t, x*_t = a_t, and f_t(x, y*_t(x)) = 12 (x - a_t)^2 (the paper prints 6,
    which the lower bound does not need).
    """
    draws = np.random.default_rng(seed).standard_normal((2, horizon))
    problem = Problem(
        outer=lambda x, y, round: (
            6 * (y - round["a"] - round["b"]) ** 2 + 6 * (x - round["a"]) ** 2
        ),
        inner=lambda x, y, round: y**2 / 2 - (x + round["b"]) * y,
        inner_argmin=lambda x, round: x + round["b"],
        outer_argmin=lambda round: round["a"],
    )
    rounds = in_rounds(horizon, {"a": draws[0], "b": draws[1]})
    return Instance(problem, rounds, jnp.zeros(()), jnp.zeros(()))
