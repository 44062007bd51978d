r"""What a leader is compared with: the best in hindsight.

| name | leader | follower |
|---|---|---|
| `inner_solution` | given | $y^*_t(x) = \arg\min_y g_t(x, y)$ |
| `outer_solutions` | $x^*_t = \arg\min_{x \in X} f_t(x, y^*_t(x))$ | $y^*_t(x^*_t)$ |
| `static_solution` | $x^* = \arg\min_{x \in X} \sum_t f_t(x, y^*_t(x))$ | $y^*_t(x^*)$ |
| `stage_solutions` | $x^*_s = \arg\min_{x \in X} \sum_{t \in s} f_t(x, y^*_s(x))$ | $y^*_s(x) = \arg\min_y \sum_{t \in s} g_t(x, y)$ |

Closed forms of the problem are taken, and measured like all else. Otherwise the follower is found by
damped Newton and the leader by projected Newton on its domain, or by first-order methods where x or y is
long (`Solver.dense_limit`), from several starts: `outer_start`, the `starts` that are given, and points of
the domain (`Solver.starts`). Where a search comes to rest it looks around, and goes on from anything that
is lower. That is evidence, not proof: of a loss that is not convex the global minimum can be missed.
"""  # noqa: E501

from collections.abc import Sequence
from typing import Unpack

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array

from .. import reduced
from .._support import validation
from .._support.trees import PyTree
from .._support.typed import typed
from ..problem import Problem
from ..reduced import Flat, Pair, Solver, answer, compiled
from . import inputs
from .inputs import Search, Setup
from .results import Comparator, warn_if_missed

# How many of the decisions that were played a search over many rounds looks at.
MOST_STARTS = 8


@typed
def inner_solution(
    problem: Problem,
    outer_vars: PyTree,
    rounds: PyTree,
    *,
    stacked: bool = True,
    inner_start: PyTree = None,
    solver: Solver | None = None,
) -> Comparator:
    """y*_t(x_t) for every round; with `stacked=False`, y*_t(x) for one x.

    `outer_vars` are decisions or a whole history. `inner_start` is where the numerical follower
    starts, a y or an algorithm's state; it is needed where neither the problem, by `inner_argmin`
    or `inner_start`, nor a history gives the shape of y.

    >>> problem = Problem(lambda x, y, r: y**2, lambda x, y, r: (y - x - r) ** 2)
    >>> found = inner_solution(
    ...     problem, jnp.array([1.0, 2.0]), jnp.array([0.5, 0.0]), inner_start=jnp.zeros(())
    ... )
    >>> print(found.inner_var, found.inner_closed_form, found.converged)
    [1.5 2. ] False True
    """
    x = inputs.decisions_of(outer_vars)
    if stacked:
        x = inputs.decisions(problem, x, rounds)
    start = inputs.first_of(x) if stacked else x
    inner_start = inputs.follower_of(outer_vars, inner_start)
    given = inputs.setup(problem, rounds, outer_start=start, inner_start=inner_start, solver=solver)
    x = x if stacked else given.outer_start
    y, inner = _search_answers(given, x, stacked)
    none = jnp.zeros((0,), inner.dtype)
    return _comparator("given", given, Pair(x, y, none, inner, none))


@typed
def outer_solutions(
    problem: Problem, rounds: PyTree, *, starts: PyTree = None, **search: Unpack[Search]
) -> Comparator:
    """(x*_t, y*_t(x*_t)) for every round, all rounds in one vmapped call.

    `outer_start` and `inner_start` are where the numerical searches start (default: zeros,
    projected onto the domain); they are needed where no closed form gives the shapes. `starts` has
    one more point for each round, such as the decision that was played: the comparator is never
    worse. `Solver(starts=...)` says at how many points of the domain it looks besides.

    >>> problem = Problem(lambda x, y, r: (y - r) ** 2, lambda x, y, r: (y - 2 * x) ** 2)
    >>> start = jnp.zeros(())
    >>> found = outer_solutions(
    ...     problem, jnp.array([1.0, 4.0]), outer_start=start, inner_start=start
    ... )
    >>> print(found.outer_var, found.inner_var)
    [0.5 2. ] [1. 4.]
    """
    given = inputs.setup(problem, rounds, **search)
    found = _search_rounds(given, _points(given, starts, given.horizon))
    return _comparator("rounds", given, found)


