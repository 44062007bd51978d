r"""Path lengths and variations of a sequence of problems, as cumulative curves.

With $\phi_t(x) = f_t(x, y^*_t(x))$, for t = 1..T (the first entry of a path length is 0),

$$ P_p = \sum_{s=2}^t |x^*_{s-1} - x^*_s|^p, \quad
   Y_p = \sum_{s=2}^t |y^*_{s-1}(x^*_{s-1}) - y^*_s(x^*_s)|^p, \quad S_p = P_p + Y_p, $$
$$ \bar Y_p = \sum_{s=2}^t |y^*_{s-1}(x^*) - y^*_s(x^*)|^p, \quad
   H_p = \sum_{s=2}^t \sup_{x \in X} |y^*_{s-1}(x) - y^*_s(x)|^p. $$

Equations (5) and (6), Section 1.2; without a follower all but P are zero. The variations are

$$ V = \sum_{s=2}^t \sup_{x \in X} |\phi_{s-1}(x) - \phi_s(x)|, \qquad
   G = \sum_{s=2}^t \sup_{x \in X} |\nabla \phi_{s-1}(x) - \nabla \phi_s(x)|^2, \qquad
   F = \sum_{s=1}^t \phi_s(x^*_s). $$
"""

import inspect
from collections.abc import Callable
from typing import Any, Unpack

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float

from .._support.checks import Arrays, Count, Positive, checked
from .._support.trees import PyTree
from ..implicit import Scalar, Vector, at_answer, compiled, norms
from ..problem import Problem
from ..window import Window
from .comparators import optima
from .results import Comparator, warn
from .setup import Search, Setup
from .supremum import SAMPLES, Objective, inner_variation, points_of, searched_supremum


class LowerEstimateWarning(UserWarning):
    """Warning that a supremum is a lower estimate from a search: a bound that uses it may be too
    small."""


class PathLengths(eqx.Module):
    """Cumulative path lengths of one order.

    `P`, `Y`, `S`, `Y_bar`, `H` have one entry for each round; `totals` are the last ones. H is
    exact if `H_exact`, otherwise a lower estimate, and `None` if it was not asked for.
    `comparators` and `static` are the solutions measured, for use elsewhere.
    """

    P: Float[Array, " T"]
    Y: Float[Array, " T"]
    S: Float[Array, " T"]
    Y_bar: Float[Array, " T"]
    H: Float[Array, " T"] | None
    comparators: Comparator
    static: Comparator
    order: float = eqx.field(static=True)
    H_exact: bool = eqx.field(static=True)

    @property
    def totals(self) -> dict[str, float]:
        """Path lengths of the whole horizon by name."""
        named = {"P": self.P, "Y": self.Y, "S": self.S, "Y_bar": self.Y_bar, "H": self.H}
        return {name: float(curve[-1]) for name, curve in named.items() if curve is not None}


@checked
def path_lengths(
    problem: Problem,
    rounds: Arrays,
    order: float = 2,
    *,
    with_H: bool = True,
    samples: Count = SAMPLES,
    comparators: Comparator | None = None,
    static: Comparator | None = None,
    **search: Unpack[Search],
) -> PathLengths:
    """Return P, Y, S, Y_bar and H of order p.

    H has a supremum over the domain X. It is exact (`H_exact`) where every y*_t is *proved* affine
    in x and either all of them have the same slope or X is a simplex, a box with at most 4096
    corners, or an unbounded set (then it may be infinite); otherwise X is searched at `samples`
    random points, and H is a lower estimate. `with_H=False` leaves it out.

    `comparators` and `static` take what `outer_solutions` and `static_solution` returned, if that
    is known already; other arguments as for `outer_solutions`.

    >>> problem = Problem(
    ...     outer=lambda x, y, r: (y - 2 * r) ** 2 + (x - r) ** 2,
    ...     inner=lambda x, y, r: (y - x - r) ** 2,
    ... )
    >>> start = jnp.zeros(())
    >>> targets = jnp.array([1.0, 3.0, 2.0])
    >>> lengths = path_lengths(problem, targets, order=1, outer_start=start, inner_start=start)
    >>> print(lengths.P, lengths.Y, lengths.H, lengths.H_exact)
    [0. 2. 3.] [0. 4. 6.] [0. 2. 3.] True
    """
    if isinstance(order, bool) or not isinstance(order, int | float) or not 1 <= order < jnp.inf:
        raise ValueError(f"order must be a number >= 1, such as 1 or 2, but got {order!r}.")
    setup, _ = Setup.of(problem, rounds, **search)
    return _lengths(setup, order, with_H, samples, *optima(setup, comparators, static))


