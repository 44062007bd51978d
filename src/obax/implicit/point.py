"""The follower's answer y*(x) and the leader's loss phi(x) = f(x, y*(x)), with derivatives in x.

With H = grad^2_yy g and J = d(grad_y g)/dx at (x, y*), dy*/dx = -H^{-1} J and H v = grad_y f,

    grad phi = grad_x f - J^T v,
    Hess phi = [I; dy*/dx]^T  grad^2_(x,y) (f - v . grad_y g)  [I; dy*/dx]    (v held fixed),

so that nothing is ever differentiated through a solver or a closed form. In a set Y the follower
moves along its face: H is P H P + b P + I - P there, J is P J, grad_y f is P grad_y f
(`obax.domain.Face`; Hess phi leaves out how the face of a ball turns). Where y is too long for
dense matrices, H^{-1} is applied by conjugate gradients.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._support.trees import PyTree
from .linear import solve_definite
from .minimise import Matrix, Model, Scalar, Vector, minimise, relative_residual, spectral
from .newton import newton_point
from .problem import FlatProblem, Total


class Answer(NamedTuple):
    """The follower's y, and |grad_y g| there relative to the terms that cancel in it."""

    y: Vector
    residual: Scalar


def one_round(round: PyTree) -> Total:
    """Return the total of a single round: the function's value for it."""
    return lambda function: function(round)


