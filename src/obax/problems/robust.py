"""Robust regression as min-max: a model that is good on the group that it is worst on.

Group-DRO (Sagawa et al., 2020), online. With l_k the mean squared error on group k of the round,
the leader fits x and the follower weighs the groups against it, on the simplex:

    f_t(x, y) = sum_k y_k l_k(x) - (rho / 2) |y - 1/K|^2 + (ridge / 2) |x|^2,    g_t = -f_t,
    y*(x) = projection on the simplex of  1/K + l(x) / rho.

Large rho: all groups count alike; small rho: only the worst does. Groups that are not worth any
weight have y_k = 0: the follower is on a face of its set, and moves along it only.
"""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._support import validation
from .._support.trees import PyTree
from .._support.typed import typed
from ..domain import Simplex
from ..problem import Problem
from .instance import Instance
from .quadratic import walk


@typed
def robust_regression(
    horizon: int,
    groups: int = 4,
    features: int = 3,
    *,
    samples: int = 20,
    spread: float = 1.0,
    noise: float = 0.1,
    rho: float = 0.5,
    ridge: float = 0.01,
    drift: float = 0.01,
    seed: int = 0,
) -> Instance:
    """A stream of samples from groups whose models differ.

    **Arguments:**

    - `horizon`, `groups`, `features`: T, K, and the length of x.
    - `samples`: of each group in a round.
    - `spread`: how far a group's own model is from the common one; the common one drifts by `drift`
      in a round.
    - `noise`: standard deviation of the targets.
    - `rho`, `ridge`: what holds the groups' weights at 1/K, and x at 0.

    >>> stream = robust_regression(2)
    >>> round = {"a": jnp.ones((4, 1, 3)), "b": jnp.array([[0.0], [0.0], [0.0], [2.0]])}
    >>> round |= {"rho": jnp.asarray(2.0), "ridge": jnp.asarray(0.0)}
    >>> print(stream.problem.inner_argmin(jnp.zeros(3), round))
    [0. 0. 0. 1.]
    """
    for value, name in ((horizon, "horizon"), (groups, "groups"), (features, "features"),
                        (samples, "samples")):  # fmt: skip
        validation.count(value, name)
    for number, name in ((rho, "rho"), (ridge, "ridge")):
        if not number > 0:
            raise ValueError(f"{name} must be a number > 0, but got {number!r}.")
    rng = np.random.default_rng(seed)
    own = spread * rng.standard_normal((groups, features))
    model = walk(rng, horizon, features, drift, 1.0)[:, None] + own
    a = rng.standard_normal((horizon, groups, samples, features))
    b = np.einsum("tknd,tkd->tkn", a, model) + noise * rng.standard_normal(a.shape[:3])
    arrays = {"a": a, "b": b, "rho": np.full(horizon, rho), "ridge": np.full(horizon, ridge)}
    rounds = {name: jnp.asarray(value, float) for name, value in arrays.items()}
    problem = Problem(_outer, _inner, inner_argmin=_inner_argmin, inner_domain=Simplex())
    return Instance(problem, rounds, jnp.zeros(features), jnp.full(groups, 1 / groups, float))


def group_losses(x: Array, round: PyTree) -> Float[Array, " groups"]:
    """l_k(x): half the mean squared error on each group."""
    return 0.5 * jnp.mean((round["a"] @ x - round["b"]) ** 2, axis=1)


def _outer(x: Array, y: Array, round: PyTree) -> Array:
    pull = 0.5 * round["rho"] * jnp.sum((y - 1 / y.size) ** 2)
    return y @ group_losses(x, round) - pull + 0.5 * round["ridge"] * jnp.sum(x**2)


def _inner(x: Array, y: Array, round: PyTree) -> Array:
    return -_outer(x, y, round)


def _inner_argmin(x: Array, round: PyTree) -> Array:
    losses = group_losses(x, round)
    return Simplex().project(1 / losses.size + losses / round["rho"])
