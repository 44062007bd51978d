"""The steps of OBBO:  argmin over x in X of  <q, x> + (1/alpha) D_phi(x, x_t)  for three phi."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import Array

from .._support import trees
from .._support.trees import PyTree
from ..domain import Ball, Box, Domain, NonNegative, Simplex, Unconstrained

# Halvings of a bracket: enough for double precision.
HALVINGS = 64
SEPARABLE = (Unconstrained, Box, NonNegative)


def check_geometry(geometry: str, domain: Domain) -> None:
    """Raise a `ValueError` where the step has no closed form on this domain."""
    known = " and ".join(kind.__name__ for kind in (*SEPARABLE, Ball, Simplex))
    if geometry == "adaptive" and not isinstance(domain, (*SEPARABLE, Ball, Simplex)):
        raise ValueError(
            f"problem.domain must be one of {known} with geometry='adaptive', whose projection is "
            f"not the Euclidean one, but is {domain!r}; use geometry='euclidean'."
        )
    if geometry == "entropy" and not isinstance(domain, Simplex):
        raise ValueError(
            f"problem.domain must be a Simplex with geometry='entropy', but is {domain!r}; use "
            f"geometry='euclidean' or 'adaptive'."
        )


def entropy_step(domain: Domain, x: PyTree, direction: PyTree, rate: Array) -> PyTree:
    """x exp(-alpha q), scaled back onto the simplex: phi is the negative entropy."""
    assert isinstance(domain, Simplex)
    flat, unravel = ravel_pytree(x)
    slope = ravel_pytree(direction)[0]
    # What is zero stays zero. Shifted by the largest exponent of the rest: no overflow, and the sum
    # cannot vanish.
    exponent = jnp.where(flat > 0, -rate.astype(flat.dtype) * slope, -jnp.inf)
    weights = flat * jnp.exp(exponent - jnp.max(exponent))
    return unravel(domain.scale.astype(flat.dtype) * weights / jnp.sum(weights))


def weighted_projection(domain: Domain, z: PyTree, metric: PyTree) -> PyTree:
    """argmin over x in X of  sum_i D_i (x_i - z_i)^2."""
    if isinstance(domain, SEPARABLE):
        return domain.project(z)
    flat, unravel = ravel_pytree(z)
    weight = ravel_pytree(metric)[0]
    if isinstance(domain, Ball):
        centre = jnp.zeros_like(flat) if domain.center is None else ravel_pytree(domain.center)[0]
        return unravel(_onto_ball(flat - centre, weight, domain.radius.astype(flat.dtype)) + centre)
    assert isinstance(domain, Simplex)
    return unravel(_onto_simplex(flat, weight, domain.scale.astype(flat.dtype)))


def _onto_ball(z: Array, weight: Array, radius: Array) -> Array:
    """x = D z / (D + lambda), with the lambda >= 0 at which |x| = radius."""

    def point(multiplier: Array) -> Array:
        return weight * z / (weight + multiplier)

    most = jnp.max(weight) * jnp.linalg.norm(z) / radius
    found = point(_bisect(lambda m: jnp.linalg.norm(point(m)) > radius, jnp.zeros_like(most), most))
    # To the rounding, and exact for a point inside.
    return jnp.where(jnp.linalg.norm(z) <= radius, z, Ball(radius).project(found))


def _onto_simplex(z: Array, weight: Array, scale: Array) -> Array:
    """x = max(0, z - lambda / D), with the lambda at which the sum is `scale`."""

    def point(multiplier: Array) -> Array:
        return jnp.maximum(z - multiplier / weight, 0)

    low, high = jnp.min(weight * (z - scale)), jnp.max(weight * z)
    found = point(_bisect(lambda m: jnp.sum(point(m)) > scale, low, high))
    return scale * found / jnp.sum(found)


def _bisect(too_low: Callable[[Array], Array], low: Array, high: Array) -> Array:
    """Where `too_low` turns from true to false, from below."""

    def halve(_: Array, bracket: tuple[Array, Array]) -> tuple[Array, Array]:
        low, high = bracket
        middle = low + (high - low) / 2
        up = too_low(middle)
        return jnp.where(up, middle, low), jnp.where(up, high, middle)

    return jax.lax.fori_loop(0, HALVINGS, halve, (low, high))[0]


def adaptive_step(
    domain: Domain, x: PyTree, direction: PyTree, rate: Array, metric: PyTree
) -> PyTree:
    """phi = sum_i D_i x_i^2 / 2: each coordinate with a step of its own."""
    scaled = jax.tree.map(jnp.divide, direction, metric)
    return weighted_projection(domain, trees.scaled_add(x, -rate, scaled), metric)
