"""A step size of the follower from the curvature of its loss."""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._support import trees
from .._support.checks import Checked, Positive
from .._support.trees import PyTree

ITERATIONS = 3
"""Power iterations, and so Hessian-vector products, in each round."""


class CurvatureStep(Checked, eqx.Module):
    """The step size beta_t = factor / L_t of a follower, with L_t the largest curvature of g_t.

    L_t is estimated by three power iterations on the Hessian of g_t at (x_t, y_t), which go on from
    the direction of the round before. Gradient steps on a quadratic converge below 2 / L, so that
    the factor leaves room for an estimate that is too small.

    >>> import jax
    >>> import jax.numpy as jnp
    >>> curvatures = jnp.array([1.0, 4.0])
    >>> gradient = jax.grad(lambda y: 0.5 * jnp.sum(curvatures * y**2))
    >>> step, y = CurvatureStep(), jnp.ones(2)
    >>> direction = step.init(y)
    >>> for _ in range(3):
    ...     size, direction = step.size(gradient, y, direction)
    ...     print(f"{size:.4f}")
    0.1254
    0.1250
    0.1250
    """

    factor: Positive = 0.5

    def init(self, inner_var: PyTree) -> PyTree:
        """Return the first direction: fixed numbers of both signs."""
        leaves, structure = jax.tree.flatten(inner_var)
        wave = [jnp.cos(jnp.arange(1.0, 1.0 + leaf.size)).reshape(leaf.shape) for leaf in leaves]
        direction = [part.astype(leaf.dtype) for part, leaf in zip(wave, leaves, strict=True)]
        return jax.tree.unflatten(structure, direction)

    def size(
        self, gradient: Callable[[PyTree], PyTree], inner_var: PyTree, direction: PyTree
    ) -> tuple[Float[Array, ""], PyTree]:
        """Return the step size and the direction for the next round. `gradient` is that of g_t in
        y. Where the curvature is zero the step is zero too."""
        inner_var, direction = jax.lax.stop_gradient((inner_var, direction))

        def iterate(_: int, now: tuple[PyTree, Array]) -> tuple[PyTree, Array]:
            unit = trees.scaled(now[0], trees.inverse(trees.norm(now[0])))
            product = jax.jvp(gradient, (inner_var,), (unit,))[1]
            curvature = trees.norm(product)
            return trees.select(curvature != 0, product, now[0]), curvature

        first = jnp.zeros_like(trees.norm(direction))
        direction, curvature = jax.lax.fori_loop(0, ITERATIONS, iterate, (direction, first))
        direction = trees.scaled(direction, trees.inverse(trees.norm(direction)))
        factor = jnp.asarray(self.factor, curvature.dtype)
        return jax.lax.stop_gradient((factor * trees.inverse(curvature), direction))
