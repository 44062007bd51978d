"""Robust regression as min-max: a model whose loss on its worst group is small.

Group-DRO (Sagawa et al., 2020), online. With l_k the mean squared error on group k of the round,
the leader fits x and the follower weights the groups to make its loss large, on the simplex:

    f_t(x, y) = sum_k y_k l_k(x) - (rho / 2) |y - 1/K|^2 + (ridge / 2) |x|^2,    g_t = -f_t,
    y*(x) = projection on the simplex of  1/K + l(x) / rho.

With a large rho all groups count alike, with a small one only the worst does. Groups with a small
loss have y_k = 0: the follower is on a face of the simplex and moves along it only.
"""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._support.checks import Count, NonNegative, Positive, Seed, checked
from .._support.trees import PyTree
from ..domain import Simplex
from ..problem import Problem
from .instance import Instance, in_rounds, linear_samples, random_walk


@checked
def robust_regression(
    horizon: Count,
    groups: Count = 4,
    features: Count = 3,
    *,
    samples: Count = 20,
    spread: NonNegative = 1.0,
    noise: NonNegative = 0.1,
    rho: Positive = 0.5,
    ridge: Positive = 0.01,
    drift: NonNegative = 0.01,
    seed: Seed = 0,
) -> Instance:
    """Return a stream of samples from groups whose linear models differ.

    **Arguments:**

    - `horizon`, `groups`, `features`: T, K, and the length of x.
    - `samples`: of each group in a round.
    - `spread`: how far a group's own model is from the common one; the common one drifts by `drift`
      in a round.
    - `noise`: standard deviation of the targets.
    - `rho`, `ridge`: how strongly the groups' weights are drawn to 1/K, and x to 0.

    >>> stream = robust_regression(2)
    >>> round = {"a": jnp.ones((4, 1, 3)), "b": jnp.array([[0.0], [0.0], [0.0], [2.0]])}
    >>> round |= {"rho": jnp.asarray(2.0), "ridge": jnp.asarray(0.0)}
    >>> print(stream.problem.inner_argmin(jnp.zeros(3), round))
    [0. 0. 0. 1.]
    """
    rng = np.random.default_rng(seed)
    own = spread * rng.standard_normal((groups, features))
    models = random_walk(rng, horizon, features, drift, 1.0)[:, None] + own
    a, b = linear_samples(rng, models, samples, noise)
    rounds = in_rounds(horizon, {"a": a, "b": b, "rho": rho, "ridge": ridge})
    problem = Problem(_outer, _inner, inner_argmin=_inner_argmin, inner_domain=Simplex())
    return Instance(problem, rounds, jnp.zeros(features), jnp.full(groups, 1 / groups, float))


def group_losses(x: Array, round: PyTree) -> Float[Array, " groups"]:
    """Return l_k(x), half the mean squared error on each group."""
    return 0.5 * jnp.mean((round["a"] @ x - round["b"]) ** 2, axis=1)


def _outer(x: Array, y: Array, round: PyTree) -> Array:
    pull = 0.5 * round["rho"] * jnp.sum((y - 1 / y.size) ** 2)
    return y @ group_losses(x, round) - pull + 0.5 * round["ridge"] * jnp.sum(x**2)


def _inner(x: Array, y: Array, round: PyTree) -> Array:
    return -_outer(x, y, round)


def _inner_argmin(x: Array, round: PyTree) -> Array:
    losses = group_losses(x, round)
    return Simplex().project(1 / losses.size + losses / round["rho"])
