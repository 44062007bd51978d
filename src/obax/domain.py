"""Convex sets in which the leader's decision lives, or the follower's, each with its Euclidean
projection.

The projections are those of `optax.projections`; here they get bounds that follow the dtype of
the variable, a membership test and the diameter that the regret bounds ask for.
"""

from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, ArrayLike, Bool, Float

from ._support import messages, trees
from ._support.trees import PyTree, as_variable


class Face(NamedTuple):
    """The face of a convex set that a minimiser is on: where it can go, to first order, when what
    it minimises changes.

    Some constraints hold it where it is. `tangent` is the orthogonal projection u -> P u onto the
    directions that the others leave, and `bend` what the set's own curvature adds to the Hessian
    on these: with H = grad^2 of what is minimised, J du the change of its gradient,

        (P H P + bend P) dy = -P J du,    P dy = dy.
    """

    tangent: Callable[[PyTree], PyTree]
    bend: Float[Array, ""] | float = 0.0


class Domain(eqx.Module):
    """A non-empty closed convex set X of pytrees.

    >>> Box(-8.0, 2.0), Ball(1.0), Simplex()
    (Box(lower=-8.0, upper=2.0), Ball(radius=1.0), Simplex(scale=1.0))
    """

    def __repr__(self) -> str:
        return messages.described(self)

    def project(self, outer_var: PyTree) -> PyTree:
        """Return the nearest point of X, `argmin_{z in X} |z - outer_var|`."""
        raise NotImplementedError

    def contains(self, outer_var: PyTree) -> Bool[Array, ""]:
        """Return whether the point is in X, to the rounding of its dtype."""
        distance = trees.norm(trees.difference(outer_var, self.project(outer_var)))
        scale = 1.0 + trees.norm(outer_var)
        return distance <= 32 * jnp.finfo(distance.dtype).eps * scale

    def diameter(self, outer_var: PyTree) -> Float[Array, ""]:
        """Return the largest distance of two points of X; `outer_var` gives the shape only."""
        raise NotImplementedError

    def edges(self, outer_var: PyTree) -> PyTree:
        """Return which coordinates of a point of X lie at an edge of X, so that they cannot move
        both ways.

        >>> print(Box(-1.0, 2.0).edges(jnp.array([-1.0, 0.5, 2.0])))
        [ True False  True]
        """

        def step(leaf: Array) -> Array:
            # More than rounding, and less than anything that people mean.
            return 1e2 * jnp.finfo(leaf.dtype).eps * (1 + jnp.abs(leaf))

        def beyond(sign: int) -> PyTree:
            moved = jax.tree.map(lambda leaf: leaf + sign * step(leaf), outer_var)
            return jax.tree.map(jnp.not_equal, moved, self.project(moved))

        return jax.tree.map(jnp.logical_or, beyond(1), beyond(-1))

    def gradient_norm(self, point: PyTree, slope: PyTree) -> Float[Array, ""]:
        """Return |z - project(z - slope)|, which is zero exactly where z minimises over X a convex
        function with this slope; |slope| without constraints."""
        ahead = self.project(trees.scaled_add(point, -1.0, slope))
        return trees.norm(trees.difference(point, ahead))

    def face(self, point: PyTree, slope: PyTree) -> Face:
        """Return the face of X that a minimiser `point` of a function with this slope is on. A
        constraint counts if it is met with equality and the slope presses against it."""
        raise ValueError(
            f"inner_domain must be a set that knows its faces (Box, NonNegative, Simplex, Ball), "
            f"but {type(self).__name__} has no method face."
        )

    def check_matches(self, outer_var: PyTree, name: str = "outer_var") -> None:
        """Raise a `ValueError` if the set's own parameters do not fit the variable."""


class Unconstrained(Domain):
    """The whole space R^d.

    >>> Unconstrained().project(3.0)
    3.0
    """

    def project(self, outer_var: PyTree) -> PyTree:
        return outer_var

    def contains(self, outer_var: PyTree) -> Bool[Array, ""]:
        return jnp.asarray(True)

    def diameter(self, outer_var: PyTree) -> Float[Array, ""]:
        return jnp.asarray(jnp.inf)

    def gradient_norm(self, point: PyTree, slope: PyTree) -> Float[Array, ""]:
        return trees.norm(slope)

    def face(self, point: PyTree, slope: PyTree) -> Face:
        return Face(lambda u: u)


