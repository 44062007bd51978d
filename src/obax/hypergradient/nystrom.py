"""The Nystrom approximation of the inner Hessian, for large y."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import lineax as lx
from jax.flatten_util import ravel_pytree
from jaxtyping import Array

from .._support import validation
from .._support.trees import PyTree
from .base import Implicit, LinearMap, Solution


class Nystrom(Implicit):
    """H ~ C W^+ C^T from `rank` random directions Omega, with C = H Omega and W = Omega^T H Omega.

    The damped system (C W^+ C^T + rho I) v = grad_y f is solved by Woodbury's identity,

        v = (grad_y f - C (rho W + C^T C)^{-1} C^T grad_y f) / rho,

    so a round costs `rank` Hessian-vector products whatever the conditioning is.
    Exact up to the damping when `rank` reaches the rank of H; the reported residual is that of the
    undamped system. The idea is that of Hataya and Yamada (AISTATS 2023), with a Gaussian sketch in
    place of sampled columns. `damping` rho is absolute; `seed` starts the random directions, which
    are new in every round.
    """

    rank: int = eqx.field(static=True)
    damping: Array
    seed: int = eqx.field(static=True)

    def __init__(self, rank: int, damping: Any = 1e-2, seed: int = 0):
        self.rank = validation.count(rank, "Nystrom.rank")
        self.damping = validation.positive_number(damping, "Nystrom.damping")
        self.seed = int(seed)

    def init(self, inner_var: PyTree) -> PyTree:
        # Raw key data: a state then holds plain arrays only and any checkpoint can store it.
        return jax.random.key_data(jax.random.key(self.seed))

    def solve(self, hvp: LinearMap, gradient: PyTree, carry: PyTree) -> Solution:
        key_next, key_sketch = jax.random.split(jax.random.wrap_key_data(carry))
        b, unravel = ravel_pytree(gradient)
        rank = min(self.rank, b.size)
        sketch = jnp.linalg.qr(jax.random.normal(key_sketch, (b.size, rank), b.dtype))[0].T
        # One after the other: `rank` products at once would need `rank` times the memory.
        products = jax.lax.map(lambda row: ravel_pytree(hvp(unravel(row)))[0], sketch)
        rho = self.damping.astype(b.dtype)
        small = rho * (sketch @ products.T) + products @ products.T
        small = (small + small.T) / 2
        operator = lx.MatrixLinearOperator(small, lx.symmetric_tag)
        # Rank-deficient when H is: the pseudo-inverse is what the identity asks for.
        weights = lx.linear_solve(operator, products @ b, lx.SVD(), throw=False).value
        v = (b - products.T @ weights) / rho
        return Solution(unravel(v), jax.random.key_data(key_next), rank)