class Point(NamedTuple):
    """A pair (x, y) of a problem, whose losses are those of one round or sums over many.

    `total` turns a function of a round into its value for one round or into its sum (or mean) over
    many, so that the same code serves a round and a stage with both of its losses summed.
    """

    flat: FlatProblem
    total: Total
    x: Vector
    y: Vector

    def value(self) -> Scalar:
        """Return f(x, y)."""
        return self.total(lambda r: self.flat.outer(self.x, self.y, r))

    def outer_slopes(self) -> tuple[Vector, Vector]:
        """Return the gradients of f in x and in y."""
        return self.total(lambda r: jax.grad(self.flat.outer, (0, 1))(self.x, self.y, r))

    def inner_slope(self) -> Vector:
        """Return grad_y g."""
        return self.total(lambda r: jax.grad(self.flat.inner, 1)(self.x, self.y, r))

    def inner_hessian(self) -> Matrix:
        """Return H."""
        return self.total(lambda r: jax.hessian(self.flat.inner, 1)(self.x, self.y, r))

    def inner_product(self, u: Vector) -> Vector:
        """Return H u."""
        slope, x = jax.grad(self.flat.inner, 1), self.x
        return self.total(lambda r: jax.jvp(lambda y: slope(x, y, r), (self.y,), (u,))[1])

    def cross_product(self, u: Vector) -> Vector:
        """Return J u."""
        slope, y = jax.grad(self.flat.inner, 1), self.y
        return self.total(lambda r: jax.jvp(lambda x: slope(x, y, r), (self.x,), (u,))[1])

    def inner_model(self, dense: bool) -> Model:
        """Return g as a function of y. |H y| and |J x| are the terms that would cancel in grad_y g
        if it were affine; |H y| is kept as `extra`, as a measure of the curvature."""
        flat = self.flat
        value, gradient = self.total(lambda r: jax.value_and_grad(flat.inner, 1)(self.x, self.y, r))
        hessian = self.inner_hessian() if dense else None
        product = self.inner_product(self.y) if hessian is None else hessian @ self.y
        size, crossed = jnp.linalg.norm(product), jnp.linalg.norm(self.cross_product(self.x))
        return Model(value, gradient, hessian, size + crossed, size)

    def on_face(self, rhs: Vector, curvature: Matrix, cross: Array) -> tuple[Vector, Matrix, Array]:
        """Return P rhs, P H P + b P + I - P and P J; without a set Y the arguments."""
        if self.flat.inner_set is None:
            return rhs, curvature, cross
        tangent, bend = self.flat.inner_set.face(self.y, self.inner_slope())
        unit = jnp.eye(self.y.size, dtype=self.y.dtype)
        P = jax.vmap(tangent)(unit)
        return P @ rhs, P @ curvature @ P + bend * P + unit - P, P @ cross

    def solve_inner(self, rhs: Vector) -> Vector:
        """Return H^{-1} rhs."""
        if self.flat.dense_inner:
            rhs, curvature, _ = self.on_face(rhs, self.inner_hessian(), rhs[:, None])
            return jnp.linalg.solve(curvature, rhs)
        if self.flat.inner_set is None:
            return solve_definite(self.inner_product, rhs)
        tangent, bend = self.flat.inner_set.face(self.y, self.inner_slope())

        def product(u: Vector) -> Vector:
            inside = tangent(u)
            return tangent(self.inner_product(inside)) + bend * inside + (u - inside)

        return solve_definite(product, tangent(rhs))

    def pull_back(self, slope_x: Vector, slope_y: Vector) -> Vector:
        """Return slope_x - J^T H^{-1} slope_y: the gradient in x of a function of (x, y*(x)) that
        has these slopes in x and in y."""
        if not self.flat.has_follower:
            return slope_x
        slope, v, y = jax.grad(self.flat.inner, 1), self.solve_inner(slope_y), self.y
        return slope_x - self.total(
            lambda r: jax.grad(lambda x: jnp.vdot(slope(x, y, r), v))(self.x)
        )

    def gradient(self) -> Vector:
        """Return grad phi, where y = y*(x)."""
        return self.pull_back(*self.outer_slopes())

    def answer_slope(self) -> Float[Array, "d2 d1"]:
        """Return dy*/dx, by dense factors."""
        curvature, cross = self.total(self._inner_curvature)
        _, curvature, cross = self.on_face(jnp.zeros_like(self.y), curvature, cross)
        return -jnp.linalg.solve(curvature, cross)

    def model(self) -> Model:
        """Return phi, its gradient and its Hessian, where y = y*(x).

        The scale is the size of the terms in x and of those in y that cancel in the gradient, as
        they would for a quadratic.
        """
        if not self.flat.dense_inner:
            return self._model_by_products()
        flat, x, y = self.flat, self.x, self.y
        slope, v = jnp.zeros((0, x.size), flat.dtype), jnp.zeros(0, flat.dtype)
        if flat.has_follower:
            slope_y, (curvature, cross) = self.total(
                lambda r: (jax.grad(flat.outer, 1)(x, y, r), self._inner_curvature(r))
            )
            slope_y, curvature, cross = self.on_face(slope_y, curvature, cross)
            # LU, not Cholesky: where g is not convex the derivative is still what it is.
            solved = jnp.linalg.solve(curvature, jnp.concatenate([slope_y[:, None], cross], axis=1))
            v, slope = solved[:, 0], -solved[:, 1:]

        def lagrangian(step: Vector, share: Scalar, round: PyTree) -> Scalar:
            return _lagrangian(flat, v, x + step, y + slope @ step + share * y, round)

        no_step, zero = jnp.zeros_like(x), jnp.zeros((), flat.dtype)
        gradient_of = jax.grad(lagrangian)

        def terms_of_y(round: PyTree) -> Vector:
            if not flat.has_follower:
                return no_step
            tangent = (jnp.ones_like(zero),)
            return jax.jvp(lambda share: gradient_of(no_step, share, round), (zero,), tangent)[1]

        value, gradient, hessian, of_y = self.total(
            lambda r: (
                flat.outer(x, y, r),
                gradient_of(no_step, zero, r),
                jax.hessian(lagrangian)(no_step, zero, r),
                terms_of_y(r),
            )
        )
        scale = jnp.linalg.norm(hessian @ x) + jnp.linalg.norm(of_y)
        return Model(value, gradient, hessian, scale)

    def _inner_curvature(self, round: PyTree) -> tuple[Matrix, Array]:
        """Return H and J of one round."""
        inner, pair = self.flat.inner, (self.x, self.y)
        return jax.hessian(inner, 1)(*pair, round), jax.jacfwd(jax.grad(inner, 1), 0)(*pair, round)

    def _model_by_products(self) -> Model:
        """Return the same for a long y: one solve with H for each column of the Hessian."""
        flat, x, y = self.flat, self.x, self.y
        slope_x, slope_y = self.outer_slopes()
        gradient, v = self.pull_back(slope_x, slope_y), self.solve_inner(slope_y)

        def column(u: Vector) -> Vector:
            along = -self.solve_inner(self.cross_product(u))
            slopes = lambda x, y, r: jax.grad(_lagrangian, (2, 3))(flat, v, x, y, r)  # noqa: E731
            bent = self.total(
                lambda r: jax.jvp(lambda x, y: slopes(x, y, r), (x, y), (u, along))[1]
            )
            return self.pull_back(*bent)

        hessian = jax.lax.map(column, jnp.eye(x.size, dtype=flat.dtype))
        bent = self.total(lambda r: jax.jvp(lambda x: jax.grad(flat.outer)(x, y, r), (x,), (x,))[1])
        scale = sum(jnp.linalg.norm(part) for part in (bent, slope_x, slope_x - gradient))
        return Model(self.value(), gradient, (hessian + hessian.T) / 2, scale)


def _lagrangian(flat: FlatProblem, v: Vector, x: Vector, y: Vector, round: PyTree) -> Scalar:
    """Return f - v . grad_y g."""
    value = flat.outer(x, y, round)
    if not flat.has_follower:
        return value
    return value - jnp.vdot(v, jax.grad(flat.inner, 1)(x, y, round)).astype(value.dtype)


