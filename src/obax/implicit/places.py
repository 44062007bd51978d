"""Points at which a search evaluates phi, determined by the problem alone."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from .._support import trees
from .._support.trees import PyTree
from ..domain import Box
from .minimise import Scalar, Vector
from .problem import FlatProblem

# Steps along a direction of negative curvature, relative to the extent of the region searched.
ESCAPES = 10.0 ** -np.arange(6)
# A segment from the minimum is halved so many times to test whether phi is convex along it.
HALVINGS = 4
MOST_TARGETS = 4
Points = Float[Array, "n d1"]


class Region(NamedTuple):
    """The part of X that is searched: its extent along each axis, points that fill it relative to
    its size, and the map from these into X. `uniform`: whether they are a grid of an interval."""

    reach: Vector
    relative: Callable[[int], np.ndarray]
    place: Callable[[np.ndarray], Points]
    uniform: bool

    def fill(self, count: int) -> Points:
        """Return so many points of the region."""
        return self.place(self.relative(count))


def targets(flat: FlatProblem, round: PyTree) -> Points:
    """Return the parts of a round that have the size of x, as points: often the loss is low at or
    near one of them, however far away it is."""
    same = [
        jnp.ravel(leaf).astype(flat.dtype)
        for leaf in jax.tree.leaves(round)
        if trees.is_float(leaf) and leaf.size == flat.outer_dim
    ]
    if not same or flat.solver.starts == 0:
        return jnp.zeros((0, flat.outer_dim), flat.dtype)
    # A part that is not finite must not spread the points over nothing.
    points = jnp.stack(same[:MOST_TARGETS])
    return jnp.where(jnp.isfinite(points), points, 0)


def region_of(flat: FlatProblem, given: Points) -> Region:
    """Return the region to search: all of a box, otherwise what the given points span."""
    dim = flat.outer_dim
    if isinstance(flat.problem.domain, Box):
        low, high = (flat.project(jnp.full_like(flat.start, end)) for end in (-jnp.inf, jnp.inf))

        def unit(count: int) -> np.ndarray:
            return np.linspace(0, 1, count)[:, None] if dim == 1 else _sequence(count, dim)

        def inside(unit: np.ndarray) -> Points:
            return low + jnp.asarray(unit, flat.dtype) * (high - low)

        return Region(high - low, unit, inside, uniform=dim == 1)
    centre = jnp.mean(given, axis=0)
    spread = jnp.max(jnp.linalg.norm(given - centre, axis=1))
    diameter = jnp.asarray(jnp.inf) if flat.region is None else flat.region.diameter
    wide = jnp.maximum(jnp.maximum(2 * spread, jnp.linalg.norm(centre)), 1)
    radius = jnp.where(jnp.isfinite(diameter), diameter / 2, wide).astype(flat.dtype)

    def throws(count: int) -> np.ndarray:
        lengths = 4.0 ** (np.arange(count)[:, None] % 3 - 1)
        return _gaussian(_sequence(count, dim)) / dim**0.5 * lengths

    def thrown(throws: np.ndarray) -> Points:
        return jax.vmap(flat.project)(centre + radius * jnp.asarray(throws, flat.dtype))

    return Region(jnp.broadcast_to(radius, (dim,)), throws, thrown, uniform=False)


def first_points(flat: FlatProblem, given: Points, region: Region) -> Points:
    """Return the first points of a search: those given, then points that fill the region."""
    count = flat.starts
    most = max(count + len(given), count + 2 * len(ESCAPES))
    points = jnp.concatenate([given, region.fill(most - len(given))]) if count else given
    padding = jnp.broadcast_to(points[0], (most - len(points), flat.outer_dim))
    return jnp.concatenate([points, padding])


class Probes(NamedTuple):
    """Points around a minimum x that test whether phi is convex, in the number of `first_points`.

    The first ones are in both senses of a direction of negative curvature or, without one, halfway
    between pairs of the first points. The others halve segments from x to some of the first points.
    """

    first: Points
    region: Region

    @property
    def number(self) -> int:
        """Number of first points, and of probes."""
        return len(self.first)

    @property
    def pairs(self) -> int:
        """Number of probes along a direction, or between pairs: half of them."""
        return max(2 * len(ESCAPES), self.number // 2)

    @property
    def _seconds(self) -> np.ndarray:
        """Indices of the second points of the pairs."""
        return np.arange(1, self.pairs + 1) % self.number

    @property
    def segments(self) -> np.ndarray:
        """Indices of the first points at which the segments end."""
        halving = self.number - self.pairs
        number = max(1, -(-halving // HALVINGS))
        return np.linspace(0, self.number - 1, number).astype(int)

    def around(self, flat: FlatProblem, x: Vector, direction: Vector) -> Points:
        """Return the probes around x."""
        first, reach = self.first, self.region.reach
        lengths = np.concatenate([ESCAPES, -ESCAPES, np.zeros(self.pairs - 2 * len(ESCAPES))])
        size = jnp.linalg.norm(reach) / flat.outer_dim**0.5
        along = x + jnp.asarray(lengths, flat.dtype)[:, None] * size * direction
        between = (first[: self.pairs] + first[self._seconds]) / 2
        leading = jnp.where(jnp.any(direction != 0), along, between)
        ends, halving = self.segments, np.arange(self.number - self.pairs)
        shares = jnp.asarray(0.5 ** (1 + halving // len(ends)), flat.dtype)[:, None]
        halved = x + shares * (first[ends[halving % len(ends)]] - x)
        return jax.vmap(flat.project)(jnp.concatenate([leading, halved]))

    def convex(
        self, lowest: Scalar, direction: Vector, first: Array, probed: Array, tolerance: float
    ) -> Bool[Array, ""]:
        """Return whether the values at the first points and at the probes are those of a convex
        function with the minimum `lowest`."""
        halved = probed[self.pairs :]
        ends = jnp.concatenate([first[self.segments], halved])[: len(halved)]

        def below(middle: Array, one: Array, other: Array | Scalar) -> Array:
            # An infinite value at an end allows every value in the middle.
            slack = tolerance * (jnp.abs(one) + jnp.abs(other))
            chord = one / 2 + other / 2
            return (middle <= chord + slack) | ~(chord < jnp.inf)

        between = below(probed[: self.pairs], first[: self.pairs], first[self._seconds])
        convex = jnp.all(between) & jnp.all(below(halved, ends, lowest))
        if self.region.uniform:
            # The last points are a grid, so that their values have second differences.
            grid = first[MOST_TARGETS + 2 :]
            convex &= jnp.all(below(grid[1:-1], grid[:-2], grid[2:]))
        return convex & ~jnp.any(direction != 0)


class Grid(NamedTuple):
    """Many points of the region, scanned where phi is not convex, with the neighbours of each."""

    points: Points
    neighbours: np.ndarray
    most: int
    uniform: bool

    @classmethod
    def of(cls, flat: FlatProblem, region: Region) -> "Grid":
        """Return a grid in one dimension and evenly spread points in more."""
        dim = flat.outer_dim
        starts = max(flat.starts, 2)
        relative = region.relative(8 * starts if dim == 1 else min(64 * starts, 1024))
        distances = np.linalg.norm(relative[:, None] - relative[None], axis=2)
        neighbours = np.argsort(distances, axis=1)[:, 1 : 3 if region.uniform else 2 * dim + 3]
        most = 32 if dim == 1 else 24
        return cls(region.place(relative), neighbours, most, region.uniform)

    def valleys(self, values: Array) -> tuple[Points, Array, Bool[Array, ""]]:
        """Return the points that are lower than their neighbours, lowest first, then others; how
        many are to be descended from; and whether the grid is fine enough to see every valley."""
        valley = (values <= jnp.min(values[self.neighbours], axis=1)) & (values < jnp.inf)
        number = jnp.sum(valley)
        order = jnp.argsort(jnp.where(valley, values, jnp.inf), stable=True)[: self.most]
        # Eight points for each valley: what is between them is known well enough.
        resolved = (number <= min(len(values) // 8, self.most)) & self.uniform
        return self.points[order], jnp.clip(number, min(4, self.most), self.most), resolved


def _sequence(count: int, dim: int) -> np.ndarray:
    """Return points that fill the unit cube evenly: multiples of powers of the generalised golden
    ratio, the root of g^(dim + 1) = g + 1."""
    ratio = 2.0
    for _ in range(60):
        ratio = (1 + ratio) ** (1 / (dim + 1))
    steps = ratio ** -np.arange(1.0, dim + 1)
    return (0.5 + np.arange(1, count + 1)[:, None] * steps) % 1


def _gaussian(unit: np.ndarray) -> np.ndarray:
    from scipy.special import ndtri

    return ndtri(unit)
