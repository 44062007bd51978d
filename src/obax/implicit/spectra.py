"""Norms and eigenvalues of the derivatives of f, g and phi, which theorems make assumptions on."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array

from .._support.trees import PyTree
from .minimise import Matrix, Scalar, Vector
from .point import at_answer
from .problem import FlatProblem

SWEEPS = 4


class Sizes(NamedTuple):
    """Norms at a point: |f|, |grad f| and |Hess f| in (x, y); |Hess g| in (x, y) and of its cross
    block; the least and largest eigenvalue of its yy block; a lower estimate of |D^3 g|."""

    value: Scalar
    slope: Scalar
    outer_curvature: Scalar
    inner_joint: Scalar
    cross: Scalar
    inner_least: Scalar
    inner_most: Scalar
    third: Scalar


def sizes(
    flat: FlatProblem, x: Vector, y: Vector, round: PyTree, direction: Vector, sweeps: int = SWEEPS
) -> Sizes:
    """Return the sizes at (x, y). The search for |D^3 g| starts at `direction`, of size d1 + d2.

    Once this is compiled, entries that are not used are not computed.
    """
    z, cut = jnp.concatenate([x, y]), x.size

    def f(z: Vector) -> Scalar:
        return flat.outer(z[:cut], z[cut:], round)

    def g(z: Vector) -> Scalar:
        return flat.inner(z[:cut], z[cut:], round)

    bend = jax.hessian(g)(z)
    eigenvalues, cross = jnp.linalg.eigvalsh(bend[cut:, cut:]), bend[:cut, cut:]
    return Sizes(
        value=jnp.abs(f(z)),
        slope=jnp.linalg.norm(jax.grad(f)(z)),
        outer_curvature=spectral_norm(jax.hessian(f)(z)),
        inner_joint=spectral_norm(bend),
        cross=jnp.sqrt(jnp.maximum(jnp.linalg.eigvalsh(cross @ cross.T).max(), 0)),
        inner_least=eigenvalues.min(),
        inner_most=jnp.abs(eigenvalues).max(),
        third=third_derivative(g, z, direction, sweeps),
    )


class LeaderCurvature(NamedTuple):
    """Gradient of phi, the least eigenvalue of its Hessian and the largest absolute one."""

    gradient: Vector
    least: Scalar
    most: Scalar


def leader_curvature(flat: FlatProblem, x: Vector, y: Vector, round: PyTree) -> LeaderCurvature:
    """Return gradient and spectrum of phi at x, where y = y*(x), for short x and y."""
    model = at_answer(flat, x, round, y).model()
    assert model.hessian is not None
    values = jnp.linalg.eigvalsh(model.hessian)
    return LeaderCurvature(model.gradient, values.min(), jnp.abs(values).max())


def spectral_norm(matrix: Matrix) -> Scalar:
    """Return the largest absolute eigenvalue of a symmetric matrix."""
    return jnp.abs(jnp.linalg.eigvalsh(matrix)).max()


def third_derivative(
    g: Callable[[Vector], Array], z: Vector, direction: Vector, sweeps: int = SWEEPS
) -> Scalar:
    """Return a local maximum of |D^3 g(z)[v, u, u]| over unit u and v, improved by turns."""
    tiny = jnp.finfo(z.dtype).tiny

    def sweep(v: Vector, _: None) -> tuple[Vector, Array]:
        v = v / jnp.maximum(jnp.linalg.norm(v), tiny)
        u = jax.grad(lambda z: jax.jvp(lambda z: jax.jvp(g, (z,), (v,))[1], (z,), (v,))[1])(z)
        # For a symmetric form the largest value is at a single direction u = v (Banach).
        return u, jnp.abs(jnp.vdot(u, v))

    return jax.lax.scan(sweep, direction, None, length=sweeps)[1].max()


def extreme_eigenvalues(
    product: Callable[[Vector], Vector], start: Vector, steps: int = 32
) -> tuple[Scalar, Scalar, Vector]:
    """Return the least and the largest eigenvalue of a symmetric matrix, and a vector of the least.

    Lanczos with full reorthogonalisation: exact for up to `steps` dimensions; otherwise the least
    is not below the true one and the largest not above.
    """
    steps = min(steps, start.size)
    tiny = 64 * jnp.finfo(start.dtype).eps

    def extend(state: tuple, index: Array) -> tuple[tuple, tuple[Scalar, Scalar]]:
        basis, q, first = state
        basis = basis.at[index].set(q)
        bent = product(q)
        here = jnp.vdot(q, bent)
        left = bent
        for _ in range(2):
            left = left - basis.T @ (basis @ left)
        size = jnp.linalg.norm(left)
        # After an invariant subspace the rest must not look like eigenvalues of zero.
        alive = size > tiny * jnp.linalg.norm(bent)
        first = jnp.where(index == 0, here, first)
        here = jnp.where(jnp.any(q != 0), here, first)
        link = jnp.where(alive, size, 0)
        q = jnp.where(alive, left / jnp.where(alive, size, 1), 0)
        return (basis, q, first), (here, link)

    q = start / jnp.linalg.norm(start)
    empty = (jnp.zeros((steps, start.size), start.dtype), q, jnp.zeros((), start.dtype))
    last, (diagonal, links) = jax.lax.scan(extend, empty, jnp.arange(steps))
    matrix = jnp.diag(diagonal) + jnp.diag(links[:-1], 1) + jnp.diag(links[:-1], -1)
    values, vectors = jnp.linalg.eigh(matrix)
    return values[0], values[-1], last[0].T @ vectors[:, 0]