def answer(flat: FlatProblem, x: Vector, round: PyTree) -> Answer:
    """Return y*_t(x) of one round: the closed form with its residual, or a numerical solution."""
    if not flat.has_follower or not flat.closed:
        return solve_follower(flat, one_round(round), x)
    y = flat.closed_answer(x, round)
    model = Point(flat, one_round(round), x, y).inner_model(dense=False)
    return Answer(y, relative_residual(flat.inner_region, y, model, _bend(y, model)))


def solve_follower(
    flat: FlatProblem, total: Total, x: Vector, start: Vector | None = None
) -> Answer:
    """Minimise the total of g over y by damped Newton; return an empty y without a follower."""
    if not flat.has_follower:
        return Answer(jnp.zeros(0, flat.dtype), jnp.zeros((), flat.dtype))

    start = flat.first_answer(x) if start is None else start
    if (region := flat.inner_region) is not None:
        inside = spectral(
            lambda y: Point(flat, total, x, y).inner_model(dense=False),
            region.project(start),
            region=region,
            tolerance=flat.goal,
            max_steps=flat.gradient_steps,
        )
        return Answer(inside.point, inside.residual)

    def propose(y: Vector, model: Model, damping: Scalar) -> Vector:
        if model.hessian is not None:
            return newton_point(y, model.gradient, model.hessian, damping)
        product = Point(flat, total, x, y).inner_product
        return y - solve_definite(lambda u: product(u) + damping * u, model.gradient)

    minimum = minimise(
        lambda y: Point(flat, total, x, y).inner_model(flat.dense_inner),
        propose,
        start,
        tolerance=flat.goal,
        max_steps=flat.newton_steps,
        bend=_bend,
    )
    return Answer(minimum.point, minimum.residual)


def _bend(y: Vector, model: Model) -> Scalar:
    """Return |H y| / |y|: a curvature of g that costs one product."""
    length = jnp.linalg.norm(y)
    return jnp.where(length > 0, model.extra / jnp.where(length > 0, length, 1), 0)


class Convexity(NamedTuple):
    """Evidence on the strong convexity of g in y: the least eigenvalue of H at y*(x), and the least
    at points around it, both relative to the largest there; and how much lower than at y*(x) the
    value of g is where searches from other starts end, relative to its values around y*(x)."""

    at_answer: Scalar
    around: Scalar
    lower: Scalar


def convexity(flat: FlatProblem, x: Vector, y: Vector, round: PyTree) -> Convexity:
    """Measure at y = y*(x), for a short y. The points around it are on the line through y and -y,
    where a symmetric loss has its other well, and in random directions."""
    here = Point(flat, one_round(round), x, y)
    size = jnp.linalg.norm(y)
    size = jnp.where(size > 0, size, 1)
    noise = np.random.default_rng(0).standard_normal((6, y.size)) / max(y.size, 1) ** 0.5
    near = y + size * jnp.asarray(noise * np.array([[0.1], [-0.1], [1], [-1], [3], [-3]]), y.dtype)
    points = jnp.concatenate([jnp.stack([y / 2, -y / 2, -y]), near])
    if flat.inner_set is not None:
        points = jax.vmap(flat.inner_set.project)(points)

    def least(y: Vector) -> Scalar:
        values = jnp.linalg.eigvalsh(here._replace(y=y).inner_hessian())
        largest = jnp.max(jnp.abs(values))
        return values[0] / jnp.where(largest > 0, largest, 1)

    def end(start: Vector) -> Scalar:
        other = solve_follower(flat, one_round(round), x, start)
        value = flat.inner(x, other.y, round)
        return jnp.where(jnp.isnan(value), jnp.inf, value)

    # Points at which the loss has no value, such as that of a logarithm, are left out.
    around = jax.lax.map(least, points)
    around = jnp.min(jnp.where(jnp.isnan(around), 1, around))
    values = jnp.abs(jax.lax.map(lambda y: flat.inner(x, y, round), points))
    scale = jnp.max(jnp.where(jnp.isfinite(values), values, 0))
    # Beyond the mirrored point, which may be a maximum.
    ends = jax.lax.map(end, jnp.concatenate([-2 * y[None], points[-2:]]))
    lower = flat.inner(x, y, round) - jnp.min(ends)
    return Convexity(least(y), around, lower / jnp.where(scale > 0, scale, 1))


def at_answer(flat: FlatProblem, x: Vector, round: PyTree, y: Vector | None = None) -> Point:
    """Return the point (x, y*_t(x)) of one round; `y` is y*_t(x) where it is known."""
    y = answer(flat, x, round).y if y is None else y
    return Point(flat, one_round(round), x, y)
