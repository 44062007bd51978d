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
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float

from .. import regret
from .._tree import PyTree
from ..problem import Problem

Vector = Float[Array, " d"]
Loss = Callable[[Vector, Vector, PyTree], Array]
SWEEPS = 4


class Reach(NamedTuple):
    """How far from x_1 and from y*_t(x) points are drawn, and L_f (for points outside X)."""

    outer: Any
    inner: Any
    smoothness: Any


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
    reach: Reach,
    seed: Array,
    points: int,
    kind: str,
) -> Evidence:
    """The evidence of one problem. `played` are decisions stacked like the rounds."""
    horizon = jax.tree.leaves(rounds)[0].shape[0]
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
        found = regret.inner_solution(problem, jax.vmap(to_x)(xs), rounds, inner_start=inner_var)
        return jax.vmap(lambda y: ravel_pytree(y)[0])(found.inner_var), found.inner_residual

    key_x, key_y, key_v, key_order, key_mix = jax.random.split(jax.random.key(seed), 5)
    throws = jax.random.normal(key_x, (points, horizon, x_1.size), x_1.dtype)
    # Every second point is thrown far and comes back to the boundary.
    far = jnp.where(jnp.arange(points) % 2 == 0, 1.0, 4.0).astype(x_1.dtype)
    bounded = jnp.isfinite(jnp.asarray(problem.domain.diameter(outer_var)))
    throws = throws * reach.outer * jnp.where(bounded, far, 1.0)[:, None, None] / x_1.size**0.5

    def inside(x: Vector) -> Vector:
        return ravel_pytree(problem.domain.project(to_x(x)))[0]

    drawn = jax.vmap(jax.vmap(inside))(x_1 + throws)
    own = jax.vmap(lambda x: ravel_pytree(x)[0])(played)
    xs = jnp.concatenate([own[None], drawn])
    ys, residuals = jax.vmap(answers, (0, None))(xs, rounds)
    shape = (points + 1, horizon)
    shifts = reach.inner * jax.random.ball(key_y, y_1.size, shape=shape, dtype=y_1.dtype)
    directions = jax.random.normal(key_v, (*shape, x_1.size + y_1.size), x_1.dtype)
    others = ys
    if kind == "nonconvex_local":
        # Lemma lem:capdiff compares f_t at the answers of different rounds, and in between.
        order = jax.random.permutation(key_order, horizon)
        shuffled = jax.tree.map(lambda leaf: leaf[order], rounds)
        others = jax.vmap(answers, (0, None))(xs, shuffled)[0]
    mixes = jax.random.uniform(key_mix, shape, x_1.dtype)

    def at(x: Vector, y: Vector, shift: Vector, v: Vector, other: Vector, mix: Array, r: PyTree):  # type: ignore[no-untyped-def]
        first = _local(outer, inner, x, y, v, r)
        second = _local(outer, inner, x, y + shift, v, r)
        steepest = first[0]
        if kind == "nonconvex_local":
            for z in (other, y + mix * (other - y)):
                steepest = jnp.maximum(steepest, _slope(outer, x, z, r))
        joined = [jnp.maximum(a, b) for a, b in zip(first[1:], second[1:], strict=True)]
        gradient, hessian = leader(outer, inner, x, y, r)
        return (steepest, *joined), gradient, jnp.linalg.eigvalsh(hessian)

    over_rounds = jax.vmap(at, in_axes=(0, 0, 0, 0, 0, 0, 0))
    over_points = jax.vmap(over_rounds, in_axes=(0, 0, 0, 0, 0, 0, None))
    local, gradients, curvatures = over_points(xs, ys, shifts, directions, others, mixes, rounds)
    ell_f0, ell_f1, ell_g1, ell_g2, value, minus_mu_g = (leaf.max(axis=0) for leaf in local)
    mu_f, L_f = curvatures.min(axis=(0, 2)), jnp.abs(curvatures).max(axis=(0, 2))
    outside_mu_f, outside_L_f = mu_f, L_f
    nothing = jnp.zeros(horizon, x_1.dtype)
    at_optimum, outer_residual = nothing, nothing
    if kind == "convex_dynamic":
        stepped = xs - gradients / reach.smoothness
        there = jax.vmap(answers, (0, None))(stepped, rounds)[0]
        bend = jax.vmap(jax.vmap(lambda x, y, r: leader(outer, inner, x, y, r)[1]), (0, 0, None))
        outside = jnp.linalg.eigvalsh(bend(stepped, there, rounds))
        outside_mu_f, outside_L_f = outside.min(axis=(0, 2)), jnp.abs(outside).max(axis=(0, 2))
    if kind in ("convex_dynamic", "strongly_convex_dynamic"):
        best = regret.outer_solutions(
            problem, rounds, outer_start=outer_var, inner_start=inner_var
        )
        assert best.residual is not None
        outer_residual = best.residual

        def slope_at(x: PyTree, y: PyTree, r: PyTree) -> Array:
            flat = ravel_pytree(x)[0], ravel_pytree(y)[0]
            return jnp.linalg.norm(leader(outer, inner, *flat, r)[0])

        at_optimum = jax.vmap(slope_at)(best.outer_var, best.inner_var, rounds)
    first_round = jax.tree.map(lambda leaf: leaf[:1], rounds)
    gap = jnp.linalg.norm(y_1 - answers(x_1[None], first_round)[0][0])
    return Evidence(
        ell_f0, ell_f1, ell_g1, ell_g2, -minus_mu_g, value, mu_f, L_f, outside_mu_f, outside_L_f,
        residuals.max(axis=0), at_optimum, outer_residual, gap,
    )  # fmt: skip


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
) -> tuple[Array, ...]:
    """|grad f|, |Hess f|, the norms of the blocks of Hess g, |D^3 g|, |f| and -mu_g at a point."""
    z, cut = jnp.concatenate([x, y]), x.size

    def f(z: Vector) -> Array:
        return outer(z[:cut], z[cut:], round)

    def g(z: Vector) -> Array:
        return inner(z[:cut], z[cut:], round)

    bend = jax.hessian(g)(z)
    own, cross = bend[cut:, cut:], bend[:cut, cut:]
    eigenvalues = jnp.linalg.eigvalsh(own)
    cross_norm = jnp.sqrt(jnp.maximum(jnp.linalg.eigvalsh(cross @ cross.T).max(), 0.0))
    return (
        jnp.linalg.norm(jax.grad(f)(z)),
        jnp.abs(jnp.linalg.eigvalsh(jax.hessian(f)(z))).max(),
        jnp.maximum(jnp.abs(eigenvalues).max(), cross_norm),
        _third(g, z, v),
        jnp.abs(f(z)),
        -eigenvalues.min(),
    )


def _third(g: Callable[[Vector], Array], z: Vector, v: Vector) -> Array:
    """A local maximum of |D^3 g(z)[v, u, u]| over unit u, v: the best v for u, and by turns."""
    tiny = jnp.finfo(z.dtype).tiny

    def sweep(v: Vector, _: None) -> tuple[Vector, Array]:
        v = v / jnp.maximum(jnp.linalg.norm(v), tiny)
        u = jax.grad(lambda z: jax.jvp(lambda z: jax.jvp(g, (z,), (v,))[1], (z,), (v,))[1])(z)
        # For a symmetric form the largest value is at a single direction u = v (Banach).
        return u, jnp.abs(jnp.vdot(u, v))

    return jax.lax.scan(sweep, v, None, length=SWEEPS)[1].max()
