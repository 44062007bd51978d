"""Online data hyper-cleaning: which of the sources that feed a stream can be trusted?

Every round brings samples from several sources, some of which are wrong, and a few clean samples to
judge by. The leader weighs the sources, the follower learns from what they say:

    g_t(x, y) = (1 / 2n) sum_i s(x_{k_i}) (a_i . y - b_i)^2 + (ridge / 2) |y|^2,   s the sigmoid,
    f_t(y)    = (1 / 2m) sum_j (a_j . y - b_j)^2    on the clean samples.

Franceschi et al. (2017) and Shaban et al. (2019) do this offline, with a weight for each sample.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from .._support import validation
from .._support.trees import PyTree
from .._support.typed import typed
from ..domain import Box
from ..problem import Problem
from .instance import Instance
from .quadratic import walk


@typed
def hyper_cleaning(
    horizon: int,
    sources: int = 10,
    bad: int = 4,
    features: int = 5,
    *,
    samples: int = 4,
    clean: int = 10,
    noise: float = 0.3,
    ridge: float = 0.01,
    drift: float = 0.01,
    seed: int = 0,
) -> Instance:
    """A stream from several sources, some of which say the opposite of what is true.

    **Arguments:**

    - `horizon`, `sources`, `features`: T, the length of x, and that of y.
    - `bad`: how many sources, the last ones, report -b in place of b.
    - `samples`, `clean`: of each source in a round, and of clean ones.
    - `noise`, `ridge`: standard deviation of the targets, and the follower's penalty.
    - `drift`: how far the true model moves in a round, within a ball of radius 2.

    >>> stream = hyper_cleaning(3, sources=3, bad=1)
    >>> print(jax.tree.map(lambda leaf: leaf.shape, stream.rounds["training"]))
    ((3, 12, 5), (3, 12), (3, 12))
    """
    for value, name in ((horizon, "horizon"), (sources, "sources"), (features, "features"),
                        (samples, "samples"), (clean, "clean")):  # fmt: skip
        validation.count(value, name)
    if not 0 <= bad <= sources:
        raise ValueError(f"bad must be between 0 and sources = {sources}, but got {bad!r}.")
    if not ridge > 0:
        raise ValueError(f"ridge must be a number > 0, but got {ridge!r}.")
    rng = np.random.default_rng(seed)
    model = walk(rng, horizon, features, drift, 2.0)

    def draw(count: int) -> tuple[np.ndarray, np.ndarray]:
        a = rng.standard_normal((horizon, count, features))
        return a, np.einsum("tnd,td->tn", a, model) + noise * rng.standard_normal((horizon, count))

    source = np.repeat(np.arange(sources), samples)
    a, b = draw(len(source))
    b = np.where(source >= sources - bad, -b, b)
    rounds = {
        "training": (*map(_floats, (a, b)), jnp.asarray(np.tile(source, (horizon, 1)))),
        "validation": tuple(map(_floats, draw(clean))),
        "ridge": jnp.full(horizon, ridge, float),
    }
    problem = Problem(_outer, _inner, Box(-6.0, 6.0), _inner_argmin)
    return Instance(problem, rounds, jnp.zeros(sources), jnp.zeros(features))


def _floats(array: np.ndarray) -> Array:
    return jnp.asarray(array, float)


def _inner(x: Array, y: Array, round: PyTree) -> Array:
    a, b, source = round["training"]
    fit = 0.5 * jnp.mean(jax.nn.sigmoid(x)[source] * (a @ y - b) ** 2)
    return fit + 0.5 * round["ridge"] * jnp.sum(y**2)


def _outer(x: Array, y: Array, round: PyTree) -> Array:
    a, b = round["validation"]
    return 0.5 * jnp.mean((a @ y - b) ** 2)


def _inner_argmin(x: Array, round: PyTree) -> Array:
    a, b, source = round["training"]
    weighted = a * (jax.nn.sigmoid(x)[source] / len(b))[:, None]
    gram = weighted.T @ a + round["ridge"] * jnp.eye(a.shape[1], dtype=a.dtype)
    return jnp.linalg.solve(gram, weighted.T @ b)