class Box(Domain):
    """The box `lower <= x <= upper`, with bounds that are scalars or pytrees shaped like the
    variable.

    >>> print(Box(-1.0, 2.0).project(jnp.array([-3.0, 0.5, 7.0])))
    [-1.   0.5  2. ]
    """

    lower: PyTree
    upper: PyTree

    def __init__(self, lower: PyTree, upper: PyTree):
        self.lower = jax.tree.map(lambda bound: trees.float_array(bound, "Box.lower"), lower)
        self.upper = jax.tree.map(lambda bound: trees.float_array(bound, "Box.upper"), upper)
        if (a := trees.structure(self.lower)) != (b := trees.structure(self.upper)):
            raise ValueError(f"Box.lower and Box.upper must have one structure, but {a} != {b}.")
        for low, high in zip(jax.tree.leaves(self.lower), jax.tree.leaves(self.upper), strict=True):
            if trees.is_concrete((low, high)) and not np.all(np.asarray(low) <= np.asarray(high)):
                raise ValueError(
                    f"Box.lower must be <= Box.upper everywhere, but got {low} and {high}."
                )

    def project(self, outer_var: PyTree) -> PyTree:
        return optax.projections.projection_box(outer_var, *self._bounds(outer_var))

    def diameter(self, outer_var: PyTree) -> Float[Array, ""]:
        lower, upper = self._bounds(outer_var)
        return trees.norm(trees.difference(upper, lower))

    def face(self, point: PyTree, slope: PyTree) -> Face:
        def free(z: Array, s: Array, low: Array, high: Array) -> Array:
            at_low = (z <= low + _rounding(low, low, high)) & (s > 0)
            at_high = (z >= high - _rounding(high, low, high)) & (s < 0)
            return ~(at_low | at_high)

        return _free_entries(jax.tree.map(free, point, slope, *self._bounds(point)))

    def check_matches(self, outer_var: PyTree, name: str = "outer_var") -> None:
        a, b = trees.structure(self.lower), trees.structure(outer_var)
        if not _is_single_leaf(self.lower) and a != b:
            raise ValueError(
                f"Box bounds must be scalars or have the structure of {name}, {b}, but have {a}."
            )
        leaves = jax.tree_util.tree_leaves_with_path(outer_var)
        for bound in (self.lower, self.upper):
            bounds = jax.tree.leaves(bound)
            limits = bounds * (len(leaves) // len(bounds))
            for (path, leaf), limit in zip(leaves, limits, strict=True):
                try:
                    fits = jnp.broadcast_shapes(limit.shape, leaf.shape) == leaf.shape
                except ValueError:
                    fits = False
                if not fits:
                    raise ValueError(
                        f"Box bounds must be scalars or fit {trees.leaf_name(path, name)} "
                        f"of shape {leaf.shape}, but have shape {limit.shape}."
                    )

    def _bounds(self, outer_var: PyTree) -> tuple[PyTree, PyTree]:
        def like(bound: PyTree) -> PyTree:
            if _is_single_leaf(bound):
                bound = jax.tree.map(lambda _: jax.tree.leaves(bound)[0], outer_var)
            return jax.tree.map(
                lambda b, leaf: jnp.broadcast_to(b.astype(jnp.result_type(leaf)), jnp.shape(leaf)),
                bound,
                outer_var,
            )

        return like(self.lower), like(self.upper)


class Ball(Domain):
    """The ball `|x - center| <= radius`, over all leaves together.

    >>> print(Ball(1.0).project(jnp.array([3.0, 4.0])))
    [0.6 0.8]
    """

    radius: Array
    center: PyTree

    def __init__(self, radius: ArrayLike, center: PyTree = None):
        self.radius = trees.positive_array(radius, "Ball.radius")
        self.center = None if center is None else as_variable(center, "Ball.center")

    def project(self, outer_var: PyTree) -> PyTree:
        shifted = self._shifted(outer_var)
        square = trees.squared_norm(shifted)
        radius = self.radius.astype(square.dtype)
        # optax.projections divides by the norm; this form has no 0/0 at the centre, neither in its
        # value nor in its derivative.
        shrink = radius / jnp.sqrt(jnp.maximum(square, radius**2))
        origin = jax.tree.map(jnp.zeros_like, outer_var) if self.center is None else self.center
        return trees.scaled_add(origin, shrink, shifted)

    def diameter(self, outer_var: PyTree) -> Float[Array, ""]:
        return 2 * self.radius

    def edges(self, outer_var: PyTree) -> PyTree:
        """Return all coordinates or none: the edge of a ball has no sides."""
        length = trees.norm(self._shifted(outer_var))
        radius = self.radius.astype(length.dtype)
        touched = length >= radius * (1 - 1e2 * jnp.finfo(length.dtype).eps)
        return jax.tree.map(lambda leaf: jnp.broadcast_to(touched, leaf.shape), outer_var)

    def face(self, point: PyTree, slope: PyTree) -> Face:
        shifted = self._shifted(point)
        length = trees.norm(shifted)
        radius = self.radius.astype(length.dtype)
        divisor = jnp.maximum(length, jnp.asarray(jnp.finfo(length.dtype).tiny, length.dtype))
        normal = jax.tree.map(lambda leaf: leaf / divisor.astype(leaf.dtype), shifted)
        pressed = -trees.vdot(normal, slope)
        middle = 0 if self.center is None else trees.norm(self.center).astype(length.dtype)
        held = (length >= radius - _rounding(radius, radius + middle)) & (pressed > 0)

        def tangent(u: PyTree) -> PyTree:
            return trees.scaled_add(u, -jnp.where(held, trees.vdot(normal, u), 0), normal)

        # The multiplier of |z - centre|^2 / 2 <= radius^2 / 2.
        return Face(tangent, jnp.where(held, pressed / radius, 0))

    def check_matches(self, outer_var: PyTree, name: str = "outer_var") -> None:
        if self.center is not None:
            trees.check_same_structure(self.center, outer_var, "Ball.center", name)

    def _shifted(self, point: PyTree) -> PyTree:
        """Return the point as seen from the centre."""
        return point if self.center is None else trees.difference(point, self.center)


class Simplex(Domain):
    """The simplex `x >= 0, sum(x) = scale`, over all leaves together.

    >>> print(Simplex().project(jnp.array([1.0, 0.5, -0.5])))
    [0.75 0.25 0.  ]
    """

    scale: Array

    def __init__(self, scale: ArrayLike = 1.0):
        self.scale = trees.positive_array(scale, "Simplex.scale")

    def project(self, outer_var: PyTree) -> PyTree:
        # Not that of optax, whose derivative does not know of strict promotion.
        flat, unravel = ravel_pytree(outer_var)
        ordered = jnp.sort(flat)[::-1]
        places = jnp.arange(1, flat.size + 1).astype(flat.dtype)
        # By how much all entries are lowered if the largest ones share the excess; as many share
        # it as stay above.
        lowered = (jnp.cumsum(ordered) - self.scale.astype(flat.dtype)) / places
        sharing = jnp.sum(ordered > lowered)
        return unravel(jnp.maximum(flat - lowered[sharing - 1], 0))

    def diameter(self, outer_var: PyTree) -> Float[Array, ""]:
        size = sum(leaf.size for leaf in jax.tree.leaves(outer_var))
        return self.scale * (2**0.5 if size > 1 else 0.0)

    def edges(self, outer_var: PyTree) -> PyTree:
        """Return the coordinates that are zero."""
        return jax.tree.map(
            lambda leaf: leaf <= 1e2 * jnp.finfo(leaf.dtype).eps * self.scale.astype(leaf.dtype),
            outer_var,
        )

    def face(self, point: PyTree, slope: PyTree) -> Face:
        zero = jax.tree.map(
            lambda z: z <= _rounding(jnp.zeros((), z.dtype), self.scale.astype(z.dtype)), point
        )
        positive = jax.tree.map(jnp.logical_not, zero)
        # The multiplier of sum(z) = scale: what all entries that are not zero agree on.
        level = _mean_where(positive, slope)
        free = jax.tree.map(lambda at, s: ~(at & (s > level.astype(s.dtype))), zero, slope)
        masked = _free_entries(free).tangent

        def tangent(u: PyTree) -> PyTree:
            middle = _mean_where(free, u)
            return masked(jax.tree.map(lambda leaf: leaf - middle.astype(leaf.dtype), u))

        return Face(tangent)


class NonNegative(Domain):
    """The cone `x >= 0`.

    >>> print(NonNegative().project(jnp.array([-1.0, 2.0])))
    [0. 2.]
    """

    def project(self, outer_var: PyTree) -> PyTree:
        return optax.projections.projection_non_negative(outer_var)

    def diameter(self, outer_var: PyTree) -> Float[Array, ""]:
        return jnp.asarray(jnp.inf)

    def face(self, point: PyTree, slope: PyTree) -> Face:
        return _free_entries(jax.tree.map(lambda z, s: ~((z <= 0) & (s > 0)), point, slope))


def _is_single_leaf(bound: PyTree) -> bool:
    return trees.structure(bound) == trees.structure(0)


def _free_entries(free: PyTree) -> Face:
    """Return the face on which only these entries move."""
    return Face(lambda u: jax.tree.map(lambda on, leaf: jnp.where(on, leaf, 0), free, u))


def _mean_where(chosen: PyTree, tree: PyTree) -> Array:
    """Return the mean of the chosen entries of all leaves."""
    kept = jax.tree.map(lambda on, leaf: jnp.sum(jnp.where(on, leaf, 0)), chosen, tree)
    ones = jax.tree.map(jnp.ones_like, kept)
    count = sum(jnp.sum(on) for on in jax.tree.leaves(chosen))
    total = trees.vdot(kept, ones)
    return total / jnp.maximum(count, 1).astype(total.dtype)


def _rounding(bound: Array, *sizes: Array) -> Array:
    """Return how far from a bound a projected point may be by rounding, in a set whose numbers have
    these sizes. Also a set of size 1e-7 is larger than that."""
    largest = jnp.max(jnp.stack([jnp.abs(size) for size in sizes]), axis=0)
    return 8 * jnp.finfo(bound.dtype).eps * jnp.minimum(1 + jnp.abs(bound), largest)
