"""Regrets that need no comparator: the squared norms of averaged hypergradients q_t.

`local` is Equation (14), Section 3.2.1; `local_past` is that of SOBOW and OBBO; `projected`, of
SOGD and OBBO, is for leaders that are held in a set.
"""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float

from .._support import validation
from .._support.trees import PyTree
from .._support.typed import typed
from ..domain import Domain
from ..problem import Problem
from ..reduced import Solver, compiled, one_round, pulled_back, reduced_gradient
from ..window import Window
from . import inputs
from .comparators import inner_solution
from .inputs import Setup
from .results import Comparator, RegretCurve


@typed
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
    return _squares("current", problem, outer_vars, rounds, window, inner_start, solver)


@typed
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
    return _squares("past", problem, outer_vars, rounds, window, inner_start, solver)


def _squares(at: str, *arguments: PyTree) -> RegretCurve:
    gradients, found = _averaged_gradients(at, *arguments)
    terms = jnp.sum(gradients**2, axis=1)
    return RegretCurve(terms, jnp.cumsum(terms), None, found)


@typed
def projected(
    problem: Problem,
    outer_vars: PyTree,
    rounds: PyTree,
    step_size: float | Sequence[float] | Array,
    window: Window | None = None,
    *,
    at: str = "current",
    inner_start: PyTree = None,
    solver: Solver | None = None,
) -> RegretCurve:
    """The squared norms, summed, of the projected gradients

        (x_t - projection on X of (x_t - alpha_t q_t)) / alpha_t,

    which vanish at the stationary points of X, those on its boundary included; without a constraint
    they are q_t. `local` and `local_past` take q_t itself.

    **Arguments:** those of `local`, and

    - `step_size`: alpha_t, one number or one for each round.
    - `at`: where the window's terms of q_t are taken. `"current"`: all at x_t, as in `local`;
      `"past"`: each at the decision of its own round, as in `local_past`. For w = 1, which is the
      regret of SOGD, the same. For OBBO: `"past"`, with the Euclidean projection whatever its
      geometry is.

    >>> from obax import Box
    >>> problem = Problem(lambda x, y, r: 0.5 * (x - r) ** 2, domain=Box(-1.0, 1.0))
    >>> decisions, targets = jnp.array([0.0, 1.0, 0.5]), jnp.array([1.0, 3.0, 3.0])
    >>> print(projected(problem, decisions, targets, 0.5).terms)
    [1. 0. 1.]
    """
    validation.one_of(at, ("current", "past"), "at")
    step_size = validation.positive(step_size, "step_size")
    gradients, found = _averaged_gradients(
        at, problem, outer_vars, rounds, window, inner_start, solver
    )
    horizon = len(gradients)
    if step_size.shape not in ((), (horizon,)):
        raise ValueError(
            f"step_size must be one number or {horizon}, one for each round, but has shape "
            f"{step_size.shape}."
        )
    steps = jnp.broadcast_to(step_size, (horizon,)).astype(gradients.dtype)
    terms = _projected_terms(problem.domain, found.outer_var, gradients, steps)
    return RegretCurve(terms, jnp.cumsum(terms), None, found)


def _averaged_gradients(
    at: str,
    problem: Problem,
    outer_vars: PyTree,
    rounds: PyTree,
    window: Window | None,
    inner_start: PyTree,
    solver: Solver | None,
) -> tuple[Float[Array, "T d1"], Comparator]:
    """q_t as vectors, and the pairs (x_t, y*_t(x_t)). `at`: `"current"` or `"past"`."""
    window = Window() if window is None else window
    if not isinstance(window, Window):
        raise ValueError(f"window must be an obax.Window, but got {window!r}.")
    found = inner_solution(problem, outer_vars, rounds, inner_start=inner_start, solver=solver)
    search = inputs.completed(outer_vars, inner_start=inner_start, solver=solver)
    given = inputs.setup(problem, rounds, **search)
    compute = {"current": _at_the_decision, "past": _at_past_decisions}[at]
    return compute(given, found.outer_var, found.inner_var, window), found


@compiled
def _at_the_decision(given: Setup, xs: PyTree, ys: PyTree, window: Window) -> Float[Array, "T d1"]:
    flat = given.flat()
    ages = jnp.arange(window.size)

    def term(round: PyTree, t: Array, x: PyTree, y: PyTree) -> Array:
        x, y = ravel_pytree(x)[0], ravel_pytree(y)[0].astype(flat.dtype)
        seen = ages <= t
        weights = jnp.where(seen, window.weights, 0).astype(flat.dtype)
        whole = jnp.sum(window.weights.astype(flat.dtype))
        shares = weights / (whole if window.normalise == "full" else jnp.sum(weights))
        # Rounds before the first are stood in for by the first, with weight zero.
        past = jax.tree.map(lambda leaf: leaf[jnp.maximum(t - ages, 0)], given.rounds)
        slopes = window.map(lambda r: jax.grad(flat.outer, (0, 1))(x, y, r), past)
        slope_x, slope_y = jax.tree.map(lambda leaf: shares @ leaf, slopes)
        return pulled_back(flat, one_round(round), x, y, slope_x, slope_y)

    times = jnp.arange(given.horizon)
    return flat.map_rounds(term, given.rounds, times, xs, ys, copies=window.size)


@compiled
def _at_past_decisions(
    given: Setup, xs: PyTree, ys: PyTree, window: Window
) -> Float[Array, "T d1"]:
    flat = given.flat()

    def own(round: PyTree, x: PyTree, y: PyTree) -> Array:
        y = ravel_pytree(y)[0].astype(flat.dtype)
        return reduced_gradient(flat, ravel_pytree(x)[0], round, y)

    gradients = flat.map_rounds(own, given.rounds, xs, ys)
    u = window.weights.astype(flat.dtype)
    horizon = given.horizon
    seen = jnp.cumsum(u)[jnp.minimum(jnp.arange(horizon), window.size - 1)]
    total = jnp.sum(u) if window.normalise == "full" else seen[:, None]

    def add(age: Array, sum_so_far: Array) -> Array:
        # Rounds before the first count as zero.
        there = (jnp.arange(horizon) >= age)[:, None]
        return sum_so_far + u[age] * jnp.where(there, jnp.roll(gradients, age, axis=0), 0)

    return jax.lax.fori_loop(0, window.size, add, jnp.zeros_like(gradients)) / total


@compiled
def _projected_terms(
    domain: Domain, xs: PyTree, gradients: Float[Array, "T d1"], steps: Float[Array, " T"]
) -> Float[Array, " T"]:
    def term(x: PyTree, gradient: Array, step: Array) -> Array:
        flat, unravel = ravel_pytree(x)
        moved = ravel_pytree(domain.project(unravel(flat - step * gradient)))[0]
        return jnp.sum(((flat - moved) / step) ** 2)

    return jax.vmap(term)(xs, gradients, steps)
