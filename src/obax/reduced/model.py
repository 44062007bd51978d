"""The follower's answer y*(x) and the leader's loss phi(x) = f(x, y*(x)), with derivatives in x.

With H = grad^2_yy g and J = d(grad_y g)/dx at (x, y*), dy*/dx = -H^{-1} J and H v = grad_y f,

    grad phi = grad_x f - J^T v,
    Hess phi = [I; dy*/dx]^T  grad^2_(x,y) (f - v . grad_y g)  [I; dy*/dx]    (v held fixed),

so that nothing is ever differentiated through a solver or a closed form. In a set Y the follower
moves along its face: H is P H P + b P + I - P there, J is P J, grad_y f is P grad_y f
(`obax.domain.Face`; Hess phi leaves out how a ball's face turns). Where x or y is too long
for dense matrices the gradient comes from conjugate gradients, and so do products with Hess phi.

A *total* turns a function of a round into its value for one round or into its mean over many: the
same code solves a round's problem and that of a whole stage with both of its losses summed.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._support.trees import PyTree
from .flat import Flat, Total
from .solve import Matrix, Model, Scalar, Vector, minimise, relative_residual, spectral
from .step import newton_point, solve_definite


class Answer(NamedTuple):
    """y, and how far it is from the follower's optimum: |grad_y g| relative to its terms."""

    y: Vector
    residual: Scalar


def one_round(round: PyTree) -> Total:
    """The total of a single round."""
    return lambda function: function(round)


def answer(flat: Flat, x: Vector, round: PyTree) -> Answer:
    """y*_t(x) of one round: the closed form, checked, or solved numerically."""
    if not flat.has_follower or not flat.closed:
        return solve_follower(flat, one_round(round), x)
    y = flat.closed_answer(x, round)
    model = _inner_model(flat, one_round(round), x, y, dense=False)
    return Answer(y, relative_residual(flat.inner_region, y, model, _bend(y, model)))


def solve_follower(flat: Flat, total: Total, x: Vector) -> Answer:
    """argmin_y of the total of g, by damped Newton; nothing where there is no follower."""
    if not flat.has_follower:
        return Answer(jnp.zeros(0, flat.dtype), jnp.zeros((), flat.dtype))

    if (region := flat.inner_region) is not None:
        kept = spectral(
            lambda y: _inner_model(flat, total, x, y, dense=False),
            region.project(flat.first_answer(x)),
            region=region,
            tolerance=flat.goal,
            max_steps=flat.gradient_steps,
        )
        return Answer(kept.point, kept.residual)

    def propose(y: Vector, model: Model, damping: Scalar) -> Vector:
        if model.hessian is not None:
            return newton_point(y, model.gradient, model.hessian, damping)
        product = _inner_products(flat, total, x, y)
        return y - solve_definite(lambda u: product(u) + damping * u, model.gradient)

    found = minimise(
        lambda y: _inner_model(flat, total, x, y, flat.dense_inner),
        propose,
        flat.first_answer(x),
        tolerance=flat.goal,
        max_steps=flat.newton_steps,
        bend=_bend,
    )
    return Answer(found.point, found.residual)


def _inner_model(flat: Flat, total: Total, x: Vector, y: Vector, dense: bool) -> Model:
    """g at (x, y). |H y| and |J x| are the terms that cancel in grad_y g, were it affine."""
    value, gradient = total(lambda r: jax.value_and_grad(flat.inner, 1)(x, y, r))
    if dense:
        hessian = _inner_hessian(flat, total, x, y)
        product = hessian @ y
    else:
        hessian, product = None, _inner_products(flat, total, x, y)(y)
    bent, crossed = jnp.linalg.norm(product), _cross_products(flat, total, x, y)(x)
    return Model(value, gradient, hessian, bent + jnp.linalg.norm(crossed), bent)


def _inner_hessian(flat: Flat, total: Total, x: Vector, y: Vector) -> Matrix:
    return total(lambda r: jax.hessian(flat.inner, 1)(x, y, r))


