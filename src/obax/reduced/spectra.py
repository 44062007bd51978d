"""Sizes of the derivatives of f, g and phi at a point: what the assumptions of a theorem bound."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array

from .._support.trees import PyTree
from .flat import Flat
from .model import leader_model, one_round
from .solve import Matrix, Scalar, Vector

SWEEPS = 4


class Sizes(NamedTuple):
    """|f|, |grad f| and |Hess f| in (x, y); |Hess g| in (x, y) and the norm of its cross block;
    the least and largest eigenvalue of its yy block; and |D^3 g|, a lower estimate."""

    value: Scalar
    slope: Scalar
    outer_curvature: Scalar
    inner_joint: Scalar
    cross: Scalar
    inner_least: Scalar
    inner_most: Scalar
    third: Scalar


def sizes(
    flat: Flat, x: Vector, y: Vector, round: PyTree, direction: Vector, sweeps: int = SWEEPS
) -> Sizes:
    """All of them at (x, y). `direction`, of size d1 + d2, is where the search for |D^3 g| starts.

    What is not used is not computed, once this is compiled.
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
    """grad phi; the least eigenvalue of Hess phi, and the largest magnitude of one."""

    gradient: Vector
    least: Scalar
    most: Scalar


def leader_curvature(flat: Flat, x: Vector, y: Vector, round: PyTree) -> LeaderCurvature:
    """Gradient and spectrum of phi at x, where y = y*(x). Dense: for small x and y."""
    model = leader_model(flat, one_round(round), x, y)
    assert model.hessian is not None
    values = jnp.linalg.eigvalsh(model.hessian)
    return LeaderCurvature(model.gradient, values.min(), jnp.abs(values).max())


def spectral_norm(matrix: Matrix) -> Scalar:
    """The largest magnitude of an eigenvalue of a symmetric matrix."""
    return jnp.abs(jnp.linalg.eigvalsh(matrix)).max()


def third_derivative(
    g: Callable[[Vector], Array], z: Vector, direction: Vector, sweeps: int = SWEEPS
) -> Scalar:
    """A local maximum of |D^3 g(z)[v, u, u]| over unit u, v: the best v for u, and by turns."""
    tiny = jnp.finfo(z.dtype).tiny

    def sweep(v: Vector, _: None) -> tuple[Vector, Array]:
        v = v / jnp.maximum(jnp.linalg.norm(v), tiny)
        u = jax.grad(lambda z: jax.jvp(lambda z: jax.jvp(g, (z,), (v,))[1], (z,), (v,))[1])(z)
        # For a symmetric form the largest value is at a single direction u = v (Banach).
        return u, jnp.abs(jnp.vdot(u, v))

    return jax.lax.scan(sweep, direction, None, length=sweeps)[1].max()
