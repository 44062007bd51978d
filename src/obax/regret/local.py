"""Regrets that need no comparator: the squared norms of averaged hypergradients q_t.

`local` is Equation (14), Section 3.2.1; `local_past` is that of SOBOW and OBBO; `projected`, of
SOGD and OBBO, is for leaders that are constrained to a set.
"""

from collections.abc import Sequence
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float

from .._support import trees
from .._support.checks import Arrays, checked
from .._support.trees import PyTree
from ..domain import Domain
from ..implicit import Point, Solver, at_answer, compiled, one_round
from ..problem import Problem
from ..window import Window
from .comparators import answers
from .results import RegretCurve
from .setup import Setup


@checked
def local(
    problem: Problem,
    outer_vars: Arrays,
    rounds: Arrays,
    window: Window | None = None,
    *,
    inner_start: PyTree = None,
    solver: Solver | None = None,
) -> RegretCurve:
    """Return BL-Reg_t, the sum of the squared norms of grad F_{t,u}(x_t, y*_t(x_t)), where

        F_{t,u}(x, y) = (1/W) sum_{i<w} u_i f_{t-i}(x, y),    f_t = 0 for t <= 0,

    and every term uses the *current* round's y*_t. The weights and `normalise` of the window are
    used; `None`: w = 1. Memory for w rounds at a time, whatever T is. The paper has X = R^d1 here:
    on a smaller domain the plain gradient is taken, not a projected one.

    >>> problem = Problem(lambda x, y, r: 0.5 * (y - r) ** 2, lambda x, y, r: (y - 2 * x) ** 2)
    >>> targets = jnp.array([1.0, 2.0, 3.0])
    >>> curve = local(problem, jnp.zeros(3), targets, Window(2), inner_start=jnp.zeros(()))
    >>> print(curve.terms)
    [ 1.  9. 25.]
    """
    setup, x = Setup.of(problem, rounds, outer_vars, inner_start=inner_start, solver=solver)
    return _squares(setup, x, window, "current")


@checked
def local_past(
    problem: Problem,
    outer_vars: Arrays,
    rounds: Arrays,
    window: Window | None = None,
    *,
    inner_start: PyTree = None,
    solver: Solver | None = None,
) -> RegretCurve:
    """Return the window regret of SOBOW, the sum of the squared norms of

        (1/W) sum_{i<w} u_i grad phi_{t-i}(x_{t-i}),    phi_t(x) = f_t(x, y*_t(x)),

    every term at the decision of its *own* round, with the follower's answer of that round. In
    `local`, the paper's, all terms are at x_t. They are the same for w = 1. Arguments as for
    `local`.

    A leader that swings about a stationary point has a small regret here and a large one there.

    >>> problem = Problem(lambda x, y, r: 0.5 * (y - r) ** 2, lambda x, y, r: (y - 2 * x) ** 2)
    >>> decisions, targets = jnp.array([0.0, 1.0, 1.0]), jnp.array([1.0, 2.0, 3.0])
    >>> curve = local_past(problem, decisions, targets, Window(2), inner_start=jnp.zeros(()))
    >>> print(curve.terms)
    [1. 1. 1.]
    """
    setup, x = Setup.of(problem, rounds, outer_vars, inner_start=inner_start, solver=solver)
    return _squares(setup, x, window, "past")


