"""Online data hyper-cleaning: which of the sources that feed a stream can be trusted?

Every round has samples from several sources, some of which are wrong, and a few clean samples for
validation. The leader weights the sources, the follower learns from the weighted samples:

    g_t(x, y) = (1 / 2n) sum_i s(x_{k_i}) (a_i . y - b_i)^2 + (ridge / 2) |y|^2,   s the sigmoid,
    f_t(y)    = (1 / 2m) sum_j (a_j . y - b_j)^2    on the clean samples.

Franceschi et al. (2017) and Shaban et al. (2019) do this offline, with a weight for each sample.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from .._support.checks import Count, NonNegative, Positive, Seed, checked
from .._support.trees import PyTree
from ..domain import Box
from ..problem import Problem
from .instance import Instance, in_rounds, linear_samples, random_walk


@checked
def hyper_cleaning(
    horizon: Count,
    sources: Count = 10,
    bad: int = 4,
    features: Count = 5,
    *,
    samples: Count = 4,
    clean: Count = 10,
    noise: NonNegative = 0.3,
    ridge: Positive = 0.01,
    drift: NonNegative = 0.01,
    seed: Seed = 0,
) -> Instance:
    """Return a stream from several sources, some of which report targets of the wrong sign.

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
    if not 0 <= bad <= sources:
        raise ValueError(f"bad must be between 0 and sources = {sources}, but got {bad!r}.")
    rng = np.random.default_rng(seed)
    model = random_walk(rng, horizon, features, drift, 2.0)
    source = np.repeat(np.arange(sources), samples)
    a, b = linear_samples(rng, model, len(source), noise)
    b = np.where(source >= sources - bad, -b, b)
    validation = linear_samples(rng, model, clean, noise)
    values = {"training": (a, b), "validation": validation, "ridge": ridge}
    rounds = in_rounds(horizon, values)
    rounds["training"] += (jnp.asarray(np.tile(source, (horizon, 1))),)
    problem = Problem(_outer, _inner, Box(-6.0, 6.0), _inner_argmin)
    return Instance(problem, rounds, jnp.zeros(sources), jnp.zeros(features))


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
