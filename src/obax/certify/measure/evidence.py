r"""What can be measured of the assumptions: one number for each round, the worst over many points.

In round t the points are the decision played and random ones of X, each with $y^*_t(x)$ and with a
y off it by as much as the follower can be. With $M = -J' H^{-1}$ at a point,

$$ \nabla^2 \phi = [I; dy^*/dx]' \nabla^2_{(x,y)} (f - v' \nabla_y g) [I; dy^*/dx], \qquad
   H v = \nabla_y f, $$

so that nothing is differentiated through a solver. All functions here are pure and can be vmapped
over problems.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float

from ... import regret
from ..._support.trees import PyTree
from ...problem import Problem

Vector = Float[Array, " d"]
Loss = Callable[[Vector, Vector, PyTree], Array]
SWEEPS = 4
# jaxlib 0.10 on CPU splits a LAPACK call over many matrices into tasks and waits for them; a few
# such calls at once fill the thread pool and wait for ever (seen from 8,000 matrices on, never at
# 3,000). Hence nothing here, and nothing asked of `obax.regret`, is wider than this.
WIDTH = 256
SOLVER = regret.Solver(chunk=WIDTH)


class Points(NamedTuple):
    """Where to look: random numbers from outside, since drawing them takes longer to compile than
    all that is measured. `smoothness` is L_f, for points outside X."""

    throws: Any
    shifts: Any
    directions: Any
    mixes: Any
    order: Any
    smoothness: Any

    @classmethod
    def draw(
        cls, seed: Any, shape: tuple[int, int, int, int], radii: tuple[float, float, float]
    ) -> "Points":
        """`shape` is (points, T, d1, d2); `radii` are how far x is drawn from x_1, how far y from
        y*_t(x), and L_f."""
        points, horizon, outer_dim, inner_dim = shape
        generator = np.random.default_rng(seed)
        throws = generator.normal(size=(points, horizon, outer_dim)) * radii[0] / outer_dim**0.5
        shifts = generator.normal(size=(points + 2, horizon, inner_dim))
        lengths = generator.uniform(size=(points + 2, horizon, 1)) ** (1.0 / inner_dim)
        shifts *= radii[1] * lengths / np.linalg.norm(shifts, axis=-1, keepdims=True)
        return cls(
            throws=throws,
            shifts=shifts,
            directions=generator.normal(size=(points + 2, horizon, outer_dim + inner_dim)),
            mixes=generator.uniform(size=(points + 2, horizon, 1)),
            order=generator.permutation(horizon),
            smoothness=np.float64(radii[2]),
        )


class Evidence(NamedTuple):
    """The worst of each quantity in each round; `outside_*` at x - grad phi / L_f."""

    ell_f0: Array
    ell_f1: Array
    ell_g1: Array
    ell_g2: Array
    mu_g: Array
    value: Array
    mu_f: Array
    L_f: Array
    outside_mu_f: Array
    outside_L_f: Array
    inner_residual: Array
    gradient_at_optimum: Array
    outer_residual: Array
    start_gap: Array


@eqx.filter_jit
def gather(
    problem: Problem,
    rounds: PyTree,
    outer_var: PyTree,
    inner_var: PyTree,
    played: PyTree,
    points: Points,
    kind: str,
) -> Evidence:
    """The evidence of one problem. `played` are decisions stacked like the rounds."""
    x_1, to_x = ravel_pytree(outer_var)
    y_1, to_y = ravel_pytree(inner_var)
    inner_loss = problem.inner
    assert inner_loss is not None

    def outer(x: Vector, y: Vector, round: PyTree) -> Array:
        return problem.outer(to_x(x), to_y(y), round)

    def inner(x: Vector, y: Vector, round: PyTree) -> Array:
        return inner_loss(to_x(x), to_y(y), round)

    def answers(xs: Array, rounds: PyTree) -> tuple[Array, Array]:
        """y*_t(x_t) for one x a round, and its residuals."""
        found = regret.inner_solution(
            problem, jax.vmap(to_x)(xs), rounds, inner_start=inner_var, solver=SOLVER
        )
        return flattened(found.inner_var), found.inner_residual

    def over(function: Callable[..., Any]) -> Callable[..., Any]:
        """For points stacked as [point, round, ...]; the rounds come last."""

        def of_point(arguments: Any) -> Any:
            if horizon <= WIDTH:
                return jax.vmap(function)(*arguments, rounds)
            return jax.lax.map(lambda one: function(*one), (*arguments, rounds), batch_size=WIDTH)

        return lambda *stacked: jax.lax.map(of_point, stacked)

    horizon = jax.tree.leaves(rounds)[0].shape[0]

    # Every second point is thrown far and comes back to the boundary, where there is one.
    bounded = jnp.isfinite(jnp.asarray(problem.domain.diameter(outer_var)))
    far = jnp.where(bounded & (jnp.arange(len(points.throws)) % 2 == 1), 4.0, 1.0)
    thrown = x_1 + points.throws * far[:, None, None]
    drawn = jax.vmap(jax.vmap(lambda x: ravel_pytree(problem.domain.project(to_x(x)))[0]))(thrown)
    # The start comes first (for D'), then what was played.
    begin = jnp.broadcast_to(x_1, drawn.shape[1:])
    xs = jnp.concatenate([jnp.stack([begin, flattened(played)]), drawn])
    asked = (xs, rounds)
    if kind == "nonconvex_local":
        # Lemma lem:capdiff compares f_t at the answers of different rounds, and in between.
        both = jax.tree.map(lambda leaf: jnp.concatenate([leaf, leaf[points.order]]), rounds)
        asked = (jnp.concatenate([xs, xs], axis=1), both)
    ys, residuals = jax.lax.map(lambda x: answers(x, asked[1]), asked[0])
    ys, others = ys[:, :horizon], ys[:, horizon:]

    local = over(lambda x, y, v, round: _local(outer, inner, x, y, v, round))
    twice = jnp.concatenate([xs, xs]), jnp.concatenate([ys, ys + points.shifts])
    found = local(*twice, jnp.concatenate([points.directions] * 2))
    found = {name: values.max(axis=0) for name, values in found.items()}
    near = ys[None]
    if kind == "nonconvex_local":
        near = jnp.stack([ys, others, ys + points.mixes * (others - ys)])
    slope = over(lambda x, y, round: _slope(outer, x, y, round))
    ell_f0 = jax.lax.map(lambda y: slope(xs, y), near).max(axis=(0, 1))

    nothing = jnp.zeros_like(ell_f0)
    at_optimum, outer_residual = nothing, nothing
    dynamic = kind in ("convex_dynamic", "strongly_convex_dynamic")
    if dynamic:
        best = regret.outer_solutions(
            problem, rounds, outer_start=outer_var, inner_start=inner_var, solver=SOLVER
        )
        assert best.residual is not None
        outer_residual = best.residual
        xs = jnp.concatenate([xs, flattened(best.outer_var)[None]])
        ys = jnp.concatenate([ys, flattened(best.inner_var)[None]])
    derivatives = over(lambda x, y, round: _leader_curvature(outer, inner, x, y, round))
    gradients, least, most = derivatives(xs, ys)
    if dynamic:
        at_optimum = jnp.linalg.norm(gradients[-1], axis=-1)
    mu_f, L_f = least.min(axis=0), most.max(axis=0)
    outside_mu_f, outside_L_f = mu_f, L_f
    if kind == "convex_dynamic":
        stepped = xs - gradients / points.smoothness
        there = jax.lax.map(lambda x: answers(x, rounds)[0], stepped)
        _, least, most = derivatives(stepped, there)
        outside_mu_f, outside_L_f = least.min(axis=0), most.max(axis=0)
    return Evidence(
        ell_f0=ell_f0,
        ell_f1=found["ell_f1"],
        ell_g1=found["ell_g1"],
        ell_g2=found["ell_g2"],
        mu_g=-found["minus_mu_g"],
        value=found["value"],
        mu_f=mu_f,
        L_f=L_f,
        outside_mu_f=outside_mu_f,
        outside_L_f=outside_L_f,
        inner_residual=residuals[:, :horizon].max(axis=0),
        gradient_at_optimum=at_optimum,
        outer_residual=outer_residual,
        start_gap=jnp.linalg.norm(y_1 - ys[0, 0]),
    )


def flattened(stacked: PyTree) -> Array:
    """A tree stacked on axis 0, as one matrix."""
    return jax.vmap(lambda one: ravel_pytree(one)[0])(stacked)


def _leader_curvature(
    outer: Loss, inner: Loss, x: Vector, y: Vector, round: PyTree
) -> tuple[Vector, Array, Array]:
    """The gradient of phi; the least eigenvalue of its Hessian, and the largest magnitude."""
    gradient, hessian = leader(outer, inner, x, y, round)
    values = jnp.linalg.eigvalsh(hessian)
    return gradient, values.min(), jnp.abs(values).max()


def leader(
    outer: Loss, inner: Loss, x: Vector, y: Vector, round: PyTree
) -> tuple[Vector, Float[Array, "d1 d1"]]:
    """Gradient and Hessian of x -> f(x, y*(x)) at x, where y = y*(x)."""
    gradient_of = jax.grad(inner, argnums=1)
    curvature = jax.jacfwd(gradient_of, argnums=1)(x, y, round)
    cross = jax.jacfwd(gradient_of, argnums=0)(x, y, round)
    slope_y = jax.grad(outer, argnums=1)(x, y, round)
    solved = jnp.linalg.solve(curvature, jnp.concatenate([slope_y[:, None], cross], axis=1))
    v, slope = solved[:, 0], -solved[:, 1:]

    def lagrangian(step: Vector) -> Array:
        moved = x + step, y + slope @ step
        return outer(*moved, round) - jnp.vdot(v, gradient_of(*moved, round))

    here = jnp.zeros_like(x)
    return jax.grad(lagrangian)(here), jax.hessian(lagrangian)(here)


def _slope(outer: Loss, x: Vector, y: Vector, round: PyTree) -> Array:
    both = jax.grad(outer, argnums=(0, 1))(x, y, round)
    return jnp.linalg.norm(jnp.concatenate(both))


def _local(
    outer: Loss, inner: Loss, x: Vector, y: Vector, v: Vector, round: PyTree
) -> dict[str, Array]:
    """|Hess f|, the norms of the blocks of Hess g, |D^3 g|, |f| and -mu_g at a point."""
    z, cut = jnp.concatenate([x, y]), x.size

    def f(z: Vector) -> Array:
        return outer(z[:cut], z[cut:], round)

    def g(z: Vector) -> Array:
        return inner(z[:cut], z[cut:], round)

    bend = jax.hessian(g)(z)
    eigenvalues, cross = jnp.linalg.eigvalsh(bend[cut:, cut:]), bend[:cut, cut:]
    cross_norm = jnp.sqrt(jnp.maximum(jnp.linalg.eigvalsh(cross @ cross.T).max(), 0.0))
    return {
        "ell_f1": jnp.abs(jnp.linalg.eigvalsh(jax.hessian(f)(z))).max(),
        "ell_g1": jnp.maximum(jnp.abs(eigenvalues).max(), cross_norm),
        "ell_g2": _third(g, z, v),
        "value": jnp.abs(f(z)),
        "minus_mu_g": -eigenvalues.min(),
    }


def _third(g: Callable[[Vector], Array], z: Vector, v: Vector) -> Array:
    """A local maximum of |D^3 g(z)[v, u, u]| over unit u, v: the best v for u, and by turns."""
    tiny = jnp.finfo(z.dtype).tiny

    def sweep(v: Vector, _: None) -> tuple[Vector, Array]:
        v = v / jnp.maximum(jnp.linalg.norm(v), tiny)
        u = jax.grad(lambda z: jax.jvp(lambda z: jax.jvp(g, (z,), (v,))[1], (z,), (v,))[1])(z)
        # For a symmetric form the largest value is at a single direction u = v (Banach).
        return u, jnp.abs(jnp.vdot(u, v))

    return jax.lax.scan(sweep, v, None, length=SWEEPS)[1].max()
