"""Constants of a problem estimated from samples, to choose steps by, never for a certificate.

Every supremum is replaced by a maximum over samples, so each `ell` comes out too small and each
`mu` too large, and the bound that follows from them may fail.
"""

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Key

from .. import implicit
from .._support.checks import Arrays, Count, checked
from .._support.trees import PyTree
from .constants import Constants

if TYPE_CHECKING:
    from ..problem import Problem

# Of the search for |D^3 g|, which can only grow.
SWEEPS = 8


@checked
def estimate_constants(
    problem: "Problem",
    rounds: Arrays,
    outer_var: Arrays,
    inner_var: Arrays,
    *,
    key: Key[Array, ""],
    samples: Count = 64,
    outer_vars: Arrays | None = None,
    outer_radius: float = 1.0,
    inner_radius: float = 1.0,
) -> Constants:
    """Estimate the constants of `problem` at random points: lower estimates of the suprema.

    Each sample draws a round, an x and a y, and takes norms of gradients, eigenvalues of Hessians
    and a local maximum of the third derivative of g, at y*(x) and at y. Hessians are dense: a few
    hundred variables at most. The result has `estimated=True`; replace what you know, for example
    `dataclasses.replace(constants, D=2.0)`. `mu_f` is None where some sample of
    x -> f(x, y*(x)) is not strongly convex.

    **Arguments:**

    - `rounds`: pytree stacked on axis 0.
    - `outer_var`, `inner_var`: x_1 and y_1; they give the shapes, and `D_prime`.
    - `outer_vars`: decisions to draw x from, stacked on axis 0, such as a recorded trajectory.
      Without it x is drawn from the ball of `outer_radius` around x_1 and projected.
    - `inner_radius`: y is drawn from the ball of this radius around y*(x).

    >>> from obax.problem import Problem
    >>> problem = Problem(
    ...     outer=lambda x, y, round: 0.5 * jnp.sum((y - round) ** 2),
    ...     inner=lambda x, y, round: 0.5 * jnp.sum((y - x) ** 2),
    ... )
    >>> rounds, x, y = jnp.ones((4, 2)), jnp.zeros(2), jnp.zeros(2)
    >>> constants = estimate_constants(problem, rounds, x, y, key=jax.random.key(0))
    >>> round(constants.mu_g, 4), round(constants.ell_g1, 4), round(constants.mu_f, 4)
    (1.0, 2.0, 1.0)
    """
    if not hasattr(problem, "inner_loss"):
        raise ValueError(f"problem must be an obax.Problem, but got {problem!r}.")
    if not jnp.issubdtype(jnp.asarray(key).dtype, jax.dtypes.prng_key):
        raise ValueError(f"key must be a key of jax.random, as jax.random.key(0), but got {key!r}.")
    if problem.inner is None or problem.has_buffers:
        came = "no follower" if problem.inner is None else "has_buffers=True"
        raise ValueError(
            f"problem must have an inner loss without buffers, but got a problem with {came}"
        )
    number_of_rounds = _common_length("rounds", rounds)
    flat = implicit.FlatProblem(problem, outer_var, inner_var)
    x_1, y_1 = flat.start, flat.inner_start
    key_round, key_x, key_y, key_direction = jax.random.split(key, 4)
    indices = jax.random.randint(key_round, (samples,), 0, number_of_rounds)
    if outer_vars is None:
        xs = outer_radius * jax.random.ball(key_x, x_1.size, shape=(samples,), dtype=x_1.dtype)
        xs = jax.vmap(flat.project)(x_1 + xs)
    else:
        chosen = jax.random.randint(key_x, (samples,), 0, _common_length("outer_vars", outer_vars))
        xs = jax.vmap(lambda one: ravel_pytree(one)[0])(_take(outer_vars, chosen))
    shifts = inner_radius * jax.random.ball(key_y, y_1.size, shape=(samples,), dtype=y_1.dtype)
    # The first round at x_1 comes first: it gives D_prime.
    indices, shifts = jnp.pad(indices, (1, 0)), jnp.pad(shifts, ((1, 0), (0, 0)))
    xs = jnp.concatenate([x_1[None], xs])
    shape = samples + 1, x_1.size + y_1.size
    directions = jax.random.normal(key_direction, shape, x_1.dtype)

    def one(sample: tuple[Array, ...]) -> dict[str, Array]:
        index, x, shift, direction = sample
        round = _take(rounds, index)
        y_star = implicit.answer(flat, x, round).y
        sizes = jax.vmap(lambda y: implicit.sizes(flat, x, y, round, direction, SWEEPS))(
            jnp.stack([y_star, y_star + shift])
        )
        return {
            "ell_f0": sizes.slope.max(),
            "ell_f1": sizes.outer_curvature.max(),
            "ell_g1": sizes.inner_joint.max(),
            "ell_g2": sizes.third.max(),
            "M": sizes.value.max(),
            "mu_g": sizes.inner_least.min(),
            "mu_f": implicit.leader_curvature(flat, x, y_star, round).least,
            "D_prime": jnp.linalg.norm(y_1 - y_star),
        }

    # One sample at a time: dense third derivatives of all samples at once need not fit in memory.
    estimates = jax.jit(lambda batch: jax.lax.map(one, batch))((indices, xs, shifts, directions))
    mu_g, mu_f = float(estimates.pop("mu_g").min()), float(estimates.pop("mu_f").min())
    if not mu_g > 0.0:
        raise ValueError(
            "problem.inner must be strongly convex in y (A2), but got a sample where the least "
            f"eigenvalue of its Hessian is {mu_g:.3g}"
        )
    D_prime = float(estimates.pop("D_prime")[0])
    largest = {name: float(values.max()) for name, values in estimates.items()}
    D = float(problem.domain.diameter(outer_var))
    if not math.isfinite(D):  # an unbounded X: the spread of the samples
        D = float(jnp.linalg.norm(xs[:, None] - xs[None], axis=-1).max())
    # A loss without curvature or slope at any sample still needs a positive constant.
    floor = float(jnp.finfo(x_1.dtype).eps)
    positive = {name: max(largest[name], floor) for name in ("ell_f0", "ell_f1", "M")}
    constants = Constants(
        **(largest | positive), mu_g=mu_g, D=D or None, D_prime=D_prime, estimated=True
    )
    return replace(constants, mu_f=min(mu_f, constants.L_f) if mu_f > 0.0 else None)


def _take(tree: PyTree, index: Array | int) -> PyTree:
    return jax.tree.map(lambda leaf: leaf[index], tree)


def _common_length(name: str, tree: PyTree) -> int:
    lengths = {jnp.shape(leaf)[:1] for leaf in jax.tree.leaves(tree)}
    if len(lengths) != 1 or lengths == {()} or lengths == {(0,)}:
        raise ValueError(
            f"{name} must be a pytree stacked on a common, non-empty axis 0, but got leading axes "
            f"{sorted(lengths)}"
        )
    return lengths.pop()[0]
