"""OBBO, online Bregman bilevel optimiser.

Bohne, Rosenberg, Kazantsev, Polak: *Online Nonconvex Bilevel Optimization with Bregman
Divergences*, arXiv 2409.10470 (2024). The rule below is our reading of it. In round t, with
H = grad^2_yy g_t and J = grad^2_xy g_t at (x_t, y_{t+1}):

    y_{t+1} : K_t steps of  z - beta_t grad_z g_t(x_t, z)  from y_t
    h_t     = grad_x f_t(x_t, y_{t+1}) - J v,    H v = grad_y f_t(x_t, y_{t+1})
    q_t     = (1/W) sum_{i<w} u_i h_{t-i}        stored terms; w = 1 unless asked for
    x_{t+1} = argmin over x in X of  <q_t, x> + (1/alpha_t) D_phi(x, x_t)

| `geometry` | phi | the step |
|---|---|---|
| `"euclidean"` | sum x_i^2 / 2 | projection on X of x_t - alpha_t q_t |
| `"adaptive"` | sum D_i x_i^2 / 2 | projection in the metric D of x_t - alpha_t q_t / D |
| `"entropy"` | sum x_i log x_i, X a simplex | x_t exp(-alpha_t q_t), scaled back to the simplex |

with D_i = sqrt(damping + sum over s <= t of q_{s,i}^2). The paper's abstract gives the window
average to the stochastic variant, SOBBO, to reduce the variance; OBBO itself is w = 1.

| symbol | name | symbol | name |
|---|---|---|---|
| x_t, y_t | `outer_var`, `inner_var` | w, u_i | `window` |
| alpha_t, beta_t | `outer_step_size`, `inner_step_size` | K_t | `inner_steps` |
| h_{t-i} | `state.past` | sum of q_{s,i}^2 | `state.squares` |
"""

from collections.abc import Callable
from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array

from .._support import trees
from .._support.checks import Positive
from .._support.trees import PyTree
from ..domain import Ball, Box, Domain, NonNegative, Simplex, Unconstrained
from ..hypergradient import CG, Hypergradient
from .arguments import AnyWindow, StepCount, StepSize, any_estimator, check_stored
from .base import Algorithm, State
from .descent import Steps
from .record import Leader, Move

HALVINGS = 64
"""How often a bracket is halved: enough for double precision."""
SEPARABLE = (Unconstrained, Box, NonNegative)
"""Domains whose projection is the same in every diagonal metric."""


class OBBOState(State):
    """The pair (x_t, y_t), the last w - 1 hypergradients in `past`, and the metric."""

    squares: PyTree
    """The sums of squares of the metric; `None` for other geometries."""


class OBBO(Algorithm):
    """Online Bregman bilevel optimiser: a mirror step along the mean of stored hypergradients.

    **Arguments:**

    - `problem`: with a follower.
    - `outer_step_size`, `inner_step_size`, `inner_steps`: as in `obax.OAGD`.
    - `window`: its size w and weights; by default w = 1.
    - `hypergradient`: how v is found; by default CG.
    - `geometry`: `"euclidean"`; `"adaptive"`, a step for each coordinate as in AdaGrad, on any
      domain of obax; `"entropy"`, a multiplicative step on a `Simplex`, from an x_1 > 0. An entry
      that underflows to zero stays there.
    - `damping`: of the adaptive metric, > 0.

    >>> import jax.numpy as jnp
    >>> import obax
    >>> problem = obax.Problem(
    ...     outer=lambda x, y, round: jnp.sum(round * y),
    ...     inner=lambda x, y, round: 0.5 * jnp.sum((y - x) ** 2),
    ...     domain=obax.Simplex(),
    ... )
    >>> algorithm = obax.OBBO(problem, 1.0, 0.5, 2, geometry="entropy")
    >>> state = algorithm.init(jnp.array([0.5, 0.5]), jnp.zeros(2), jnp.zeros(2))
    >>> for losses in ([0.0, 1.0], [0.0, 1.0], [1.0, 0.0]):
    ...     state, info = algorithm.step(state, jnp.asarray(losses))
    ...     print("{:.3f} {:.3f}".format(*state.outer_var))
    0.731 0.269
    0.881 0.119
    0.731 0.269
    """

    outer_step_size: StepSize
    inner_step_size: StepSize
    inner_steps: StepCount = 1
    window: AnyWindow = eqx.field(default=None)
    hypergradient: Hypergradient = any_estimator(CG())
    geometry: Literal["euclidean", "adaptive", "entropy"] = eqx.field(
        default="euclidean", kw_only=True
    )
    damping: Positive = eqx.field(default=1e-8, kw_only=True)

    def __check_init__(self) -> None:
        check_stored(self.window, "OBBO")
        check_geometry(self.geometry, self.problem.domain)

    def remember(self, start: State) -> OBBOState:
        x = start.outer_var
        if self.geometry == "entropy":
            _check_inside(x)
        squares = jax.tree.map(jnp.zeros_like, x) if self.geometry == "adaptive" else None
        return OBBOState(**vars(start) | {"past": self.window.past(x)}, squares=squares)

    def update(self, state: OBBOState, round: PyTree) -> Move:
        steps = Steps(self.inner_steps).at(state.t)
        follower = self.follow(state, round, steps)
        estimate = self.estimate(self.hypergradient, state, follower, round)
        h = estimate.value
        q, terms = self.average(state, h)
        x, squares = self._step(state.outer_var, q, state.squares, self.outer.rate(state.t))
        move = Move(Leader(x), follower, estimate._replace(value=q), steps)
        return move._replace(terms=terms, memory={"squares": squares}, stored=h)

    def _step(
        self, x: PyTree, direction: PyTree, squares: PyTree, rate: Array
    ) -> tuple[PyTree, PyTree]:
        """Return argmin over X of <q, x> + (1/alpha) D_phi(x, x_t), and the sums of squares."""
        domain = self.problem.domain
        if self.geometry == "entropy":
            return entropy_step(domain, x, direction, rate), None
        if self.geometry == "euclidean":
            return domain.project(trees.scaled_add(x, -rate, direction)), None
        squares = jax.tree.map(lambda total, q: total + q**2, squares, direction)
        metric = jax.tree.map(
            lambda total: jnp.sqrt(total + jnp.asarray(self.damping, total.dtype)), squares
        )
        return adaptive_step(domain, x, direction, rate, metric), squares


