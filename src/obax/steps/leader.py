"""Step sizes of the leader as optax transformations, invariant to the scale of the losses.

The same arguments give the same object: transformations are compared by identity.
"""

import functools
from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float

from .._support import trees
from .._support.checks import BelowOne, Checked, Positive, checked
from .._support.trees import PyTree

START = 0.1
"""The distance from x_1 that is assumed before there is one, in units of 1 + |x_1|."""


class DoWGState(NamedTuple):
    """What `dowg` keeps from round to round."""

    start: PyTree
    distance: Float[Array, ""]
    """r_t, the largest distance from x_1 so far."""
    root: Float[Array, ""]
    """sqrt(sum_s r_s^2 |h_s|^2)."""


@functools.cache
@checked
def dowg(distance: Positive = START) -> optax.GradientTransformation:
    """Return distance over weighted gradients (Khaled, Mishchenko, Jin: *DoWG Unleashed*, NeurIPS
    2023), for hypergradients h_t of any scale:

        x_{t+1} = x_t - r_t^2 h_t / sqrt(sum_{s <= t} r_s^2 |h_s|^2),
        r_t = max_{s <= t} |x_s - x_1|.

    Unlike `optax.contrib.dowg` it adds no constant to the root, so that multiplying the losses by
    a number changes nothing, and does not square norms, so that large ones do not overflow.

    **Arguments:**

    - `distance`: r_1 in units of 1 + |x_1|; too small a value is soon outgrown.
    """

    def init(params: PyTree) -> DoWGState:
        size = trees.norm(params)
        return DoWGState(params, distance * (1 + size), jnp.zeros_like(size))

    def update(
        gradient: PyTree, state: DoWGState, params: PyTree = None
    ) -> tuple[PyTree, DoWGState]:
        come = jnp.maximum(state.distance, trees.norm(trees.difference(params, state.start)))
        root = jnp.hypot(state.root, come * trees.norm(gradient))
        step = jnp.where(root == 0, 0, come * (come / jnp.where(root == 0, 1, root)))
        return trees.scaled(gradient, -step), DoWGState(state.start, come, root)

    return optax.GradientTransformation(init, update)


class NormalisedState(NamedTuple):
    """What `normalised` keeps from round to round."""

    mean: Float[Array, ""]
    """The discounted sum of |h_s|."""
    weight: Float[Array, ""]


@functools.cache
@checked
def normalised(decay: BelowOne = 0.95) -> optax.GradientTransformation:
    """Return steps along h_t / q_t, with q_t a running mean of |h_t|, and of length 2 at most; the
    step size is then the length of a usual step."""

    def init(params: PyTree) -> NormalisedState:
        zero = jnp.zeros_like(trees.norm(params))
        return NormalisedState(zero, zero)

    def update(
        gradient: PyTree, state: NormalisedState, params: PyTree = None
    ) -> tuple[PyTree, NormalisedState]:
        size = trees.norm(gradient)
        mean = decay * state.mean + (1 - decay) * size
        weight = decay * state.weight + (1 - decay)
        usual = jnp.where(mean == 0, 1, mean / weight)
        length = jnp.minimum(size / usual, 2)
        scale = -length * trees.inverse(size)
        return trees.scaled(gradient, scale), NormalisedState(mean, weight)

    return optax.GradientTransformation(init, update)


class NormalisedStep(Checked, eqx.Module):
    """A leader's step size that stands for normalised steps of this length."""

    scale: Positive = 1.0