@typed
def static_solution(
    problem: Problem, rounds: PyTree, *, starts: PyTree = None, **search: Unpack[Search]
) -> Comparator:
    """x* of the whole horizon with every round's own answer y*_t(x*). Arguments as for
    `outer_solutions`, but that `starts` are any number of points.

    >>> problem = Problem(lambda x, y, r: (y - r) ** 2, lambda x, y, r: (y - 2 * x) ** 2)
    >>> start = jnp.zeros(())
    >>> found = static_solution(
    ...     problem, jnp.array([1.0, 4.0]), outer_start=start, inner_start=start
    ... )
    >>> print(found.outer_var, found.inner_var)
    1.25 [2.5 2.5]
    """
    given = inputs.setup(problem, rounds, **search)
    return _comparator("static", given, _search_static(given, _points(given, starts)))


@typed
def stage_solutions(
    problem: Problem,
    rounds: PyTree,
    stages: int | Sequence[int],
    *,
    starts: PyTree = None,
    **search: Unpack[Search],
) -> Comparator:
    """One pair (x_s*, y_s*(x_s*)) for each stage, from the stage's summed f *and* summed g.

    `stages` is their number, for stages of equal length (the last takes the remainder), or the
    sequence of their lengths. `starts` are any number of points, looked at in every stage; other
    arguments as for `outer_solutions`. One compilation serves all streams of one shape.

    >>> problem = Problem(lambda x, y, r: (y - r) ** 2, lambda x, y, r: (y - 2 * x) ** 2)
    >>> start = jnp.zeros(())
    >>> found = stage_solutions(
    ...     problem, jnp.array([1.0, 3.0, 8.0]), [2, 1], outer_start=start, inner_start=start
    ... )
    >>> print(found.outer_var, found.inner_var, found.stage)
    [1. 4.] [2. 8.] [0 0 1]
    """
    given = inputs.setup(problem, rounds, **search)
    lengths = np.asarray(inputs.stage_lengths(stages, given.horizon))
    firsts = np.concatenate([[0], np.cumsum(lengths)[:-1]])
    bounds = jnp.asarray(firsts), jnp.asarray(lengths)
    found = _search_stages(given, _points(given, starts), bounds, int(lengths.max()))
    stage = jnp.asarray(np.repeat(np.arange(len(lengths)), lengths))
    return _comparator("stages", given, found, stage)


def optima(
    given: Setup, comparators: Comparator | None, static: Comparator | None, search: Search
) -> tuple[Comparator, Comparator]:
    """The optima of the rounds and of the horizon, solved for where they are not given."""
    if comparators is None:
        comparators = outer_solutions(given.problem, given.rounds, **search)
    if static is None:
        static = static_solution(given.problem, given.rounds, **search)
    for name, found, kind in (("comparators", comparators, "rounds"), ("static", static, "static")):
        if found.kind != kind or found.horizon != given.horizon:
            raise ValueError(
                f"{name} must be of kind {kind!r} for {given.horizon} rounds, but is of kind "
                f"{found.kind!r} for {found.horizon}."
            )
    return comparators, static


def _points(given: Setup, starts: PyTree, count: int | None = None) -> PyTree:
    """More points to look at, stacked: `starts`, or the start again, in the number that a regret
    has them: one compilation serves both."""
    if starts is None:
        shape = (count or min(MOST_STARTS, given.horizon),)
        return jax.tree.map(
            lambda leaf: jnp.broadcast_to(leaf, shape + leaf.shape), given.outer_start
        )
    points, length = inputs.stacked(validation.variable(starts, "starts"), "starts")
    validation.same_tree(inputs.first_of(points), given.outer_start, "starts[0]", "outer_start")
    if count is not None and length != count:
        raise ValueError(f"starts must be {count} points, one for each round, but are {length}.")
    return points