@checked
def projected(
    problem: Problem,
    outer_vars: Arrays,
    rounds: Arrays,
    step_size: float | Sequence[float] | Array,
    window: Window | None = None,
    *,
    at: Literal["current", "past"] = "current",
    inner_start: PyTree = None,
    solver: Solver | None = None,
) -> RegretCurve:
    """Return the sum of the squared norms of the projected gradients

        (x_t - projection on X of (x_t - alpha_t q_t)) / alpha_t,

    which vanish at the stationary points of X, those on its boundary included; without a constraint
    they are q_t. `local` and `local_past` take q_t itself.

    **Arguments:** those of `local`, and

    - `step_size`: alpha_t, one number or one for each round.
    - `at`: the decisions at which the window's terms of q_t are taken. `"current"`: all at x_t, as
      in `local`; `"past"`: each at the decision of its own round, as in `local_past`. For w = 1,
      which is the regret of SOGD, the same. For OBBO: `"past"`, with the Euclidean projection
      whatever its geometry is.

    >>> from obax import Box
    >>> problem = Problem(lambda x, y, r: 0.5 * (x - r) ** 2, domain=Box(-1.0, 1.0))
    >>> decisions, targets = jnp.array([0.0, 1.0, 0.5]), jnp.array([1.0, 3.0, 3.0])
    >>> print(projected(problem, decisions, targets, 0.5).terms)
    [1. 0. 1.]
    """
    step_size = trees.float_array(step_size, "step_size")
    if trees.is_concrete(step_size) and not np.all(np.asarray(step_size) > 0):
        raise ValueError(f"step_size must be a number > 0, but got {step_size}.")
    setup, x = Setup.of(problem, rounds, outer_vars, inner_start=inner_start, solver=solver)
    if step_size.shape not in ((), (setup.horizon,)):
        raise ValueError(
            f"step_size must be one number or {setup.horizon}, one for each round, but has shape "
            f"{step_size.shape}."
        )
    return _squares(setup, x, window, at, step_size)


def _squares(
    setup: Setup, x: PyTree, window: Window | None, at: str, step_size: Array | None = None
) -> RegretCurve:
    """Return the curve of |q_t|^2, or of the projected gradients where there is a step size."""
    window = Window() if window is None else window
    pairs = answers(setup, x)
    average = {"current": _at_the_decision, "past": _at_past_decisions}[at]
    gradients = average(setup, pairs.outer_var, pairs.inner_var, window)
    if step_size is None:
        terms = jnp.sum(gradients**2, axis=1)
    else:
        steps = jnp.broadcast_to(step_size, (setup.horizon,)).astype(gradients.dtype)
        terms = _projected_terms(setup.problem.domain, pairs.outer_var, gradients, steps)
    return RegretCurve(terms, jnp.cumsum(terms), None, pairs)


@compiled
def _at_the_decision(setup: Setup, xs: PyTree, ys: PyTree, window: Window) -> Float[Array, "T d1"]:
    flat = setup.flat()
    ages = jnp.arange(window.size)

    def term(round: PyTree, t: Array, x: PyTree, y: PyTree) -> Array:
        x, y = ravel_pytree(x)[0], ravel_pytree(y)[0].astype(flat.dtype)
        present = ages <= t
        weights = jnp.where(present, window.weights, 0).astype(flat.dtype)
        whole = jnp.sum(window.weights.astype(flat.dtype))
        shares = weights / (whole if window.normalise == "full" else jnp.sum(weights))
        # The first round, with weight zero, takes the place of rounds before it.
        past = jax.tree.map(lambda leaf: leaf[jnp.maximum(t - ages, 0)], setup.rounds)
        slopes = window.map(lambda r: jax.grad(flat.outer, (0, 1))(x, y, r), past)
        slope_x, slope_y = jax.tree.map(lambda leaf: shares @ leaf, slopes)
        return Point(flat, one_round(round), x, y).pull_back(slope_x, slope_y)

    times = jnp.arange(setup.horizon)
    return flat.map_rounds(term, setup.rounds, times, xs, ys, copies=window.size)


@compiled
def _at_past_decisions(
    setup: Setup, xs: PyTree, ys: PyTree, window: Window
) -> Float[Array, "T d1"]:
    flat = setup.flat()

    def own(round: PyTree, x: PyTree, y: PyTree) -> Array:
        y = ravel_pytree(y)[0].astype(flat.dtype)
        return at_answer(flat, ravel_pytree(x)[0], round, y).gradient()

    gradients = flat.map_rounds(own, setup.rounds, xs, ys)
    u = window.weights.astype(flat.dtype)
    horizon = setup.horizon
    seen = jnp.cumsum(u)[jnp.minimum(jnp.arange(horizon), window.size - 1)]
    total = jnp.sum(u) if window.normalise == "full" else seen[:, None]

    def add(age: Array, sum_so_far: Array) -> Array:
        # Rounds before the first count as zero.
        present = (jnp.arange(horizon) >= age)[:, None]
        return sum_so_far + u[age] * jnp.where(present, jnp.roll(gradients, age, axis=0), 0)

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
