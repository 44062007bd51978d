"""Conjugate gradients, over any pytree; and steps of a quadratic model: to the minimum of

    gradient . (z - x) + (z - x) . (B + damping I) (z - x) / 2

over all of R^d, or over a convex set that is known by its projection only. The latter takes
accelerated projected gradient steps with restarts, and semismooth Newton steps on
R(z) = z - project(z - grad / L) wherever they at least halve |R|: on a box these are active-set
steps, and end after finitely many.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int

from .._support import trees
from .._support.trees import PyTree
from .solve import Matrix, Project, Scalar, Vector

MOST_STEPS = 2000
LinearMap = Callable[[PyTree], PyTree]

# A system that rounding keeps from its tolerance is given up after this many products.
MOST_PRODUCTS = 10_000
RESTARTS = 3


def conjugate_gradients(
    product: LinearMap, v: PyTree, left: PyTree, enough: Array, budget: int
) -> tuple[PyTree, Int[Array, ""]]:
    """v + the solution of H u = left, until |left|^2 <= enough, and the number of products.

    Written out because lineax's CG takes p^T H p < 100 eps d |p|^2 for a breakdown and answers NaN:
    in float32 that is every follower with more than about 10^5 parameters of unit curvature. Here
    only a direction without positive curvature ends the loop, at the best v so far.
    """

    def unfinished(now: tuple) -> Array:
        step, go, _, _, _, size = now
        return go & (step < budget) & (size > enough)

    def one(now: tuple) -> tuple:
        step, _, v, left, direction, size = now
        bent = product(direction)
        curvature = trees.vdot(direction, bent)
        # Not `> 0`: a NaN goes on into v, where the guard sees it.
        go = ~(curvature <= 0)
        length = jnp.where(go, size / jnp.where(go, curvature, 1), 0)
        v = trees.scaled_add(v, length, direction)
        left = trees.scaled_add(left, -length, bent)
        new_size = trees.squared_norm(left)
        direction = trees.scaled_add(left, new_size / size, direction)
        return step + 1, go, v, left, direction, new_size

    size = trees.squared_norm(left)
    # A gradient that is not finite must not look like a system that is solved already.
    v = jax.tree.map(lambda leaf: jnp.where(jnp.isfinite(size), leaf, jnp.nan), v)
    start = (jnp.asarray(0, jnp.int32), jnp.asarray(True), v, left, left, size)
    steps, _, v, *_ = jax.lax.while_loop(unfinished, one, start)
    return v, steps


def solve_definite(product: LinearMap, rhs: Vector) -> Vector:
    """H^{-1} rhs for H symmetric and positive definite, about as exactly as rounding allows.

    The residual that the recursion carries drifts away from the true one where H is
    ill-conditioned; it is computed afresh, and what is missing is solved for, a few times.
    """
    tolerance = 10 * float(jnp.finfo(rhs.dtype).eps)
    enough = tolerance**2 * jnp.vdot(rhs, rhs)
    budget = min(10 * rhs.size, MOST_PRODUCTS)

    def refine(_: Array, v: Array) -> Array:
        return conjugate_gradients(product, v, rhs - product(v), enough, budget)[0]

    return jax.lax.fori_loop(0, RESTARTS, refine, jnp.zeros_like(rhs))


def newton_point(point: Vector, gradient: Vector, hessian: Matrix, damping: Scalar) -> Vector:
    """z - (B + damping I)^{-1} grad, or NaN where that matrix is not positive definite."""
    return point - _factorised(_damped(hessian, damping), gradient)


def quadratic_program(
    project: Project, point: Vector, gradient: Vector, hessian: Matrix, damping: Scalar
) -> Vector:
    """argmin over X of gradient.(z - point) + (z - point).(hessian + damping I)(z - point)/2."""
    matrix = _damped(hessian, damping)
    dtype = point.dtype
    smoothness = jnp.max(jnp.sum(jnp.abs(matrix), axis=1))
    smoothness = jnp.where(smoothness > 0, smoothness, 1)
    identity = jnp.eye(point.size, dtype=dtype)
    goal = 4 * jnp.finfo(dtype).eps

    def descend(z: Vector) -> Vector:
        return z - (gradient + matrix @ (z - point)) / smoothness

    def gap(z: Vector) -> Vector:
        return z - project(descend(z))

    class State(NamedTuple):
        best: Vector
        extrapolated: Vector
        momentum: Scalar
        residual: Scalar
        steps: Int[Array, ""]

    def unfinished(s: State) -> Bool[Array, ""]:
        far = s.residual > goal * (jnp.linalg.norm(s.best) + jnp.linalg.norm(point))
        return far & (s.steps < MOST_STEPS)

    def iterate(s: State) -> State:
        moved = project(descend(s.extrapolated))
        slope = jax.jacfwd(lambda u: project(u))(descend(s.best))
        jacobian = identity - slope @ (identity - matrix / smoothness)
        newton = project(s.best - jnp.linalg.solve(jacobian, gap(s.best)))
        newton_residual = jnp.linalg.norm(gap(newton))
        # Halving can happen only so often: the convergence of the gradient steps is kept.
        jump = newton_residual <= 0.5 * s.residual
        restart = jnp.vdot(s.extrapolated - moved, moved - s.best) > 0
        momentum = (1 + jnp.sqrt(1 + 4 * s.momentum**2)) / 2
        weight = jnp.where(restart, 0, (s.momentum - 1) / momentum)
        best = jnp.where(jump, newton, moved)
        return State(
            best=best,
            extrapolated=jnp.where(jump, newton, moved + weight * (moved - s.best)),
            momentum=jnp.where(jump | restart, 1, momentum),
            residual=jnp.where(jump, newton_residual, jnp.linalg.norm(gap(moved))),
            steps=s.steps + 1,
        )

    free = point - _factorised(matrix, gradient)
    start = project(jnp.where(jnp.all(jnp.isfinite(free)), free, point))
    first = State(
        start, start, jnp.ones((), dtype), jnp.linalg.norm(gap(start)), jnp.zeros((), jnp.int32)
    )
    solution = jax.lax.while_loop(unfinished, iterate, first).best
    return jnp.where(jnp.all(jnp.isfinite(free)), solution, jnp.nan)


def _damped(hessian: Matrix, damping: Scalar) -> Matrix:
    return hessian + damping * jnp.eye(hessian.shape[0], dtype=hessian.dtype)


def _factorised(matrix: Matrix, rhs: Vector) -> Vector:
    # A shift by rounding keeps a singular matrix solvable; one refinement takes its bias out again.
    shift = 8 * jnp.finfo(matrix.dtype).eps * jnp.max(jnp.abs(matrix))
    factor = (jnp.linalg.cholesky(_damped(matrix, shift)), True)
    solution = jax.scipy.linalg.cho_solve(factor, rhs)
    return solution + jax.scipy.linalg.cho_solve(factor, rhs - matrix @ solution)
