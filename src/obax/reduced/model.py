"""The follower's answer y*(x) and the leader's loss phi(x) = f(x, y*(x)), with derivatives in x.

With H = grad^2_yy g and J = d(grad_y g)/dx at (x, y*), dy*/dx = -H^{-1} J and H v = grad_y f,

    grad phi = grad_x f - J^T v,
    Hess phi = [I; dy*/dx]^T  grad^2_(x,y) (f - v . grad_y g)  [I; dy*/dx]    (v held fixed),

so that nothing is ever differentiated through a solver or a closed form. Where x or y is too long
for dense matrices the gradient comes from conjugate gradients and there is no Hessian.

A *total* turns a function of a round into its value for one round or into its mean over many: the
same code solves a round's problem and that of a whole stage with both of its losses summed.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._support.trees import PyTree
from .chunks import length_of
from .conjugate import solve_definite
from .flat import Flat, Total
from .solve import Minimum, Model, Scalar, Vector, fixed_point_residual, minimise, spectral
from .step import newton_cg_point, newton_point, quadratic_program


class Answer(NamedTuple):
    """y and |grad_y g(x, y)| / max(1, |H y|): how far the follower is from its optimum."""

    y: Vector
    residual: Scalar


def one_round(round: PyTree) -> Total:
    """The total of a single round."""
    return lambda function: function(round)


def answer(flat: Flat, x: Vector, round: PyTree) -> Answer:
    """y*_t(x) of one round: the closed form, checked, or solved numerically."""
    if not flat.has_follower:
        return Answer(jnp.zeros(0, flat.dtype), jnp.zeros((), flat.dtype))
    if not flat.closed:
        return solve_follower(flat, one_round(round), x)
    y = flat.closed_answer(x, round)
    gradient, bent = jax.jvp(lambda y: jax.grad(flat.inner, 1)(x, y, round), (y,), (y,))
    residual = jnp.linalg.norm(gradient) / jnp.maximum(1, jnp.linalg.norm(bent))
    return Answer(y, residual)


def solve_follower(flat: Flat, total: Total, x: Vector) -> Answer:
    """argmin_y of the total of g, by damped Newton."""
    gradient_of = jax.grad(flat.inner, 1)

    def product(y: Vector, u: Vector) -> Vector:
        return total(lambda r: jax.jvp(lambda y: gradient_of(x, y, r), (y,), (u,))[1])

    def evaluate(y: Vector) -> Model:
        if flat.dense_inner:
            hessian_of = jax.hessian(flat.inner, 1)
            value, gradient, hessian = total(
                lambda r: (flat.inner(x, y, r), gradient_of(x, y, r), hessian_of(x, y, r))
            )
            return Model(value, gradient, hessian, jnp.linalg.norm(hessian @ y))
        value, gradient = total(lambda r: jax.value_and_grad(flat.inner, 1)(x, y, r))
        return Model(value, gradient, None, jnp.linalg.norm(product(y, y)))

    def propose(y: Vector, model: Model, damping: Scalar) -> Vector:
        if model.hessian is not None:
            return newton_point(y, model.gradient, model.hessian, damping)
        return newton_cg_point(y, model.gradient, lambda u: product(y, u), damping)

    found = minimise(
        evaluate,
        propose,
        flat.first_answer(x),
        tolerance=flat.inner_tolerance,
        max_steps=flat.newton_steps,
    )
    return Answer(found.point, found.residual)


def leader_model(flat: Flat, total: Total, x: Vector, y: Vector) -> Model:
    """phi and its derivatives at x, given the follower's answer y."""
    if not flat.has_follower:
        if not flat.dense:
            value, gradient = total(lambda r: jax.value_and_grad(flat.outer)(x, y, r))
            return Model(value, gradient, None, jnp.linalg.norm(gradient))
        value, gradient, hessian = total(
            lambda r: (
                *jax.value_and_grad(flat.outer)(x, y, r),
                jax.hessian(flat.outer)(x, y, r),
            )
        )
        return Model(value, gradient, hessian, jnp.linalg.norm(hessian @ x))
    if not flat.dense:
        value, slopes = total(lambda r: jax.value_and_grad(flat.outer, (0, 1))(x, y, r))
        gradient = pulled_back(flat, total, x, y, *slopes)
        scale = jnp.linalg.norm(slopes[0]) + jnp.linalg.norm(slopes[0] - gradient)
        return Model(value, gradient, None, scale)

    (_, slope_y), curvature, cross = total(
        lambda r: (
            jax.grad(flat.outer, (0, 1))(x, y, r),
            jax.hessian(flat.inner, 1)(x, y, r),
            jax.jacfwd(jax.grad(flat.inner, 1), 0)(x, y, r),
        )
    )
    solved = jnp.linalg.solve(curvature, jnp.concatenate([slope_y[:, None], cross], axis=1))
    v, slope = solved[:, 0], -solved[:, 1:]

    def lagrangian(s: Vector, round: PyTree) -> Scalar:
        moved_x, moved_y = x + s, y + slope @ s
        gradient = jax.grad(flat.inner, 1)(moved_x, moved_y, round)
        return flat.outer(moved_x, moved_y, round) - jnp.vdot(v, gradient)

    here = jnp.zeros_like(x)
    value, gradient, hessian = total(
        lambda r: (
            flat.outer(x, y, r),
            jax.grad(lagrangian)(here, r),
            jax.hessian(lagrangian)(here, r),
        )
    )
    return Model(value, gradient, hessian, jnp.linalg.norm(hessian @ x))


