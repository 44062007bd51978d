"""The projected-gradient regret, for leaders that are held in a set: of SOGD and OBBO."""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float

from .._support import validation
from .._support.trees import PyTree
from ..domain import Domain
from ..problem import Problem
from ..reduced import Solver, compiled
from ..window import Window
from .curve import RegretCurve
from .local import averaged_gradients

POINTS = ("current", "past")


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
    validation.one_of(at, POINTS, "at")
    step_size = validation.positive(step_size, "step_size")
    gradients, found = averaged_gradients(
        at, problem, outer_vars, rounds, window, inner_start, solver
    )
    horizon = len(gradients)
    if step_size.shape not in ((), (horizon,)):
        raise ValueError(
            f"step_size must be one number or {horizon}, one for each round, but has shape "
            f"{step_size.shape}."
        )
    steps = jnp.broadcast_to(step_size, (horizon,)).astype(gradients.dtype)
    terms = _terms(problem.domain, found.outer_var, gradients, steps)
    return RegretCurve(terms, jnp.cumsum(terms), None, found)


@compiled
def _terms(
    domain: Domain, xs: PyTree, gradients: Float[Array, "T d1"], steps: Float[Array, " T"]
) -> Float[Array, " T"]:
    def term(x: PyTree, gradient: Array, step: Array) -> Array:
        flat, unravel = ravel_pytree(x)
        moved = ravel_pytree(domain.project(unravel(flat - step * gradient)))[0]
        return jnp.sum(((flat - moved) / step) ** 2)

    return jax.vmap(term)(xs, gradients, steps)
