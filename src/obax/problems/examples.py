"""The two small games of the paper's Appendices A.1 and C.1, with everything in closed form."""

from typing import Annotated

import jax.numpy as jnp
import numpy as np

from .._support.checks import Count, Seed, checked, one_of
from ..domain import Box
from ..problem import Problem
from .instance import Instance, in_rounds

Sequence = Annotated[str, one_of("inner", "outer")]


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