def pulled_back(
    flat: Flat, total: Total, x: Vector, y: Vector, slope_x: Vector, slope_y: Vector
) -> Vector:
    """slope_x - J^T H^{-1} slope_y: the gradient in x of what has these slopes at (x, y*(x))."""
    if not flat.has_follower:
        return slope_x
    gradient_of = jax.grad(flat.inner, 1)
    if flat.dense_inner:
        curvature = total(lambda r: jax.hessian(flat.inner, 1)(x, y, r))
        # LU, not Cholesky: where g is not convex the derivative is still what it is.
        v = jnp.linalg.solve(curvature, slope_y)
    else:
        v = solve_definite(
            lambda u: total(lambda r: jax.jvp(lambda y: gradient_of(x, y, r), (y,), (u,))[1]),
            slope_y,
        )
    return slope_x - total(lambda r: jax.grad(lambda x: jnp.vdot(gradient_of(x, y, r), v))(x))


def answer_slope(flat: Flat, total: Total, x: Vector, y: Vector) -> Float[Array, "d2 d1"]:
    """dy*/dx = -H^{-1} J, by dense factors."""
    curvature, cross = total(
        lambda r: (
            jax.hessian(flat.inner, 1)(x, y, r),
            jax.jacfwd(jax.grad(flat.inner, 1), 0)(x, y, r),
        )
    )
    return -jnp.linalg.solve(curvature, cross)


def solve_leader(flat: Flat, evaluate: Callable[[Vector], Model]) -> Minimum:
    """argmin over X of a function given by its models."""
    if not flat.dense:
        return spectral(
            evaluate,
            flat.project(flat.start),
            project=flat.project,
            tolerance=flat.tolerance,
            max_steps=flat.gradient_steps,
        )

    def propose(x: Vector, model: Model, damping: Scalar) -> Vector:
        assert model.hessian is not None
        if flat.unconstrained:
            return newton_point(x, model.gradient, model.hessian, damping)
        return quadratic_program(flat.project, x, model.gradient, model.hessian, damping)

    return minimise(
        evaluate,
        propose,
        flat.project(flat.start),
        project=flat.project,
        tolerance=flat.tolerance,
        max_steps=flat.newton_steps,
    )


class Pair(NamedTuple):
    """A leader's optimum with its follower's answer, and the residuals of both."""

    x: Vector
    y: Vector
    residual: Scalar
    inner_residual: Scalar


def solve_round(flat: Flat, round: PyTree) -> Pair:
    """(x*_t, y*_t(x*_t)) of one round."""

    def evaluate(x: Vector) -> Model:
        found = answer(flat, x, round)
        return leader_model(flat, one_round(round), x, found.y)._replace(extra=found)

    best = solve_leader(flat, evaluate)
    return Pair(best.point, best.model.extra.y, best.residual, best.model.extra.residual)


def check_round(flat: Flat, x: Vector, round: PyTree) -> Pair:
    """The same where x*_t is known: its residual is measured, not assumed."""
    found = answer(flat, x, round)
    model = leader_model(flat, one_round(round), x, found.y)
    return Pair(x, found.y, fixed_point_residual(flat.project, x, model), found.residual)


def solve_stage(flat: Flat, rounds: PyTree, weights: Vector) -> Pair:
    """(x_s*, y_s*(x_s*)) of rounds whose losses f and g are both summed, with weights."""

    def total(function: Callable[[PyTree], Any]) -> Any:
        return flat.sum_rounds(
            lambda round, weight: jax.tree.map(
                lambda leaf: leaf * weight.astype(leaf.dtype), function(round)
            ),
            rounds,
            weights,
        )

    def evaluate(x: Vector) -> Model:
        if flat.has_follower:
            found = solve_follower(flat, total, x)
        else:
            found = Answer(jnp.zeros(0, flat.dtype), jnp.zeros((), flat.dtype))
        return leader_model(flat, total, x, found.y)._replace(extra=found)

    best = solve_leader(flat, evaluate)
    return Pair(best.point, best.model.extra.y, best.residual, best.model.extra.residual)


def solve_static(flat: Flat, rounds: PyTree) -> tuple[Vector, Scalar]:
    """x* of the whole horizon, where every round keeps its own follower; and its residual.

    The mean of the rounds is minimised: the same point, and residuals that do not grow with T.
    """
    horizon = length_of(rounds)

    def evaluate(x: Vector) -> Model:
        def term(round: PyTree) -> Model:
            return leader_model(flat, one_round(round), x, answer(flat, x, round).y)

        total = jax.tree.map(lambda leaf: leaf / horizon, flat.sum_rounds(term, rounds))
        if total.hessian is None:
            return total
        return total._replace(scale=jnp.linalg.norm(total.hessian @ x))

    best = solve_leader(flat, evaluate)
    return best.point, best.residual
