"""Steps of a quadratic model: to the minimum of

    gradient . (z - x) + (z - x) . (B + damping I) (z - x) / 2

over all of R^d, or over a convex set that is known by its projection only. The latter takes
accelerated projected gradient steps with restarts, and semismooth Newton steps on
R(z) = z - project(z - grad / L) wherever they at least halve |R|: on a box these are active-set
steps, and end after finitely many.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int

from .minimise import Matrix, Project, Scalar, Vector

MOST_STEPS = 2000


def newton_point(point: Vector, gradient: Vector, hessian: Matrix, damping: Scalar) -> Vector:
    """Return z - (B + damping I)^{-1} grad, or NaN where that matrix is not positive definite."""
    return point - _factorised(_damped(hessian, damping), gradient)


def quadratic_program(
    project: Project, point: Vector, gradient: Vector, hessian: Matrix, damping: Scalar
) -> Vector:
    """Minimise gradient.(z - point) + (z - point).(hessian + damping I)(z - point)/2 over X."""
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
        # Halving can happen only finitely often, so the gradient steps still converge.
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
    # A shift by rounding makes a singular matrix solvable; one refinement removes its bias.
    shift = 8 * jnp.finfo(matrix.dtype).eps * jnp.max(jnp.abs(matrix))
    factor = (jnp.linalg.cholesky(_damped(matrix, shift)), True)
    solution = jax.scipy.linalg.cho_solve(factor, rhs)
    return solution + jax.scipy.linalg.cho_solve(factor, rhs - matrix @ solution)
