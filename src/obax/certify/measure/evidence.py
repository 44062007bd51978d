r"""What can be measured of the assumptions: one number for each round, the worst over many points.

In round t the points are the decision played and random ones of X, each with $y^*_t(x)$ and with a
y off it by as much as the follower can be. What is measured there (derivatives of f, g and phi) is
written in `obax.implicit`.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float
from numpy.typing import NDArray

from ... import implicit, regret
from ..._support.trees import PyTree
from ...problems import Instance
from ..families.ingredients import Numbers

Vector = Float[Array, " d"]
# jaxlib 0.10 on CPU splits a LAPACK call over many matrices into tasks and waits for them; a few
# such calls at once fill the thread pool and wait for ever (seen from 8,000 matrices on, never at
# 3,000). Hence nothing here, and no call of `obax.regret`, is wider than this.
WIDTH = 256
SOLVER = implicit.Solver(chunk=WIDTH)


class Points(NamedTuple):
    """Random numbers that determine where evidence is measured. They are drawn outside, since
    drawing takes longer to compile than all that is measured. `smoothness` is L_f, for points
    outside X."""

    throws: Numbers
    shifts: Numbers
    directions: Numbers
    mixes: Numbers
    order: NDArray[np.int64]
    smoothness: np.float64

    @classmethod
    def draw(
        cls,
        seed: int | Sequence[int],
        shape: tuple[int, int, int, int],
        radii: tuple[float, float, float],
    ) -> "Points":
        """Draw the numbers. `shape` is (points, T, d1, d2); `radii` are how far x is drawn from
        x_1, how far y from y*_t(x), and L_f."""
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


# The worst of each quantity in each round; `outside_...` at x - grad phi / L_f.
Evidence = dict[str, Array]


@eqx.filter_jit
def gather(instance: Instance, played: PyTree, points: Points, kind: str) -> Evidence:
    """Return the evidence of one problem. `played` are decisions stacked like the rounds."""
    problem, rounds = instance.problem, instance.rounds
    outer_var, inner_var = instance.outer_var, instance.inner_var
    flat = implicit.FlatProblem(problem, outer_var, inner_var, SOLVER)

    def over(function: Callable[..., PyTree], rounds: PyTree = rounds) -> Callable[..., PyTree]:
        """Return `function(round, ...)` for points stacked as [point, round, ...]."""
        return lambda *stacked: jax.lax.map(
            lambda at_point: flat.map_rounds(function, rounds, *at_point), stacked
        )

    # Every second point is thrown far and comes back to the boundary, where there is one.
    bounded = jnp.isfinite(jnp.asarray(problem.domain.diameter(outer_var)))
    far = jnp.where(bounded & (jnp.arange(len(points.throws)) % 2 == 1), 4.0, 1.0)
    thrown = flat.start + points.throws * far[:, None, None]
    drawn = jax.vmap(jax.vmap(flat.project))(thrown)
    # The start comes first (for D'), then what was played.
    begin = jnp.broadcast_to(flat.start, drawn.shape[1:])
    xs = jnp.concatenate([jnp.stack([begin, _flattened(played)]), drawn])
    ys, residuals = over(lambda round, x: implicit.answer(flat, x, round))(xs)

    sizes = over(lambda round, x, y, v: implicit.sizes(flat, x, y, round, v))(
        jnp.concatenate([xs, xs]),
        jnp.concatenate([ys, ys + points.shifts]),
        jnp.concatenate([points.directions] * 2),
    )
    near = ys[None]
    if kind == "nonconvex_local":
        # Lemma 23 compares f_t at the answers of different rounds, and in between.
        shuffled = jax.tree.map(lambda leaf: leaf[points.order], rounds)
        others = over(lambda round, x: implicit.answer(flat, x, round).y, shuffled)(xs)
        near = jnp.stack([ys, others, ys + points.mixes * (others - ys)])

    def steepness(round: PyTree, x: Vector, y: Vector) -> Array:
        return jnp.linalg.norm(jnp.concatenate(jax.grad(flat.outer, (0, 1))(x, y, round)))

    ell_f0 = jax.lax.map(lambda ys: over(steepness)(xs, ys), near).max(axis=(0, 1))

    found = {
        "ell_f0": ell_f0,
        "ell_f1": sizes.outer_curvature.max(axis=0),
        "ell_g1": jnp.maximum(sizes.inner_most, sizes.cross).max(axis=0),
        "ell_g2": sizes.third.max(axis=0),
        "mu_g": sizes.inner_least.min(axis=0),
        "value": sizes.value.max(axis=0),
        "inner_residual": residuals.max(axis=0),
        "start_gap": jnp.linalg.norm(flat.inner_start - ys[0, :1], axis=1),
    }
    shifts = jnp.asarray(points.shifts)
    if kind.endswith("dynamic"):
        best = regret.outer_solutions(
            problem, rounds, outer_start=outer_var, inner_start=inner_var, solver=SOLVER
        )
        assert best.residual is not None
        found["outer_residual"] = best.residual
        xs = jnp.concatenate([xs, _flattened(best.outer_var)[None]])
        ys = jnp.concatenate([ys, _flattened(best.inner_var)[None]])
        shifts = jnp.concatenate([shifts, shifts[:1]])
    curvature = over(lambda round, x, y: implicit.leader_curvature(flat, x, y, round))
    bends = curvature(xs, ys)
    if kind == "convex_dynamic":
        found["gradient_at_optimum"] = jnp.linalg.norm(bends.gradient[-1], axis=-1)
        stepped = xs - bends.gradient / points.smoothness
        there = over(lambda round, x: implicit.answer(flat, x, round).y)(stepped)
        outside = curvature(stepped, there)
        found["outside_mu_f"] = outside.least.min(axis=0)
        found["outside_L_f"] = outside.most.max(axis=0)
    found["mu_f"], found["L_f"] = bends.least.min(axis=0), bends.most.max(axis=0)
    slopes, errors = over(lambda *at: _lemma_3(flat, *at))(xs, ys, shifts)
    return found | {"L_y": slopes.max(axis=0), "M_f": errors.max(axis=0)}


def _flattened(stacked: PyTree) -> Array:
    """Return a tree stacked on axis 0 as one matrix."""
    return jax.vmap(lambda one: ravel_pytree(one)[0])(stacked)


def _lemma_3(
    flat: implicit.FlatProblem, round: PyTree, x: Vector, y: Vector, shift: Vector
) -> tuple[Array, Array]:
    """Return |dy*/dx|, and the hypergradient's error at y* + shift per unit of shift."""

    def hypergradient(y: Vector) -> Vector:
        """Return Equation (8), by dense factors, without an estimator of the library."""
        return implicit.at_answer(flat, x, round, y).gradient()

    slope = implicit.at_answer(flat, x, round, y).answer_slope()
    steepest = jnp.sqrt(jnp.maximum(jnp.linalg.eigvalsh(slope.T @ slope).max(), 0.0))
    error = hypergradient(y + shift) - hypergradient(y)
    return steepest, jnp.linalg.norm(error) / jnp.linalg.norm(shift)
