"""The two small games of the paper's Appendices A.1 and C.1, with everything in closed form."""

import jax.numpy as jnp
import numpy as np

from .._support import validation
from .._support.typed import typed
from ..domain import Box
from ..problem import Problem
from .instance import Instance

SEQUENCES = ("inner", "outer")


@typed
def comparability(horizon: int, sequence: str = "inner") -> Instance:
    """Example 1 of Appendix A.1: path lengths that do not bound each other. With x in [-1, 1],

        f_t = (x + 2 a_t)^2 / 2 + (y - b_t)^2 / 2,    g_t = y^2 / 2 - (x - b_t) y,

    so that y*_t(x) = x - b_t, x*_t = b_t - a_t and y*_t(x*_t) = -a_t (the paper prints a_t; path
    lengths do not see the sign). Always b_t = (-1)^t / sqrt(t).

    - `sequence="inner"`: a_t = b_t. Then P = 0 while Y_1 grows like sqrt(T) and Y_2 like log T.
    - `sequence="outer"`: a_t = 0. Then Y = 0 while P_1 grows like sqrt(T) and P_2 like log T.
    """
    validation.one_of(sequence, SEQUENCES, "sequence")
    t = np.arange(1, validation.count(horizon, "horizon") + 1)
    b = (-1.0) ** t / np.sqrt(t)
    a = b if sequence == "inner" else np.zeros_like(b)
    problem = Problem(
        outer=lambda x, y, round: (x + 2 * round["a"]) ** 2 / 2 + (y - round["b"]) ** 2 / 2,
        inner=lambda x, y, round: y**2 / 2 - (x - round["b"]) * y,
        domain=Box(-1.0, 1.0),
        inner_argmin=lambda x, round: x - round["b"],
        outer_argmin=lambda round: round["b"] - round["a"],
    )
    rounds = {"a": jnp.asarray(a, float), "b": jnp.asarray(b, float)}
    return Instance(problem, rounds, jnp.zeros(()), jnp.zeros(()))


@typed
def lower_bound_game(horizon: int, seed: int = 0) -> Instance:
    """The game in the proof of Theorem 5 (lower bound): nobody can do better than S_{2,T}. With
    a_t, b_t independent standard normal,

        f_t = 6 (y - a_t - b_t)^2 + 6 (x - a_t)^2,    g_t = y^2 / 2 - (x + b_t) y,

    so that y*_t(x) = x + b_t, x*_t = a_t, and f_t(x, y*_t(x)) = 12 (x - a_t)^2 (the paper prints 6,
    which the lower bound does not need).
    """
    draws = np.random.default_rng(seed).standard_normal((2, validation.count(horizon, "horizon")))
    problem = Problem(
        outer=lambda x, y, round: (
            6 * (y - round["a"] - round["b"]) ** 2 + 6 * (x - round["a"]) ** 2
        ),
        inner=lambda x, y, round: y**2 / 2 - (x + round["b"]) * y,
        inner_argmin=lambda x, round: x + round["b"],
        outer_argmin=lambda round: round["a"],
    )
    rounds = {"a": jnp.asarray(draws[0], float), "b": jnp.asarray(draws[1], float)}
    return Instance(problem, rounds, jnp.zeros(()), jnp.zeros(()))
