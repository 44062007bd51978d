"""ZO-SOGD: SOGD from function values alone.

Nazari, Hou, Tarzanagh, Shen, Michailidis: *Stochastic Regret Guarantees for Online Zeroth- and
First-Order Bilevel Optimization*, NeurIPS 2025. The estimates below are our reading of it: with
random directions u on the sphere of radius sqrt(d), so that E[u u^T] = I, and m of them averaged,

    G_y g(x, y) = (g(x, y + rho u) - g(x, y - rho u)) / (2 rho) u      and likewise for x and for f,
    H v         = (G_y g(x, y + rho v) - G_y g(x, y - rho v)) / (2 rho),
    J v         = (G_x g(x, y + rho v) - G_x g(x, y - rho v)) / (2 rho).

They take the place of the derivatives in D^y, D^v and D^x of `obax.SOGD`. A round's directions are
the same at its present and previous point, so that the momentum's correction is not noise, and
they are new in every round.

| symbol | name | symbol | name |
|---|---|---|---|
| rho | `smoothing` | m | `directions_per_round` |

The values asked for are counted in `info.evaluations`: m times 2 for G_y g, 4 for the gradients of
f, 4 each for H v and J v, and one more where the problem has buffers; at two points, in the first
round at one. There are no gradients, HVPs or cross products to count.
"""

from collections.abc import Callable
from typing import Annotated

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import Array

from .._support import trees
from .._support.checks import Count, Kind, Positive, is_integer
from .._support.trees import PyTree
from ..hypergradient import Remedy
from .sogd import SOGD, Point

Loss = Callable[[PyTree, PyTree], Array]


TracedSeed = Annotated[
    Array,
    Kind(
        "an integer in [0, 2**31)",
        lambda value: is_integer(value) and 0 <= value < 2**31,
        lambda value: jnp.asarray(value, jnp.int32),
    ),
]


class ZOSOGD(SOGD):
    """SOGD for losses that can be evaluated but not differentiated.

    **Arguments:** those of `obax.SOGD`, and

    - `smoothing`: rho, the length of the differences (in units of the variables). Quadratics are
      differenced exactly whatever it is; too small a one drowns in rounding, the more so because
      H v and J v are differences of differences.
    - `directions_per_round`: m, how many random directions are averaged.
    - `seed`: of the random directions. It enters the state at `init`, so one compilation serves all
      seeds, and states of several seeds can be stacked for `obax.sweep(..., seeds=True)`.

    The record of a round (`info`) still differentiates g once, for `inner_gradient_norm`.

    >>> import jax.numpy as jnp
    >>> import obax
    >>> problem = obax.Problem(
    ...     outer=lambda x, y, round: 0.5 * (y - round) ** 2,
    ...     inner=lambda x, y, round: 0.5 * (y - x) ** 2,
    ... )
    >>> algorithm = obax.ZOSOGD(problem, offset=7.0)
    >>> state = algorithm.init(0.0, 0.0, jnp.zeros(()))
    >>> for target in (1.0, 1.0, 1.0):
    ...     state, info = algorithm.step(state, jnp.asarray(target))
    ...     print(f"{state.outer_var:.3f} {state.dual_var:.3f} {info.evaluations}")
    0.000 0.500 14
    0.240 0.740 28
    0.584 0.861 28
    """

    smoothing: Positive = eqx.field(default=0.01, kw_only=True)
    directions_per_round: Count = eqx.field(default=1, kw_only=True)
    seed: TracedSeed = eqx.field(default=0, kw_only=True)

    @property
    def remedy(self) -> Remedy:
        undone, cure = super().remedy
        return Remedy(undone, f"more directions_per_round, another smoothing, {cure}")

    def first_key(self) -> PyTree:
        # Raw key data: a state then holds plain arrays only and any checkpoint can store it.
        return jax.random.key_data(jax.random.key(self.seed))

    def draw(self, key: PyTree, point: Point) -> tuple[PyTree, PyTree]:
        key_next, key_x, key_y = jax.random.split(jax.random.wrap_key_data(key), 3)
        m = self.directions_per_round
        drawn = (_spheres(key_x, point.outer_var, m), _spheres(key_y, point.inner_var, m))
        return jax.random.key_data(key_next), drawn

    def counts(self) -> tuple[int, int, int]:
        return 0, 0, 14 * self.directions_per_round + int(self.problem.has_buffers)

    def directions(
        self, point: Point, round: PyTree, buffers: PyTree, drawn: PyTree
    ) -> tuple[Point, PyTree, PyTree]:
        x, y, v = point
        directions_x, directions_y = drawn
        # One value more where there are buffers: they must not be those of a perturbed y.
        after = self.problem.inner_loss(x, y, round, buffers)[1]

        def f(x: PyTree, y: PyTree) -> Array:
            return self.problem.outer_loss(x, y, round, after)

        def g(x: PyTree, y: PyTree) -> Array:
            return self.problem.inner_loss(x, y, round, buffers)[0]

        def slope_x(loss: Loss, y: PyTree) -> PyTree:
            return self._slope(lambda x: loss(x, y), x, directions_x)

        def slope_y(loss: Loss, y: PyTree) -> PyTree:
            return self._slope(lambda y: loss(x, y), y, directions_y)

        rho = self.smoothing
        ahead, behind = trees.scaled_add(y, rho, v), trees.scaled_add(y, -rho, v)

        def along_v(slope: Callable[[Loss, PyTree], PyTree], direct: PyTree) -> PyTree:
            change = trees.difference(slope(g, ahead), slope(g, behind))
            return trees.scaled_add(direct, 1 / (2 * rho), change)

        gradient_y = slope_y(f, y)
        d_x, d_v = along_v(slope_x, slope_x(f, y)), along_v(slope_y, gradient_y)
        return Point(d_x, slope_y(g, y), d_v), gradient_y, after

    def _slope(self, loss: Callable[[PyTree], Array], at: PyTree, directions: PyTree) -> PyTree:
        """Return the mean of (loss(at + rho u) - loss(at - rho u)) / (2 rho) u over the directions
        u."""

        def one(u: PyTree) -> PyTree:
            high = loss(trees.scaled_add(at, self.smoothing, u))
            low = loss(trees.scaled_add(at, -self.smoothing, u))
            rate = (high - low) / jnp.asarray(2 * self.smoothing, high.dtype)
            return jax.tree.map(lambda leaf: rate.astype(leaf.dtype) * leaf, u)

        return jax.tree.map(lambda leaf: jnp.mean(leaf, axis=0), jax.vmap(one)(directions))


def _spheres(key: Array, like: PyTree, count: int) -> PyTree:
    """Return `count` directions, uniform on the sphere of radius sqrt(d), stacked."""
    flat, unravel = ravel_pytree(like)
    normal = jax.random.normal(key, (count, flat.size), flat.dtype)
    length = jnp.linalg.norm(normal, axis=1, keepdims=True)
    return jax.vmap(unravel)(normal * (jnp.sqrt(jnp.asarray(flat.size, flat.dtype)) / length))