def _lengths(
    setup: Setup,
    order: float,
    with_H: bool,
    samples: int,
    comparators: Comparator,
    static: Comparator,
) -> PathLengths:
    H, exact = None, False
    if with_H:
        change, exact = inner_variation(setup, comparators, samples)
        H = _running(change, order)
    P = path_of(comparators.outer_var, order)
    Y, Y_bar = jnp.zeros_like(P), jnp.zeros_like(P)
    if setup.problem.inner is not None:
        Y, Y_bar = path_of(comparators.inner_var, order), path_of(static.inner_var, order)
    return PathLengths(P, Y, P + Y, Y_bar, H, comparators, static, order, exact)


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


@checked
def variations(
    problem: Problem,
    rounds: Arrays,
    *,
    samples: Count = SAMPLES,
    comparators: Comparator | None = None,
    static: Comparator | None = None,
    **search: Unpack[Search],
) -> Variations:
    """Return V_T, G_T, F_T and the squared gradients at the optima.

    Arguments as for `path_lengths`. The suprema in V and G are searched at `samples` random points
    of X and refined from there: lower estimates, the same on every call.

    >>> problem = Problem(lambda x, y, r: 0.5 * (x - r) ** 2, outer_argmin=lambda r: r)
    >>> found = variations(problem, jnp.array([0.0, 1.0, 3.0]))
    >>> print(jnp.round(found.G, 3), found.F)    # the gradients differ by 1 and by 2, wherever x is
    [0. 1. 5.] [0. 0. 0.]
    """
    setup, _ = Setup.of(problem, rounds, **search)
    comparators, static = optima(setup, comparators, static)
    values, slopes = _searched_changes(setup, points_of(comparators), samples)
    return Variations(
        V=values,
        G=slopes,
        F=losses_so_far(setup, comparators),
        F_static=losses_so_far(setup, static),
        squared_gradients=_squared_gradients(setup, comparators.outer_var),
        comparators=comparators,
        static=static,
    )


