"""Convex sets in which the leader's decision lives, each with its Euclidean projection.

The projections are those of `optax.projections`; here they get bounds that follow the dtype of
the variable, a membership test and the diameter that the regret bounds ask for.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, ArrayLike, Bool, Float

from ._support import showing, trees, validation
from ._support.trees import PyTree


class Domain(eqx.Module):
    """A non-empty closed convex set X of pytrees.

    >>> Box(-8.0, 2.0), Ball(1.0), Simplex()
    (Box(lower=-8.0, upper=2.0), Ball(radius=1.0), Simplex(scale=1.0))
    """

    def __repr__(self) -> str:
        named = (f"{name}={showing.shown(value)}" for name, value in showing.changed(self))
        return f"{type(self).__name__}({', '.join(named)})"

    def project(self, outer_var: PyTree) -> PyTree:
        """The nearest point of X, `argmin_{z in X} |z - outer_var|`."""
        raise NotImplementedError

    def contains(self, outer_var: PyTree) -> Bool[Array, ""]:
        """Whether the point is in X, to the rounding of its dtype."""
        distance = trees.norm(trees.difference(outer_var, self.project(outer_var)))
        scale = 1.0 + trees.norm(outer_var)
        return distance <= 32 * jnp.finfo(distance.dtype).eps * scale

    def diameter(self, outer_var: PyTree) -> Float[Array, ""]:
        """The largest distance of two points of X; `outer_var` gives the shape only."""
        raise NotImplementedError

    def edges(self, outer_var: PyTree) -> PyTree:
        """Which coordinates of a point of X lie at an edge of X: they cannot move both ways.

        >>> print(Box(-1.0, 2.0).edges(jnp.array([-1.0, 0.5, 2.0])))
        [ True False  True]
        """

        def beyond(sign: int) -> PyTree:
            # By more than rounding, and by less than anything that people mean.
            moved = jax.tree.map(
                lambda leaf: leaf + sign * 1e2 * jnp.finfo(leaf.dtype).eps * (1 + jnp.abs(leaf)),
                outer_var,
            )
            return jax.tree.map(jnp.not_equal, moved, self.project(moved))

        return jax.tree.map(jnp.logical_or, beyond(1), beyond(-1))

    def check_matches(self, outer_var: PyTree) -> None:
        """Raise a `ValueError` where the set's own parameters do not fit the variable."""


class Unconstrained(Domain):
    """All of R^d.

    >>> Unconstrained().project(3.0)
    3.0
    """

    def project(self, outer_var: PyTree) -> PyTree:
        return outer_var

    def contains(self, outer_var: PyTree) -> Bool[Array, ""]:
        return jnp.asarray(True)

    def diameter(self, outer_var: PyTree) -> Float[Array, ""]:
        return jnp.asarray(jnp.inf)


class Box(Domain):
    """`lower <= x <= upper`, with bounds that are scalars or pytrees shaped like the variable.

    >>> print(Box(-1.0, 2.0).project(jnp.array([-3.0, 0.5, 7.0])))
    [-1.   0.5  2. ]
    """

    lower: PyTree
    upper: PyTree

    def __init__(self, lower: PyTree, upper: PyTree):
        self.lower = jax.tree.map(lambda bound: validation.as_number(bound, "Box.lower"), lower)
        self.upper = jax.tree.map(lambda bound: validation.as_number(bound, "Box.upper"), upper)
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

    def check_matches(self, outer_var: PyTree) -> None:
        a, b = trees.structure(self.lower), trees.structure(outer_var)
        if not _is_single_leaf(self.lower) and a != b:
            raise ValueError(
                f"Box bounds must be scalars or have the structure of outer_var, {b}, but have {a}."
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
                        f"Box bounds must be scalars or fit {trees.leaf_name(path, 'outer_var')} "
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
    """`|x - center| <= radius`, over all leaves together.

    >>> print(Ball(1.0).project(jnp.array([3.0, 4.0])))
    [0.6 0.8]
    """

    radius: Array
    center: PyTree

    def __init__(self, radius: ArrayLike, center: PyTree = None):
        self.radius = validation.positive_number(radius, "Ball.radius")
        self.center = None if center is None else validation.variable(center, "Ball.center")

    def project(self, outer_var: PyTree) -> PyTree:
        shifted = outer_var if self.center is None else trees.difference(outer_var, self.center)
        length = trees.norm(shifted)
        radius = self.radius.astype(length.dtype)
        # optax.projections divides by the norm; this form has no 0/0 at the centre.
        shrink = radius / jnp.maximum(length, radius)
        origin = jax.tree.map(jnp.zeros_like, outer_var) if self.center is None else self.center
        return trees.scaled_add(origin, shrink, shifted)

    def diameter(self, outer_var: PyTree) -> Float[Array, ""]:
        return 2 * self.radius

    def edges(self, outer_var: PyTree) -> PyTree:
        """All coordinates together: the edge of a ball has no sides."""
        shifted = outer_var if self.center is None else trees.difference(outer_var, self.center)
        length = trees.norm(shifted)
        radius = self.radius.astype(length.dtype)
        touched = length >= radius * (1 - 1e2 * jnp.finfo(length.dtype).eps)
        return jax.tree.map(lambda leaf: jnp.broadcast_to(touched, leaf.shape), outer_var)

    def check_matches(self, outer_var: PyTree) -> None:
        if self.center is not None:
            validation.same_tree(self.center, outer_var, "Ball.center", "outer_var")


class Simplex(Domain):
    """`x >= 0, sum(x) = scale`, over all leaves together.

    >>> print(Simplex().project(jnp.array([1.0, 0.5, -0.5])))
    [0.75 0.25 0.  ]
    """

    scale: Array

    def __init__(self, scale: ArrayLike = 1.0):
        self.scale = validation.positive_number(scale, "Simplex.scale")

    def project(self, outer_var: PyTree) -> PyTree:
        dtype = jnp.result_type(*(leaf.dtype for leaf in jax.tree.leaves(outer_var)))
        with trees.standard_promotion():
            found = optax.projections.projection_simplex(outer_var, self.scale.astype(dtype))
        # Under x64 optax answers in float64 whatever it was given.
        return jax.tree.map(lambda new, leaf: new.astype(leaf.dtype), found, outer_var)

    def diameter(self, outer_var: PyTree) -> Float[Array, ""]:
        size = sum(leaf.size for leaf in jax.tree.leaves(outer_var))
        return self.scale * (2**0.5 if size > 1 else 0.0)

    def edges(self, outer_var: PyTree) -> PyTree:
        """The coordinates that are zero; the sum always is what it must be."""
        return jax.tree.map(
            lambda leaf: leaf <= 1e2 * jnp.finfo(leaf.dtype).eps * self.scale.astype(leaf.dtype),
            outer_var,
        )


class NonNegative(Domain):
    """`x >= 0`.

    >>> print(NonNegative().project(jnp.array([-1.0, 2.0])))
    [0. 2.]
    """

    def project(self, outer_var: PyTree) -> PyTree:
        return optax.projections.projection_non_negative(outer_var)

    def diameter(self, outer_var: PyTree) -> Float[Array, ""]:
        return jnp.asarray(jnp.inf)


def _is_single_leaf(bound: PyTree) -> bool:
    return trees.structure(bound) == trees.structure(0)