def _inner_products(flat: Flat, total: Total, x: Vector, y: Vector) -> Callable[[Vector], Vector]:
    """u -> H u."""
    gradient_of = jax.grad(flat.inner, 1)
    return lambda u: total(lambda r: jax.jvp(lambda y: gradient_of(x, y, r), (y,), (u,))[1])


def _cross_products(flat: Flat, total: Total, x: Vector, y: Vector) -> Callable[[Vector], Vector]:
    """u -> J u."""
    gradient_of = jax.grad(flat.inner, 1)
    return lambda u: total(lambda r: jax.jvp(lambda x: gradient_of(x, y, r), (x,), (u,))[1])


def _bend(y: Vector, model: Model) -> Scalar:
    """|H y| / |y|: a curvature of g that costs one product."""
    length = jnp.linalg.norm(y)
    return jnp.where(length > 0, model.extra / jnp.where(length > 0, length, 1), 0)


def leader_model(flat: Flat, total: Total, x: Vector, y: Vector) -> Model:
    """phi and its derivatives at x, given the follower's answer y.

    The scale is what B^T grad(x, y) of a quadratic is made of: its terms in x and those in y.
    """
    if not flat.dense:
        return _slopes_only(flat, total, x, y)
    slope, v = jnp.zeros((0, x.size), flat.dtype), jnp.zeros(0, flat.dtype)
    if flat.has_follower:
        slope_y, (curvature, cross) = total(
            lambda r: (jax.grad(flat.outer, 1)(x, y, r), _inner_curvature(flat, x, y, r))
        )
        slope_y, curvature, cross = _on_face(flat, total, x, y, slope_y, curvature, cross)
        # LU, not Cholesky: where g is not convex the derivative is still what it is.
        solved = jnp.linalg.solve(curvature, jnp.concatenate([slope_y[:, None], cross], axis=1))
        v, slope = solved[:, 0], -solved[:, 1:]

    def lagrangian(s: Vector, part: Scalar, round: PyTree) -> Scalar:
        return _lagrangian(flat, v, x + s, y + slope @ s + part * y, round)

    here, none = jnp.zeros_like(x), jnp.zeros((), flat.dtype)
    gradient_of = jax.grad(lagrangian)

    def terms_of_y(round: PyTree) -> Vector:
        if not flat.has_follower:
            return here
        return jax.jvp(lambda a: gradient_of(here, a, round), (none,), (jnp.ones_like(none),))[1]

    value, gradient, hessian, of_y = total(
        lambda r: (
            flat.outer(x, y, r),
            gradient_of(here, none, r),
            jax.hessian(lagrangian)(here, none, r),
            terms_of_y(r),
        )
    )
    scale = jnp.linalg.norm(hessian @ x) + jnp.linalg.norm(of_y)
    return Model(value, gradient, hessian, scale)


def _lagrangian(flat: Flat, v: Vector, x: Vector, y: Vector, round: PyTree) -> Scalar:
    """f - v . grad_y g."""
    value = flat.outer(x, y, round)
    if not flat.has_follower:
        return value
    return value - jnp.vdot(v, jax.grad(flat.inner, 1)(x, y, round)).astype(value.dtype)


def _slopes_only(flat: Flat, total: Total, x: Vector, y: Vector) -> Model:
    value, slopes = total(lambda r: jax.value_and_grad(flat.outer, (0, 1))(x, y, r))
    bent = total(lambda r: jax.jvp(lambda x: jax.grad(flat.outer)(x, y, r), (x,), (x,))[1])
    gradient = pulled_back(flat, total, x, y, *slopes)
    parts = (bent, slopes[0], slopes[0] - gradient) if flat.has_follower else (bent,)
    return Model(value, gradient, None, sum(jnp.linalg.norm(part) for part in parts))


