"""The Nystrom approximation of the inner Hessian, for large y."""

from typing import ClassVar

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float

from .._support.checks import Checked, Count, Positive, Seed
from .._support.trees import PyTree
from .base import RIDGE, SYSTEM, Implicit, LinearMap, Remedy, Solution, check_factors


class Nystrom(Checked, Implicit, prefix="Nystrom."):
    """An estimator with a low-rank sketch, H ~ C W^+ C^T from `rank` random directions Omega, with
    C = H Omega and W = Omega^T H Omega.

    The damped system (C W^+ C^T + rho I) v = grad_y f is solved by Woodbury's identity,

        v = (grad_y f - C (rho W + C^T C)^{-1} C^T grad_y f) / rho,

    so a round costs `rank` Hessian-vector products whatever the conditioning is.
    Exact up to the damping when `rank` reaches the rank of H; the reported residual is that of the
    undamped system. The idea is that of Hataya and Yamada (AISTATS 2023), with a Gaussian sketch in
    place of sampled columns.

    **Arguments:**

    - `rank`: how many directions.
    - `damping`: rho, absolute. What the sketch has not seen of grad_y f is divided by it, so a rho
      far below the curvature there makes v many times too long; `solver_residual`, then far above
      1, says so. By default each round chooses its own rho, the curvature that the sketch leaves
      out along the unseen part of grad_y f, and then the length of v with the smallest residual:
      two products more, and a residual of at most 1, that of v = 0, whatever H and the rank are.
    - `seed`: starts the random directions, which are new in every round.
    """

    remedy: ClassVar[Remedy] = Remedy(
        SYSTEM, f"a larger Nystrom.rank, no Nystrom.damping (each round then chooses), or {RIDGE}"
    )
    rank: Count
    damping: Positive | None = None
    seed: Seed = 0

    def init(self, inner_var: PyTree) -> PyTree:
        # Raw key data: a state then holds plain arrays only and any checkpoint can store it.
        return jax.random.key_data(jax.random.key(self.seed))

    def solve(self, hvp: LinearMap, gradient: PyTree, carry: PyTree) -> Solution:
        check_factors(self, gradient)
        if carry is None:
            carry = self.init(gradient)
        key_next, key_sketch = jax.random.split(jax.random.wrap_key_data(carry))
        b, unravel = ravel_pytree(gradient)
        rank = min(self.rank, b.size)
        product = lambda u: ravel_pytree(hvp(unravel(u)))[0]  # noqa: E731
        sketch = jnp.linalg.qr(jax.random.normal(key_sketch, (b.size, rank), b.dtype))[0].T
        # One after the other: `rank` products at once would need `rank` times the memory.
        products = jax.lax.map(product, sketch)
        core = sketch @ products.T
        careful = self.damping is None and rank < b.size
        if self.damping is not None:
            rho = jnp.asarray(self.damping, b.dtype)
        else:
            # Woodbury's difference loses eps |H| / rho of v, and rho itself takes rho / |H|.
            rho = jnp.sqrt(jnp.finfo(b.dtype).eps) * jnp.linalg.norm(products)
        if careful:
            unseen = b - sketch.T @ (sketch @ b)
            left_out = product(unseen) - products.T @ _solved(core, products @ unseen)
            rho = jnp.maximum(rho, _curvature(unseen, left_out))
        v = (b - products.T @ _solved(rho * core + products @ products.T, products @ b)) / rho
        if careful:
            reached = product(v)
            length = (reached @ b) / jnp.maximum(reached @ reached, jnp.finfo(b.dtype).tiny)
            v = jnp.maximum(length, 0) * v
        return Solution(unravel(v), jax.random.key_data(key_next), rank + 2 * careful)


def _solved(matrix: Array, right: Array) -> Array:
    """Return the solution of a symmetric system by its pseudo-inverse, because it is rank-deficient
    if H is."""
    import lineax as lx

    operator = lx.MatrixLinearOperator((matrix + matrix.T) / 2, lx.symmetric_tag)
    return lx.linear_solve(operator, right, lx.SVD(), throw=False).value


def _curvature(u: Array, product: Array) -> Float[Array, ""]:
    """Return the rho that makes |E u / rho - u| smallest, from u and E u; |E u| / |u| where E u
    does not point along u, as it may where H is not positive definite."""
    along, size, tiny = u @ product, jnp.linalg.norm(product), jnp.finfo(u.dtype).tiny
    steepest = size**2 / jnp.maximum(along, tiny)
    return jnp.where(along > 0, steepest, size / jnp.maximum(jnp.linalg.norm(u), tiny))