def _check_inside(outer_var: PyTree) -> None:
    """Raise a `ValueError` if a multiplicative step could not move every entry."""
    for leaf in jax.tree.leaves(outer_var):
        if trees.is_concrete(leaf) and not np.all(np.asarray(leaf) > 0):
            raise ValueError(
                f"outer_var must be > 0 everywhere with geometry='entropy', whose steps multiply "
                f"it, but is {outer_var}; start inside the simplex."
            )


def check_geometry(geometry: str, domain: Domain) -> None:
    """Raise a `ValueError` where the step has no closed form on this domain."""
    known = " and ".join(kind.__name__ for kind in (*SEPARABLE, Ball, Simplex))
    if geometry == "adaptive" and not isinstance(domain, (*SEPARABLE, Ball, Simplex)):
        raise ValueError(
            f"problem.domain must be one of {known} with geometry='adaptive', whose projection is "
            f"not the Euclidean one, but is {domain!r}; use geometry='euclidean'."
        )
    if geometry == "entropy" and not isinstance(domain, Simplex):
        raise ValueError(
            f"problem.domain must be a Simplex with geometry='entropy', but is {domain!r}; use "
            f"geometry='euclidean' or 'adaptive'."
        )


def entropy_step(domain: Domain, x: PyTree, direction: PyTree, rate: Array) -> PyTree:
    """Return x exp(-alpha q), scaled back onto the simplex: phi is the negative entropy."""
    assert isinstance(domain, Simplex)
    flat, unravel = ravel_pytree(x)
    slope = ravel_pytree(direction)[0]
    # What is zero stays zero. The largest exponent of the rest is subtracted: nothing overflows,
    # and the sum cannot vanish.
    exponent = jnp.where(flat > 0, -rate.astype(flat.dtype) * slope, -jnp.inf)
    weights = flat * jnp.exp(exponent - jnp.max(exponent))
    return unravel(domain.scale.astype(flat.dtype) * weights / jnp.sum(weights))


def weighted_projection(domain: Domain, z: PyTree, metric: PyTree) -> PyTree:
    """Return argmin over x in X of  sum_i D_i (x_i - z_i)^2."""
    if isinstance(domain, SEPARABLE):
        return domain.project(z)
    flat, unravel = ravel_pytree(z)
    weight = ravel_pytree(metric)[0]
    if isinstance(domain, Ball):
        centre = jnp.zeros_like(flat) if domain.center is None else ravel_pytree(domain.center)[0]
        return unravel(_onto_ball(flat - centre, weight, domain.radius.astype(flat.dtype)) + centre)
    assert isinstance(domain, Simplex)
    return unravel(_onto_simplex(flat, weight, domain.scale.astype(flat.dtype)))


def _onto_ball(z: Array, weight: Array, radius: Array) -> Array:
    """Return x = D z / (D + lambda), with the lambda >= 0 at which |x| = radius."""

    def point(multiplier: Array) -> Array:
        return weight * z / (weight + multiplier)

    most = jnp.max(weight) * jnp.linalg.norm(z) / radius
    x = point(_bisect(lambda m: jnp.linalg.norm(point(m)) > radius, jnp.zeros_like(most), most))
    # A point inside stays as it is; any other is put exactly on the sphere.
    return jnp.where(jnp.linalg.norm(z) <= radius, z, Ball(radius).project(x))


def _onto_simplex(z: Array, weight: Array, scale: Array) -> Array:
    """Return x = max(0, z - lambda / D), with the lambda at which the sum is `scale`."""

    def point(multiplier: Array) -> Array:
        return jnp.maximum(z - multiplier / weight, 0)

    low, high = jnp.min(weight * (z - scale)), jnp.max(weight * z)
    x = point(_bisect(lambda m: jnp.sum(point(m)) > scale, low, high))
    return scale * x / jnp.sum(x)


def _bisect(too_low: Callable[[Array], Array], low: Array, high: Array) -> Array:
    """Return the largest number found at which `too_low` is true."""

    def halve(_: Array, bracket: tuple[Array, Array]) -> tuple[Array, Array]:
        low, high = bracket
        middle = low + (high - low) / 2
        up = too_low(middle)
        return jnp.where(up, middle, low), jnp.where(up, high, middle)

    return jax.lax.fori_loop(0, HALVINGS, halve, (low, high))[0]


def adaptive_step(
    domain: Domain, x: PyTree, direction: PyTree, rate: Array, metric: PyTree
) -> PyTree:
    """Return the step for phi = sum_i D_i x_i^2 / 2: each coordinate has a step size of its own."""
    scaled = jax.tree.map(jnp.divide, direction, metric)
    return weighted_projection(domain, trees.scaled_add(x, -rate, scaled), metric)
