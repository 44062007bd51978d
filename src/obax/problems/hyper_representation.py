"""Online hyper-representation: the leader learns features shared by all tasks, the follower a head.

Every round is a task of its own, b = h_t . (T' a) + noise with a teacher T that all tasks share and
a head h_t that is new. With features x' a, linear, and a ridge head,

    g_t(x, y) = (1 / 2n) sum_i (y . x' a_i - b_i)^2 + (ridge / 2) |y|^2    on the support,
    f_t(x, y) = (1 / 2m) sum_j (y . x' a_j - b_j)^2                        on the query.

What can be learned is the space that T spans: `subspace_error` is the distance of x from it.
"""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from .._support.checks import Count, NonNegative, Positive, Seed, checked
from .._support.trees import PyTree
from ..domain import Ball
from ..problem import Problem
from .instance import Instance, in_rounds


@checked
def hyper_representation(
    horizon: Count,
    inputs: Count = 10,
    features: Count = 2,
    *,
    support: Count = 6,
    query: Count = 20,
    noise: NonNegative = 0.1,
    ridge: Positive = 0.1,
    seed: Seed = 0,
) -> Instance:
    """Return a stream of small tasks, each with fewer samples than inputs, that share features.

    **Arguments:**

    - `horizon`, `inputs`, `features`: T, and the shape of x; y has `features` entries.
    - `support`, `query`: samples of a task, for training and for validation.
    - `noise`, `ridge`: standard deviation of the targets, and the follower's penalty.
    - `seed`: of the teacher, the tasks and x_1. The leader stays in a ball of radius 10, because
      the loss does not change if x grows and y shrinks by the same factor.

    `rounds["teacher"]` is an orthonormal basis of the shared space; the losses do not use it.

    >>> stream = hyper_representation(3)
    >>> teacher = stream.rounds["teacher"][0]
    >>> round(float(subspace_error(teacher @ jnp.array([[2.0, 1.0], [0.0, 1.0]]), teacher)), 6)
    0.0
    """
    if features > inputs:
        raise ValueError(f"features must be at most inputs = {inputs}, but got {features!r}.")
    rng = np.random.default_rng(seed)
    teacher = np.linalg.qr(rng.standard_normal((inputs, features)))[0]
    heads = rng.standard_normal((horizon, features))

    def draw(count: int) -> tuple[np.ndarray, np.ndarray]:
        a = rng.standard_normal((horizon, count, inputs))
        b = np.einsum("tni,ih,th->tn", a, teacher, heads)
        return a, b + noise * rng.standard_normal(b.shape)

    values = {"support": draw(support), "query": draw(query), "ridge": ridge}
    values["teacher"] = np.broadcast_to(teacher, (horizon, *teacher.shape))
    start = jnp.asarray(np.linalg.qr(rng.standard_normal((inputs, features)))[0], float)
    problem = Problem(_outer, _inner, Ball(10.0), _inner_argmin)
    return Instance(problem, in_rounds(horizon, values), start, jnp.zeros(features))


def _error(x: Array, y: Array, data: tuple[Array, Array]) -> Array:
    a, b = data
    return 0.5 * jnp.mean((a @ x @ y - b) ** 2)


def _inner(x: Array, y: Array, round: PyTree) -> Array:
    return _error(x, y, round["support"]) + 0.5 * round["ridge"] * jnp.sum(y**2)


def _outer(x: Array, y: Array, round: PyTree) -> Array:
    return _error(x, y, round["query"])


def _inner_argmin(x: Array, round: PyTree) -> Array:
    a, b = round["support"]
    features = a @ x
    gram = features.T @ features / len(b) + round["ridge"] * jnp.eye(x.shape[1], dtype=x.dtype)
    return jnp.linalg.solve(gram, features.T @ b / len(b))


@checked
def subspace_error(x: Array, teacher: Array) -> Array:
    """Return the sine of the largest angle between the spaces that two matrices span: 0 if they are
    equal, 1 if a direction of one is orthogonal to the other."""
    basis, true_basis = jnp.linalg.qr(x)[0], jnp.linalg.qr(teacher)[0]
    return jnp.linalg.norm(true_basis - basis @ (basis.T @ true_basis), ord=2)
