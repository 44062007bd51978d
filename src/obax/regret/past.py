"""The window regret at past iterates, of SOBOW and OBBO."""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import Array

from .._support.trees import PyTree
from ..problem import Problem
from ..reduced import Flat, Solver, length_of, one_round, pulled_back
from ..window import Window
from .curve import RegretCurve
from .local import at_answers, checked_window


def local_past(
    problem: Problem,
    outer_vars: PyTree,
    rounds: PyTree,
    window: Window | None = None,
    *,
    inner_start: PyTree = None,
    solver: Solver | None = None,
) -> RegretCurve:
    """The window regret of SOBOW: the squared norms, summed, of

        (1/W) sum_{i<w} u_i grad phi_{t-i}(x_{t-i}),    phi_t(x) = f_t(x, y*_t(x)),

    every term at the decision of its *own* round, with its own follower's answer. `local`, the
    paper's, has all terms at x_t. They are the same for w = 1. Arguments as for `local`.

    A leader that swings about a stationary point has a small regret here and a large one there.

    >>> problem = Problem(lambda x, y, r: 0.5 * (y - r) ** 2, lambda x, y, r: (y - 2 * x) ** 2)
    >>> decisions, targets = jnp.array([0.0, 1.0, 1.0]), jnp.array([1.0, 2.0, 3.0])
    >>> curve = local_past(problem, decisions, targets, Window(2), inner_start=jnp.zeros(()))
    >>> print(curve.terms)
    [1. 1. 1.]
    """
    window = checked_window(window)
    gradients, found = past_gradients(problem, outer_vars, rounds, window, inner_start, solver)
    terms = jnp.sum(gradients**2, axis=1)
    return RegretCurve(terms, jnp.cumsum(terms), None, found)


@eqx.filter_jit
def _averages(problem, rounds, outer_start, inner_start, xs, ys, window, solver):  # type: ignore[no-untyped-def]
    flat = Flat(problem, outer_start, inner_start, solver)

    def own(round: PyTree, x: PyTree, y: PyTree) -> Array:
        x, y = ravel_pytree(x)[0], ravel_pytree(y)[0].astype(flat.dtype)
        slopes = jax.grad(flat.outer, (0, 1))(x, y, round)
        return pulled_back(flat, one_round(round), x, y, *slopes)

    gradients = flat.map_rounds(own, rounds, xs, ys)
    u = window.weights.astype(flat.dtype)
    horizon = length_of(rounds)
    seen = jnp.cumsum(u)[jnp.minimum(jnp.arange(horizon), window.size - 1)]
    total = jnp.sum(u) if window.normalise == "full" else seen[:, None]

    def add(age: Array, sum_so_far: Array) -> Array:
        # Rounds before the first count as zero.
        there = (jnp.arange(horizon) >= age)[:, None]
        return sum_so_far + u[age] * jnp.where(there, jnp.roll(gradients, age, axis=0), 0)

    return jax.lax.fori_loop(0, window.size, add, jnp.zeros_like(gradients)) / total


# As `window_gradients`: (1/W) sum_i u_i grad phi_{t-i}(x_{t-i}).
past_gradients = functools.partial(at_answers, _averages)
