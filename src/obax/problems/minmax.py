"""Online min-max: the follower's loss is the leader's with the sign turned.

    min_{x in X} max_y f_t(x, y),    g_t = -f_t,
    f_t(x, y) = p |x - a_t|^2 / 2 + x^T B_t y - q |y - b_t|^2 / 2

with B_t = s (the first d1 rows of a slowly turning rotation of R^d2), so that B_t B_t^T = s^2 I.
Then y*_t(x) = b_t + B_t^T x / q; there grad_y f = 0, so that the gradient of the value is grad_x f
alone; and its Hessian, (p + s^2 / q) I, makes the minimiser over a box the clipped one.
"""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from .._support import validation
from .._support.trees import PyTree
from ..domain import Box
from ..problem import Problem
from .instance import Instance
from .quadratic import _turning, _walk


def online_minmax(
    horizon: int,
    outer_dim: int = 2,
    inner_dim: int = 3,
    *,
    convexity: float = 0.5,
    concavity: float = 1.0,
    coupling: float = 1.0,
    drift: float = 0.05,
    radius: float = 1.0,
    box: float = 2.0,
    seed: int = 0,
) -> Instance:
    """A strongly convex, strongly concave stream of games with its saddle points in closed form.

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
    for value, name in ((outer_dim, "outer_dim"), (inner_dim, "inner_dim"), (horizon, "horizon")):
        validation.count(value, name)
    if outer_dim > inner_dim:
        raise ValueError(
            f"outer_dim must be at most inner_dim = {inner_dim}, but got {outer_dim}: the saddle "
            f"point is known in closed form only then."
        )
    for number, name in ((convexity, "convexity"), (concavity, "concavity"), (box, "box")):
        if not number > 0:
            raise ValueError(f"{name} must be a number > 0, but got {number!r}.")
    for number, name in ((coupling, "coupling"), (drift, "drift")):
        if not number >= 0:
            raise ValueError(f"{name} must be a number >= 0, but got {number!r}.")
    rng = np.random.default_rng(seed)
    constant = {"p": convexity, "q": concavity, "box": box}
    arrays = {
        "coupling": coupling * _turning(rng, inner_dim, horizon, drift)[:, :outer_dim],
        "a": _walk(rng, horizon, outer_dim, drift, radius),
        "b": _walk(rng, horizon, inner_dim, drift, radius),
    } | {name: np.full(horizon, float(value)) for name, value in constant.items()}
    rounds = {name: jnp.asarray(value, float) for name, value in arrays.items()}
    problem = Problem(_outer, _inner, Box(-box, box), _inner_argmin, _outer_argmin)
    return Instance(problem, rounds, jnp.zeros(outer_dim), jnp.zeros(inner_dim))


def _outer(x: Array, y: Array, round: PyTree) -> Array:
    own = round["p"] * jnp.sum((x - round["a"]) ** 2) - round["q"] * jnp.sum((y - round["b"]) ** 2)
    return 0.5 * own + x @ round["coupling"] @ y


def _inner(x: Array, y: Array, round: PyTree) -> Array:
    return -_outer(x, y, round)


def _inner_argmin(x: Array, round: PyTree) -> Array:
    return round["b"] + round["coupling"].T @ x / round["q"]


def _outer_argmin(round: PyTree) -> Array:
    strength = jnp.sum(round["coupling"][0] ** 2)
    pull = round["p"] * round["a"] - round["coupling"] @ round["b"]
    return jnp.clip(pull / (round["p"] + strength / round["q"]), -round["box"], round["box"])