@checked
def bound_arguments(
    bound: Callable[..., Any],
    problem: Problem,
    rounds: Arrays,
    *,
    window: Window | None = None,
    samples: Count = SAMPLES,
    **search: Unpack[Search],
) -> dict[str, Any]:
    """Measure what a bound of `obax.theory` takes by keyword: only what its signature names.

    Knows `T`, `W` (from `window`), `squared_gradients`, and `P_p`, `Y_p`, `S_p`, `Y_bar_p`, `H_p`
    for p = 1, 2. The values are curves over t = 1..T, so that the bound is one, too. Warns
    (`LowerEstimateWarning`) where H is a lower estimate: such a bound certifies nothing.

    >>> problem = Problem(lambda x, y, r: 0.5 * (x - r) ** 2, outer_argmin=lambda r: r)
    >>> def bound(*, T, P_1, P_2): ...
    >>> measured = bound_arguments(bound, problem, jnp.array([0.0, 1.0, 3.0]))
    >>> print(measured["T"], measured["P_1"], measured["P_2"])
    [1 2 3] [0. 1. 3.] [0. 1. 5.]
    """
    parameters = inspect.signature(bound).parameters.values()
    names = [one.name for one in parameters if one.name != "self" and one.default is one.empty]
    setup, _ = Setup.of(problem, rounds, **search)
    comparators, static = optima(setup, None, None)
    known: dict[str, Any] = {"T": jnp.arange(1, setup.horizon + 1)}
    if window is not None:
        known["W"] = jnp.sum(window.weights)
    for order in (1, 2):
        lengths = _lengths(setup, order, False, samples, comparators, static)
        for name in ("P", "Y", "S", "Y_bar"):
            known[f"{name}_{order}"] = getattr(lengths, name)
    if any(name.startswith("H_") for name in names):
        change, exact = inner_variation(setup, comparators, samples)
        known["H_1"], known["H_2"] = _running(change, 1), _running(change, 2)
        if not exact:
            warn(
                "H_1 and H_2 are lower estimates from a search over the domain: the bound may come "
                "out too small and certifies nothing.",
                LowerEstimateWarning,
            )
    if "squared_gradients" in names:
        known["squared_gradients"] = _squared_gradients(setup, comparators.outer_var)
    missing = [name for name in names if name not in known]
    if missing:
        hint = "; pass window= for W" if "W" in missing else ""
        raise ValueError(
            f"bound must take only what can be measured here ({', '.join(known)}), but it also "
            f"takes {', '.join(missing)}{hint}."
        )
    return {name: known[name] for name in names}


def losses_so_far(setup: Setup, pairs: Comparator) -> Float[Array, " T"]:
    """Return the running sum of f_t at the pairs of all rounds."""
    return _losses_so_far(setup.problem, setup.rounds, *pairs.of_rounds(setup.horizon))


@compiled
def _losses_so_far(problem: Problem, rounds: PyTree, xs: PyTree, ys: PyTree) -> Array:
    return jnp.cumsum(jax.vmap(problem.outer)(xs, ys, rounds))


@compiled
def _searched_changes(setup: Setup, around: Array, samples: int) -> tuple[Array, Array]:
    flat = setup.flat()

    def value_change(x: Vector, before: PyTree, now: PyTree) -> Scalar:
        return jnp.abs(at_answer(flat, x, before).value() - at_answer(flat, x, now).value())

    def slope_change(x: Vector, before: PyTree, now: PyTree) -> Scalar:
        turn = at_answer(flat, x, before).gradient() - at_answer(flat, x, now).gradient()
        return jnp.vdot(turn, turn)

    def found(objective: Objective) -> Array:
        if setup.horizon == 1:
            return jnp.zeros(1, flat.dtype)
        return _running(searched_supremum(flat, objective, setup.rounds, around, samples), 1)

    return found(value_change), found(slope_change)


@compiled
def _squared_gradients(setup: Setup, outer_vars: PyTree) -> Array:
    flat = setup.flat()

    def square(round: PyTree, x: PyTree) -> Scalar:
        slope = at_answer(flat, ravel_pytree(x)[0], round).gradient()
        return jnp.vdot(slope, slope)

    return jnp.cumsum(flat.map_rounds(square, setup.rounds, outer_vars))


@checked
def path_of(points: Arrays, order: Positive = 2) -> Float[Array, " T"]:
    """Return the length of a path through points that are stacked on axis 0, up to each of them:
    the sum of |z_{s-1} - z_s|^p.

    >>> print(path_of(jnp.array([0.0, 1.0, 3.0])))
    [0. 1. 5.]
    """
    return _path_of(points, order)


@compiled
def _path_of(points: PyTree, order: float) -> Float[Array, " T"]:
    steps = jax.tree.map(lambda leaf: leaf[1:] - leaf[:-1], points)
    return _running(norms(steps), order)


def _running(steps: Float[Array, " T-1"], order: float) -> Float[Array, " T"]:
    return jnp.cumsum(jnp.concatenate([jnp.zeros(1, steps.dtype), steps**order]))
