"""Constants of a problem from samples: a guess for choosing steps, never a certificate.

Every supremum is replaced by a maximum over samples, so each `ell` comes out too small and each
`mu` too large, and the bound that follows from them may fail.
"""

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, Key, PyTree

from .constants import Constants

if TYPE_CHECKING:
    from obax.problem import Problem

Vector = Float[Array, " d"]


def estimate_constants(
    problem: "Problem",
    rounds: PyTree,
    outer_var: PyTree,
    inner_var: PyTree,
    *,
    key: Key[Array, ""],
    samples: int = 64,
    outer_vars: PyTree | None = None,
    outer_radius: float = 1.0,
    inner_radius: float = 1.0,
) -> Constants:
    """Estimate the constants of `problem` from random points: lower estimates of true suprema.

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
    if samples < 1:
        raise ValueError(f"samples must be at least 1, but got {samples}")
    if problem.inner is None or problem.has_buffers:
        came = "no follower" if problem.inner is None else "has_buffers=True"
        raise ValueError(
            f"problem must have an inner loss without buffers, but got a problem with {came}"
        )
    follower = problem.inner
    number_of_rounds = _common_length("rounds", rounds)
    x_1, to_x = ravel_pytree(outer_var)
    y_1, to_y = ravel_pytree(inner_var)

    def outer(x: Vector, y: Vector, round: PyTree) -> Array:
        return problem.outer(to_x(x), to_y(y), round)

    def inner(x: Vector, y: Vector, round: PyTree) -> Array:
        return follower(to_x(x), to_y(y), round)

    def argmin(x: Vector, round: PyTree) -> Vector:
        if problem.inner_argmin is not None:
            return ravel_pytree(problem.inner_argmin(to_x(x), round))[0]
        return _newton(lambda y: inner(x, y, round), y_1)

    key_round, key_x, key_y, key_direction = jax.random.split(key, 4)
    indices = jax.random.randint(key_round, (samples,), 0, number_of_rounds)
    if outer_vars is None:
        shape = (samples,)
        xs = x_1 + outer_radius * jax.random.ball(key_x, x_1.size, shape=shape, dtype=x_1.dtype)
        xs = jax.vmap(lambda x: ravel_pytree(problem.domain.project(to_x(x)))[0])(xs)
    else:
        chosen = jax.random.randint(key_x, (samples,), 0, _common_length("outer_vars", outer_vars))
        xs = jax.vmap(lambda i: ravel_pytree(_take(outer_vars, i))[0])(chosen)
    shifts = inner_radius * jax.random.ball(key_y, y_1.size, shape=(samples,), dtype=y_1.dtype)
    # The first round at x_1 comes first: it gives D_prime.
    indices = jnp.concatenate([jnp.zeros(1, indices.dtype), indices])
    xs = jnp.concatenate([x_1[None], xs])
    shifts = jnp.concatenate([jnp.zeros((1, y_1.size), y_1.dtype), shifts])
    keys = jax.random.split(key_direction, samples + 1)

    def one(sample: tuple[Array, ...]) -> dict[str, Array]:
        index, x, shift, key = sample
        round = _take(rounds, index)
        y_star = argmin(x, round)
        points = jnp.stack([y_star, y_star + shift])
        found = jax.vmap(lambda y: _local(outer, inner, x, y, round, key))(points)
        found = {k: v.min() if k == "mu_g" else v.max() for k, v in found.items()}
        found["mu_f"] = _leader_curvature(outer, inner, x, y_star, round)
        return found | {"D_prime": jnp.linalg.norm(y_1 - y_star)}

    # One sample at a time: dense third derivatives of all samples at once need not fit in memory.
    found = jax.jit(lambda batch: jax.lax.map(one, batch))((indices, xs, shifts, keys))
    mu_g, mu_f = float(found.pop("mu_g").min()), float(found.pop("mu_f").min())
    if not mu_g > 0.0:
        raise ValueError(
            "problem.inner must be strongly convex in y (A2), but got a sample where the least "
            f"eigenvalue of its Hessian is {mu_g:.3g}"
        )
    D_prime = float(found.pop("D_prime")[0])
    largest = {name: float(values.max()) for name, values in found.items()}
    D = float(problem.domain.diameter(outer_var))
    if not math.isfinite(D):  # an unbounded X: the spread of the samples
        D = float(jnp.linalg.norm(xs[:, None] - xs[None], axis=-1).max())
    # A loss without curvature or slope at any sample still needs a positive constant.
    floor = float(jnp.finfo(x_1.dtype).eps)
    positive = {name: max(largest[name], floor) for name in ("ell_f0", "ell_f1", "M")}
    estimate: dict[str, Any] = {**largest, **positive, "mu_g": mu_g, "estimated": True}
    estimate |= {"D": D or None, "D_prime": D_prime}
    L_f = Constants(**estimate).L_f
    return Constants(**estimate, mu_f=min(mu_f, L_f) if mu_f > 0.0 else None)


Loss = Callable[[Vector, Vector, PyTree], Array]


def _local(
    outer: Loss, inner: Loss, x: Vector, y: Vector, round: PyTree, key: Key[Array, ""]
) -> dict[str, Array]:
    """Derivative norms of one round at one point z = (x, y)."""
    z = jnp.concatenate([x, y])

    def f(z: Vector) -> Array:
        return outer(z[: x.size], z[x.size :], round)

    def g(z: Vector) -> Array:
        return inner(z[: x.size], z[x.size :], round)

    curvature = jax.hessian(g)(z)
    return {
        "ell_f0": jnp.linalg.norm(jax.grad(f)(z)),
        "ell_f1": _spectral_norm(jax.hessian(f)(z)),
        "ell_g1": _spectral_norm(curvature),
        "ell_g2": _third_derivative_norm(g, z, key),
        "mu_g": jnp.linalg.eigvalsh(curvature[x.size :, x.size :]).min(),
        "M": jnp.abs(f(z)),
    }


def _spectral_norm(matrix: Float[Array, "d d"]) -> Array:
    return jnp.abs(jnp.linalg.eigvalsh(matrix)).max()


def _third_derivative_norm(
    g: Callable[[Vector], Array], z: Vector, key: Key[Array, ""], sweeps: int = 8
) -> Array:
    """Local maximum of D^3 g(z)[v, u, u] over unit u and v, by turns: each sweep can only grow."""
    v = jax.random.normal(key, z.shape, z.dtype)

    def sweep(v: Vector, _: None) -> tuple[Vector, Array]:
        v = v / jnp.maximum(jnp.linalg.norm(v), jnp.finfo(z.dtype).tiny)
        slope = jax.jvp(jax.hessian(g), (z,), (v,))[1]
        values, vectors = jnp.linalg.eigh(slope)
        u = vectors[:, jnp.argmax(jnp.abs(values))]
        # The gradient of u' H(z) u in z is D^3 g(z)[., u, u].
        bilinear = jax.grad(lambda z: u @ jax.jvp(jax.grad(g), (z,), (u,))[1])
        return bilinear(z), jnp.abs(values).max()

    return jax.lax.scan(sweep, v, None, length=sweeps)[1].max()


def _leader_curvature(outer: Loss, inner: Loss, x: Vector, y_star: Vector, round: PyTree) -> Array:
    """Least eigenvalue of the Hessian of x -> f(x, y*(x)).

    Two Newton steps from the fixed y*(x_0) are off by O(|x - x_0|^4), so that differentiating
    through them gives the exact second derivative.
    """
    start = jax.lax.stop_gradient(y_star)

    def leader(x: Vector) -> Array:
        def newton(y: Vector, _: None) -> tuple[Vector, None]:
            gradient = jax.grad(inner, argnums=1)(x, y, round)
            curvature = jax.hessian(inner, argnums=1)(x, y, round)
            return y - jnp.linalg.solve(curvature, gradient), None

        return outer(x, jax.lax.scan(newton, start, None, length=2)[0], round)

    return jnp.linalg.eigvalsh(jax.hessian(leader)(x)).min()


def _newton(g: Callable[[Vector], Array], y: Vector, steps: int = 30) -> Vector:
    """Minimise a strongly convex g: Newton steps, each the best of ten halvings."""
    lengths = jnp.concatenate([0.5 ** jnp.arange(10, dtype=y.dtype), jnp.zeros(1, y.dtype)])

    def step(y: Vector, _: None) -> tuple[Vector, None]:
        direction = jnp.linalg.solve(jax.hessian(g)(y), jax.grad(g)(y))
        candidates = y - lengths[:, None] * direction
        return candidates[jnp.argmin(jax.vmap(g)(candidates))], None

    return jax.lax.scan(step, y, None, length=steps)[0]


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
