"""The bilevel local regret, eq. (reg:non:bilevel:dynamic)."""

import functools
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float

from .._support.trees import PyTree
from ..problem import Problem
from ..reduced import Flat, Solver, length_of, one_round, pulled_back
from ..window import Window
from . import inputs
from .comparators import Comparator, inner_solution
from .curve import RegretCurve


def local(
    problem: Problem,
    outer_vars: PyTree,
    rounds: PyTree,
    window: Window | None = None,
    *,
    inner_start: PyTree = None,
    solver: Solver | None = None,
) -> RegretCurve:
    """BL-Reg_t: the squared norms of grad F_{t,u}(x_t, y*_t(x_t)), summed, where

        F_{t,u}(x, y) = (1/W) sum_{i<w} u_i f_{t-i}(x, y),    f_t = 0 for t <= 0,

    and every term answers with the *current* round's y*_t. Of the window its weights and
    `normalise` count; `None`: w = 1. Memory for w rounds at a time, whatever T is. The paper has
    X = R^d1 here: on a smaller domain the gradient is taken as it is, not projected.

    >>> problem = Problem(lambda x, y, r: 0.5 * (y - r) ** 2, lambda x, y, r: (y - 2 * x) ** 2)
    >>> targets = jnp.array([1.0, 2.0, 3.0])
    >>> curve = local(problem, jnp.zeros(3), targets, Window(2), inner_start=jnp.zeros(()))
    >>> print(curve.terms)
    [ 1.  9. 25.]
    """
    window = checked_window(window)
    gradients, found = window_gradients(problem, outer_vars, rounds, window, inner_start, solver)
    terms = jnp.sum(gradients**2, axis=1)
    return RegretCurve(terms, jnp.cumsum(terms), None, found)


def checked_window(window: Window | None) -> Window:
    """The window, by default that of w = 1."""
    window = Window() if window is None else window
    if not isinstance(window, Window):
        raise ValueError(f"window must be an obax.Window, but got {window!r}.")
    return window


def at_answers(
    compute: Callable[..., Float[Array, "T d1"]],
    problem: Problem,
    outer_vars: PyTree,
    rounds: PyTree,
    window: Window,
    inner_start: PyTree,
    solver: Solver | None,
) -> tuple[Float[Array, "T d1"], Comparator]:
    """`compute(problem, rounds, x_start, y_start, xs, ys, window, solver)` at the decisions and the
    follower's answers to them, and these pairs."""
    found = inner_solution(problem, outer_vars, rounds, inner_start=inner_start, solver=solver)
    rounds, _ = inputs.stacked(rounds, "rounds")
    given = inputs.setup(problem, rounds, None, inner_start, found.outer_var)
    starts = given.outer_start, given.inner_start
    pairs = found.outer_var, found.inner_var
    return compute(problem, rounds, *starts, *pairs, window, solver or Solver()), found


@eqx.filter_jit
def _gradients(problem, rounds, outer_start, inner_start, xs, ys, window, solver):  # type: ignore[no-untyped-def]
    flat = Flat(problem, outer_start, inner_start, solver)
    ages = jnp.arange(window.size)

    def term(round: PyTree, t: Array, x: PyTree, y: PyTree) -> Array:
        x, y = ravel_pytree(x)[0], ravel_pytree(y)[0].astype(flat.dtype)
        seen = ages <= t
        weights = jnp.where(seen, window.weights, 0).astype(flat.dtype)
        whole = jnp.sum(window.weights.astype(flat.dtype))
        shares = weights / (whole if window.normalise == "full" else jnp.sum(weights))
        # Rounds before the first are stood in for by the first, with weight zero.
        past = jax.tree.map(lambda leaf: leaf[jnp.maximum(t - ages, 0)], rounds)
        slopes = window.map(lambda r: jax.grad(flat.outer, (0, 1))(x, y, r), past)
        slope_x, slope_y = jax.tree.map(lambda leaf: shares @ leaf, slopes)
        return pulled_back(flat, one_round(round), x, y, slope_x, slope_y)

    times = jnp.arange(length_of(rounds))
    return flat.map_rounds(term, rounds, times, xs, ys, copies=window.size)


# (problem, outer_vars, rounds, window, inner_start, solver) to grad F_{t,u}(x_t, y*_t(x_t)) as
# vectors, and the pairs (x_t, y*_t(x_t)).
window_gradients = functools.partial(at_answers, _gradients)
