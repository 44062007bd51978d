r"""Variations of the losses, and what the bounds of `obax.theory` take.

$$ V = \sum_{s=2}^t \sup_{x \in X} |\phi_{s-1}(x) - \phi_s(x)|, \qquad
   G = \sum_{s=2}^t \sup_{x \in X} |\nabla \phi_{s-1}(x) - \nabla \phi_s(x)|^2, \qquad
   F = \sum_{s=1}^t \phi_s(x^*_s). $$
"""

import inspect
import warnings
from collections.abc import Callable
from typing import Any, Unpack

import equinox as eqx
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float

from .._support import validation
from .._support.trees import PyTree
from ..problem import Problem
from ..reduced import Scalar, Vector, compiled, reduced_gradient, reduced_value
from ..window import Window
from . import inputs
from .comparators import optima
from .inputs import Search, Setup
from .paths import path_lengths, running
from .regrets import losses_of
from .results import Comparator
from .supremum import SAMPLES, Objective, inner_variation, points_of, searched_supremum


class LowerEstimateWarning(UserWarning):
    """A supremum was searched, not computed: a bound that takes it may come out too small."""


class Variations(eqx.Module):
    """Cumulative curves. `V` and `G` are lower estimates, from a search over X. `F` is the loss at
    the x*_t and `F_static` that at the one x*; `squared_gradients` sums |grad phi_t(x*_t)|^2."""

    V: Float[Array, " T"]
    G: Float[Array, " T"]
    F: Float[Array, " T"]
    F_static: Float[Array, " T"]
    squared_gradients: Float[Array, " T"]
    comparators: Comparator
    static: Comparator


def variations(
    problem: Problem,
    rounds: PyTree,
    *,
    samples: int = SAMPLES,
    comparators: Comparator | None = None,
    static: Comparator | None = None,
    **search: Unpack[Search],
) -> Variations:
    """V_T, G_T, F_T and the squared gradients at the optima. Arguments as for `path_lengths`.

    The suprema in V and G are searched at `samples` random points of X and refined from there:
    lower estimates, the same on every call.

    >>> problem = Problem(lambda x, y, r: 0.5 * (x - r) ** 2, outer_argmin=lambda r: r)
    >>> found = variations(problem, jnp.array([0.0, 1.0, 3.0]))
    >>> print(jnp.round(found.G, 3), found.F)    # the gradients differ by 1 and by 2, wherever x is
    [0. 1. 5.] [0. 0. 0.]
    """
    validation.count(samples, "samples")
    given = inputs.setup(problem, rounds, **search)
    comparators, static = optima(given, comparators, static)
    values, slopes = _searched_changes(given, points_of(comparators), samples)
    return Variations(
        V=values,
        G=slopes,
        F=jnp.cumsum(losses_of(problem, comparators, given.rounds)),
        F_static=jnp.cumsum(losses_of(problem, static, given.rounds)),
        squared_gradients=_squared_gradients(given, comparators.outer_var),
        comparators=comparators,
        static=static,
    )


def bound_arguments(
    bound: Callable[..., Any],
    problem: Problem,
    rounds: PyTree,
    *,
    window: Window | None = None,
    samples: int = SAMPLES,
    **search: Unpack[Search],
) -> dict[str, Any]:
    """What a bound of `obax.theory` takes by keyword, measured: only what its signature names.

    Knows `T`, `W` (from `window`), `squared_gradients`, and `P_p`, `Y_p`, `S_p`, `Y_bar_p`, `H_p`
    for p = 1, 2. The values are curves over t = 1..T, so that the bound is one, too. Warns
    (`LowerEstimateWarning`) where H is a lower estimate: such a bound certifies nothing.

    >>> problem = Problem(lambda x, y, r: 0.5 * (x - r) ** 2, outer_argmin=lambda r: r)
    >>> def bound(*, T, P_1, P_2): ...
    >>> measured = bound_arguments(bound, problem, jnp.array([0.0, 1.0, 3.0]))
    >>> print(measured["T"], measured["P_1"], measured["P_2"])
    [1 2 3] [0. 1. 3.] [0. 1. 5.]
    """
    names = [name for name in inspect.signature(bound).parameters if name != "self"]
    given = inputs.setup(problem, rounds, **search)
    comparators, static = optima(given, None, None)
    known: dict[str, Any] = {"T": jnp.arange(1, given.horizon + 1)}
    if window is not None:
        known["W"] = jnp.sum(window.weights)
    for order in (1, 2):
        lengths = path_lengths(
            problem,
            given.rounds,
            order,
            with_H=False,
            comparators=comparators,
            static=static,
            **search,
        )
        for name in ("P", "Y", "S", "Y_bar"):
            known[f"{name}_{order}"] = getattr(lengths, name)
    if any(name.startswith("H_") for name in names):
        change, exact = inner_variation(given, comparators, samples)
        known["H_1"], known["H_2"] = running(change, 1), running(change, 2)
        if not exact:
            warnings.warn(
                "H_1 and H_2 are lower estimates from a search over the domain: the bound may come "
                "out too small and certifies nothing.",
                LowerEstimateWarning,
                stacklevel=2,
            )
    if "squared_gradients" in names:
        known["squared_gradients"] = _squared_gradients(given, comparators.outer_var)
    missing = [name for name in names if name not in known]
    if missing:
        hint = "; pass window= for W" if "W" in missing else ""
        raise ValueError(
            f"bound must take only what can be measured here ({', '.join(known)}), but it also "
            f"takes {', '.join(missing)}{hint}."
        )
    return {name: known[name] for name in names}


@compiled
def _searched_changes(given: Setup, around: Array, samples: int) -> tuple[Array, Array]:
    flat = given.flat()

    def value_change(x: Vector, before: PyTree, now: PyTree) -> Scalar:
        return jnp.abs(reduced_value(flat, x, before) - reduced_value(flat, x, now))

    def slope_change(x: Vector, before: PyTree, now: PyTree) -> Scalar:
        turn = reduced_gradient(flat, x, before) - reduced_gradient(flat, x, now)
        return jnp.vdot(turn, turn)

    def found(objective: Objective) -> Array:
        if given.horizon == 1:
            return jnp.zeros(1, flat.dtype)
        return running(searched_supremum(flat, objective, given.rounds, around, samples), 1)

    return found(value_change), found(slope_change)


@compiled
def _squared_gradients(given: Setup, outer_vars: PyTree) -> Array:
    flat = given.flat()

    def square(round: PyTree, x: PyTree) -> Scalar:
        slope = reduced_gradient(flat, ravel_pytree(x)[0], round)
        return jnp.vdot(slope, slope)

    return jnp.cumsum(flat.map_rounds(square, given.rounds, outer_vars))
