"""A problem with its rounds and its first decisions, and how ready-made ones are drawn."""

from collections.abc import Mapping

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from .._support.trees import PyTree
from ..problem import Problem
from ..theory import Constants


class Instance(eqx.Module):
    """A ready-made stream of bilevel problems.

    `rounds` is stacked on axis 0; `outer_var` and `inner_var` are x_1 and y_1; `constants` are
    exact on the domain, or `None` where they are not known.
    """

    problem: Problem
    rounds: PyTree
    outer_var: PyTree
    inner_var: PyTree
    constants: Constants | None = eqx.field(static=True, default=None)

    @property
    def example_round(self) -> PyTree:
        """The shapes of a round, for `algorithm.init`."""
        return jax.tree.map(
            lambda leaf: jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype), self.rounds
        )

    @property
    def horizon(self) -> int:
        """T, the number of rounds."""
        return len(jax.tree.leaves(self.rounds)[0])


def in_rounds(horizon: int, values: Mapping[str, PyTree]) -> dict[str, PyTree]:
    """Return rounds of floats. Arrays have an entry for each round; a number is in every round.

    What does not change is in every round too: the functions of a problem then hold no data, and
    all instances of one shape share one compilation.
    """

    def stacked(leaf: np.ndarray | float) -> jax.Array:
        return jnp.full(horizon, leaf, float) if np.ndim(leaf) == 0 else jnp.asarray(leaf, float)

    return {name: jax.tree.map(stacked, value) for name, value in values.items()}


def random_walk(
    rng: np.random.Generator, horizon: int, size: int, step: float, radius: float
) -> np.ndarray:
    """Return a random walk with steps of one length, kept in a ball by projection."""
    directions = rng.standard_normal((horizon, size))
    directions *= step / np.linalg.norm(directions, axis=1, keepdims=True)
    points = np.empty((horizon, size))
    now = rng.uniform(-1, 1, size) * radius / np.sqrt(size)
    for t in range(horizon):
        now = now + directions[t]
        now *= min(1.0, radius / max(float(np.linalg.norm(now)), 1e-300))
        points[t] = now
    return points


def linear_samples(
    rng: np.random.Generator, models: np.ndarray, count: int, noise: float
) -> tuple[np.ndarray, np.ndarray]:
    """Return Gaussian features and noisy targets, `count` for each of the linear models."""
    a = rng.standard_normal((*models.shape[:-1], count, models.shape[-1]))
    b = np.einsum("...nd,...d->...n", a, models) + noise * rng.standard_normal(a.shape[:-1])
    return a, b


def squared_error(y: jax.Array, data: tuple[jax.Array, jax.Array]) -> jax.Array:
    """Return half the mean squared error of the linear model y on features and targets."""
    a, b = data
    return 0.5 * jnp.mean((a @ y - b) ** 2)