def leader_products(flat: Flat, total: Total, x: Vector, y: Vector) -> Callable[[Vector], Vector]:
    """u -> Hess phi(x) u, by conjugate gradients: two solves for each product."""
    v = jnp.zeros(0, flat.dtype)
    if flat.has_follower:
        v = inner_solve(flat, total, x, y, total(lambda r: jax.grad(flat.outer, 1)(x, y, r)))

    def product(u: Vector) -> Vector:
        along = jnp.zeros(0, flat.dtype)
        if flat.has_follower:
            along = -inner_solve(flat, total, x, y, _cross_products(flat, total, x, y)(u))
        bent = total(
            lambda r: jax.jvp(
                lambda x, y: jax.grad(_lagrangian, (2, 3))(flat, v, x, y, r), (x, y), (u, along)
            )[1]
        )
        return pulled_back(flat, total, x, y, *bent)

    return product


def inner_solve(flat: Flat, total: Total, x: Vector, y: Vector, rhs: Vector) -> Vector:
    """H^{-1} rhs."""
    if flat.dense_inner:
        curvature = _inner_hessian(flat, total, x, y)
        rhs, curvature, _ = _on_face(flat, total, x, y, rhs, curvature, rhs[:, None])
        return jnp.linalg.solve(curvature, rhs)
    product = _inner_products(flat, total, x, y)
    if flat.inner_set is None:
        return solve_definite(product, rhs)
    tangent, bend = flat.inner_set.face(y, _slope(flat, total, x, y))

    def on_face(u: Vector) -> Vector:
        inside = tangent(u)
        return tangent(product(inside)) + bend * inside + (u - inside)

    return solve_definite(on_face, tangent(rhs))


def _slope(flat: Flat, total: Total, x: Vector, y: Vector) -> Vector:
    return total(lambda r: jax.grad(flat.inner, 1)(x, y, r))


def _on_face(
    flat: Flat, total: Total, x: Vector, y: Vector, rhs: Vector, curvature: Matrix, cross: Array
) -> tuple[Vector, Matrix, Array]:
    """P rhs, P H P + b P + I - P and P J; without a set Y as they are."""
    if flat.inner_set is None:
        return rhs, curvature, cross
    tangent, bend = flat.inner_set.face(y, _slope(flat, total, x, y))
    unit = jnp.eye(y.size, dtype=y.dtype)
    P = jax.vmap(tangent)(unit)
    return P @ rhs, P @ curvature @ P + bend * P + unit - P, P @ cross


def pulled_back(
    flat: Flat, total: Total, x: Vector, y: Vector, slope_x: Vector, slope_y: Vector
) -> Vector:
    """slope_x - J^T H^{-1} slope_y: the gradient in x of what has these slopes at (x, y*(x))."""
    if not flat.has_follower:
        return slope_x
    gradient_of = jax.grad(flat.inner, 1)
    v = inner_solve(flat, total, x, y, slope_y)
    return slope_x - total(lambda r: jax.grad(lambda x: jnp.vdot(gradient_of(x, y, r), v))(x))


def reduced_gradient(flat: Flat, x: Vector, round: PyTree, y: Vector | None = None) -> Vector:
    """grad phi of one round at x; `y` is y*(x) where it is known."""
    y = answer(flat, x, round).y if y is None else y
    slopes = jax.grad(flat.outer, (0, 1))(x, y, round)
    return pulled_back(flat, one_round(round), x, y, *slopes)


def reduced_value(flat: Flat, x: Vector, round: PyTree) -> Scalar:
    """phi of one round at x."""
    return flat.outer(x, answer(flat, x, round).y, round)


def answer_slope(flat: Flat, total: Total, x: Vector, y: Vector) -> Float[Array, "d2 d1"]:
    """dy*/dx = -H^{-1} J, by dense factors."""
    curvature, cross = total(lambda r: _inner_curvature(flat, x, y, r))
    _, curvature, cross = _on_face(flat, total, x, y, jnp.zeros_like(y), curvature, cross)
    return -jnp.linalg.solve(curvature, cross)


def _inner_curvature(flat: Flat, x: Vector, y: Vector, round: PyTree) -> tuple[Matrix, Array]:
    """H and J of one round."""
    slope = jax.grad(flat.inner, 1)
    return jax.hessian(flat.inner, 1)(x, y, round), jax.jacfwd(slope, 0)(x, y, round)