def _comparator(kind: str, given: Setup, found: Pair, stage: Array | None = None) -> Comparator:
    dtype = jax.tree.leaves(found.x)[0].dtype
    comparator = Comparator(
        outer_var=found.x,
        inner_var=found.y,
        residual=None if kind == "given" else found.residual,
        inner_residual=found.inner_residual,
        curvature=None if kind == "given" else found.curvature,
        stage=stage,
        beaten=None,
        kind=kind,
        tolerance=given.solver.tolerance_for(dtype),
        closed_form=kind == "rounds" and given.problem.outer_argmin is not None,
        inner_closed_form=kind != "stages" and given.problem.inner_argmin is not None,
    )
    warn_if_missed(comparator)
    return comparator


@compiled
def _search_answers(given: Setup, outer_vars: PyTree, stacked: bool) -> tuple[PyTree, Array]:
    """y*_t of the decisions, one for each round or one for all, and the residuals."""
    flat = given.flat()
    if stacked:
        found = flat.map_rounds(
            lambda r, x: answer(flat, x, r), given.rounds, as_vectors(outer_vars)
        )
    else:
        x = ravel_pytree(outer_vars)[0]
        found = flat.map_rounds(lambda r: answer(flat, x, r), given.rounds)
    return jax.vmap(flat.tree_y)(found.y), found.residual


@compiled
def _search_rounds(given: Setup, starts: PyTree) -> Pair:
    """The pairs of all rounds as trees. `starts` has one more place to look at for each round."""
    flat = given.flat()

    def best(round: PyTree, start: Array) -> Pair:
        if given.problem.outer_argmin is None:
            return reduced.solve_round(flat, round, jnp.stack([flat.start, start]))
        return reduced.check_round(flat, ravel_pytree(given.problem.outer_argmin(round))[0], round)

    pairs = flat.map_rounds(best, given.rounds, as_vectors(starts))
    return _trees(flat, pairs)


@compiled
def _search_static(given: Setup, starts: PyTree) -> Pair:
    """The one x, with the answers and inner residuals of all rounds."""
    flat = given.flat()
    best = reduced.solve_static(flat, given.rounds, as_vectors(starts))
    found = flat.map_rounds(lambda r: answer(flat, best.x, r), given.rounds)
    return best._replace(
        x=flat.unravel_x(best.x), y=jax.vmap(flat.tree_y)(found.y), inner_residual=found.residual
    )


@compiled
def _search_stages(given: Setup, starts: PyTree, bounds: tuple[Array, Array], longest: int) -> Pair:
    """The pairs of all stages as trees. `bounds` are their first rounds and their lengths."""
    flat = given.flat()
    places = jnp.arange(longest, dtype=bounds[0].dtype)
    points = as_vectors(starts)

    def best(stage: tuple[Array, Array]) -> Pair:
        first, length = stage
        # One shape for all stages: a shorter one repeats its last round with weight zero.
        index = first + jnp.minimum(places, length - 1)
        weights = (places < length).astype(flat.dtype) / length.astype(flat.dtype)
        return reduced.solve_stage(
            flat, jax.tree.map(lambda leaf: leaf[index], given.rounds), weights, points
        )

    return _trees(flat, jax.lax.map(best, bounds))


def as_vectors(stacked: PyTree) -> Array:
    """A tree stacked on axis 0, as a matrix."""
    return jax.vmap(lambda tree: ravel_pytree(tree)[0])(stacked)


def _trees(flat: Flat, pairs: Pair) -> Pair:
    return pairs._replace(x=jax.vmap(flat.unravel_x)(pairs.x), y=jax.vmap(flat.tree_y)(pairs.y))
