"""Where a search looks: fixed by the problem, so that the same question has the same answer."""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..domain import Box
from .flat import Flat
from .solve import Vector

# How far along a direction of negative curvature, relative to the extent of what is searched.
ESCAPES = 10.0 ** -np.arange(6)
Points = Float[Array, "n d1"]


def places(flat: Flat, given: Points) -> tuple[Points, Vector]:
    """Where the search looks first: the points given, then those of a low-discrepancy sequence in
    X; and how far it is across what they cover, along each axis."""
    count, dim = flat.solver.starts_for(flat.outer_dim), flat.outer_dim
    given = jax.vmap(flat.project)(given)
    most = max(count + len(given), count + 2 * len(ESCAPES))
    fill = most - len(given) if count else 0
    centre = jnp.mean(given, axis=0)
    spread = jnp.max(jnp.linalg.norm(given - centre, axis=1))
    if isinstance(flat.problem.domain, Box):
        low, high = (flat.project(jnp.full_like(flat.start, end)) for end in (-jnp.inf, jnp.inf))
        shares = np.linspace(0, 1, fill)[:, None] if dim == 1 else _sequence(fill, dim)
        drawn, reach = low + jnp.asarray(shares, flat.dtype) * (high - low), high - low
    else:
        diameter = jnp.asarray(jnp.inf) if flat.region is None else flat.region.diameter
        wide = jnp.maximum(jnp.maximum(2 * spread, jnp.linalg.norm(centre)), 1)
        radius = jnp.where(jnp.isfinite(diameter), diameter / 2, wide).astype(flat.dtype)
        throws = (
            _gaussian(_sequence(fill, dim)) / dim**0.5 * 4.0 ** (np.arange(fill)[:, None] % 3 - 1)
        )
        drawn = jax.vmap(flat.project)(centre + radius * jnp.asarray(throws, flat.dtype))
        reach = jnp.broadcast_to(radius, (dim,))
    everywhere = jnp.concatenate([given, drawn])
    padding = jnp.broadcast_to(everywhere[0], (most - len(everywhere), dim))
    return jnp.concatenate([everywhere, padding]), reach


def around(flat: Flat, x: Vector, direction: Vector, reach: Vector, like: Points) -> Points:
    """As many places about x: both ways along `direction`, then along the axes (in directions of
    the sequence where there are many)."""
    lengths = jnp.asarray(np.concatenate([ESCAPES, -ESCAPES]), flat.dtype)
    size = jnp.linalg.norm(reach) / flat.outer_dim**0.5
    escapes = x + lengths[:, None] * size * direction
    count, dim = len(like) - len(lengths), flat.outer_dim
    if count >= 2 * dim:
        along = np.linspace(-1, 1, count // dim)
        moves = (along[:, None, None] * np.eye(dim)).reshape(-1, dim)
        moves = np.concatenate([moves, np.zeros((count - len(moves), dim))])
    else:
        moves = 0.3 * _gaussian(_sequence(count, dim)) / dim**0.5
    places = jnp.concatenate([escapes, x + jnp.asarray(moves, flat.dtype) * reach])
    return jax.vmap(flat.project)(places)


def _sequence(count: int, dim: int) -> np.ndarray:
    """Points of the unit cube that fill it evenly: multiples of powers of the generalised golden
    ratio, the root of g^(dim + 1) = g + 1."""
    ratio = 2.0
    for _ in range(60):
        ratio = (1 + ratio) ** (1 / (dim + 1))
    steps = ratio ** -np.arange(1.0, dim + 1)
    return (0.5 + np.arange(1, count + 1)[:, None] * steps) % 1


def _gaussian(unit: np.ndarray) -> np.ndarray:
    from scipy.special import ndtri

    return ndtri(unit)
