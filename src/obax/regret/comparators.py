r"""Comparators of a regret: the best decisions in hindsight.

| name | leader | follower |
|---|---|---|
| `inner_solution` | given | $y^*_t(x) = \arg\min_y g_t(x, y)$ |
| `outer_solutions` | $x^*_t = \arg\min_{x \in X} f_t(x, y^*_t(x))$ | $y^*_t(x^*_t)$ |
| `static_solution` | $x^* = \arg\min_{x \in X} \sum_t f_t(x, y^*_t(x))$ | $y^*_t(x^*)$ |
| `stage_solutions` | $x^*_s = \arg\min_{x \in X} \sum_{t \in s} f_t(x, y^*_s(x))$ | $y^*_s(x) = \arg\min_y \sum_{t \in s} g_t(x, y)$ |

Closed forms of the problem are used, and their residuals measured. Otherwise the follower is found
by damped Newton and the leader by projected Newton on its domain, from several starts:
`outer_start`, the `starts` that are given, and points of the domain (`Solver.starts`). Around the
point that it reaches a search evaluates phi again, and continues from anything lower. That is
evidence, not proof: the global minimum of a loss that is not convex can be missed.
"""  # noqa: E501

from collections.abc import Sequence
from typing import Unpack

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array

from .. import implicit
from .._support.checks import check as check_argument
from .._support.trees import PyTree
from ..implicit import Convexity, FlatProblem, Pair, Solver, answer, compiled
from ..problem import Problem
from .results import Comparator, check
from .setup import Search, Setup, as_vectors, decisions_of, follower_of, some, stage_lengths

# Number of decisions that a search over many rounds evaluates besides its own points.
MOST_STARTS = 8
# Number of rounds in which the convexity of the follower's loss is tested.
CONVEXITY_ROUNDS = 16


def inner_solution(
    problem: Problem,
    outer_vars: PyTree,
    rounds: PyTree,
    *,
    stacked: bool = True,
    inner_start: PyTree = None,
    solver: Solver | None = None,
) -> Comparator:
    """Return y*_t(x_t) for every round; with `stacked=False`, y*_t(x) for one x.

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
    settings = {"inner_start": inner_start, "solver": solver}
    if check_argument(stacked, "stacked", bool):
        return answers(*Setup.of(problem, rounds, outer_vars, **settings))
    settings["inner_start"] = follower_of(outer_vars, inner_start)
    setup, _ = Setup.of(problem, rounds, outer_start=decisions_of(outer_vars), **settings)
    return answers(setup, setup.outer_start, stacked=False)


def outer_solutions(
    problem: Problem, rounds: PyTree, *, starts: PyTree = None, **search: Unpack[Search]
) -> Comparator:
    """Return (x*_t, y*_t(x*_t)) for every round, all rounds in one vmapped call.

    `outer_start` and `inner_start` are where the numerical searches start (default: zeros,
    projected onto the domain); they are needed where no closed form gives the shapes. `starts` has
    one more point for each round, such as the decision that was played: the comparator is never
    worse. `Solver(starts=...)` sets the number of points of the domain that are evaluated besides.

    >>> problem = Problem(lambda x, y, r: (y - r) ** 2, lambda x, y, r: (y - 2 * x) ** 2)
    >>> start = jnp.zeros(())
    >>> found = outer_solutions(
    ...     problem, jnp.array([1.0, 4.0]), outer_start=start, inner_start=start
    ... )
    >>> print(found.outer_var, found.inner_var)
    [0.5 2. ] [1. 4.]
    """
    setup, _ = Setup.of(problem, rounds, **search)
    points = setup.starts(starts, setup.horizon)
    if (count := implicit.length_of(points)) != setup.horizon:
        raise ValueError(
            f"starts must be {setup.horizon} points, one for each round, but are {count}."
        )
    return best_of_rounds(setup, points)


def static_solution(
    problem: Problem, rounds: PyTree, *, starts: PyTree = None, **search: Unpack[Search]
) -> Comparator:
    """Return x* of the whole horizon with every round's own answer y*_t(x*).

    Arguments as for `outer_solutions`, but `starts` are any number of points.

    >>> problem = Problem(lambda x, y, r: (y - r) ** 2, lambda x, y, r: (y - 2 * x) ** 2)
    >>> start = jnp.zeros(())
    >>> found = static_solution(
    ...     problem, jnp.array([1.0, 4.0]), outer_start=start, inner_start=start
    ... )
    >>> print(found.outer_var, found.inner_var)
    1.25 [2.5 2.5]
    """
    setup, _ = Setup.of(problem, rounds, **search)
    return best_fixed(setup, setup.starts(starts, min(MOST_STARTS, setup.horizon)))


def stage_solutions(
    problem: Problem,
    rounds: PyTree,
    stages: int | Sequence[int],
    *,
    starts: PyTree = None,
    **search: Unpack[Search],
) -> Comparator:
    """Return one pair (x_s*, y_s*(x_s*)) for each stage, from its summed f *and* summed g.

    `stages` is their number, for stages of equal length (the last takes the remainder), or the
    sequence of their lengths. `starts` are any number of points, evaluated in every stage; other
    arguments as for `outer_solutions`. One compilation serves all streams of one shape.

    >>> problem = Problem(lambda x, y, r: (y - r) ** 2, lambda x, y, r: (y - 2 * x) ** 2)
    >>> start = jnp.zeros(())
    >>> found = stage_solutions(
    ...     problem, jnp.array([1.0, 3.0, 8.0]), [2, 1], outer_start=start, inner_start=start
    ... )
    >>> print(found.outer_var, found.inner_var, found.stage)
    [1. 4.] [2. 8.] [0 0 1]
    """
    setup, _ = Setup.of(problem, rounds, **search)
    return best_of_stages(setup, stages, setup.starts(starts, min(MOST_STARTS, setup.horizon)))


def answers(setup: Setup, x: PyTree, stacked: bool = True) -> Comparator:
    """Return y*_t of the decisions x_t, or of one x, with the residuals."""
    y, residual, convexity = _search_answers(setup, x, stacked)
    none = jnp.zeros((0,), residual.dtype)
    return _comparator("given", setup, Pair(x, y, none, residual, none), convexity)


def best_of_rounds(setup: Setup, starts: PyTree) -> Comparator:
    """Return the pairs of all rounds; `starts` has one more point for each round."""
    return _comparator("rounds", setup, *_search_rounds(setup, starts))


def best_fixed(setup: Setup, starts: PyTree) -> Comparator:
    """Return the one x* of the horizon, with the answers of all rounds."""
    return _comparator("static", setup, *_search_static(setup, starts))


def best_of_stages(setup: Setup, stages: int | Sequence[int], starts: PyTree) -> Comparator:
    """Return the pairs of all stages."""
    lengths = np.asarray(stage_lengths(stages, setup.horizon))
    firsts = np.concatenate([[0], np.cumsum(lengths)[:-1]])
    bounds = jnp.asarray(firsts), jnp.asarray(lengths)
    pairs = _search_stages(setup, starts, bounds, int(lengths.max()))
    stage = jnp.asarray(np.repeat(np.arange(len(lengths)), lengths))
    return _comparator("stages", setup, pairs, None, stage)


def optima(
    setup: Setup, comparators: Comparator | None, static: Comparator | None
) -> tuple[Comparator, Comparator]:
    """Return the optima of the rounds and of the horizon, solving for those not given."""
    if comparators is None:
        comparators = best_of_rounds(setup, setup.starts(None, setup.horizon))
    if static is None:
        static = best_fixed(setup, setup.starts(None, min(MOST_STARTS, setup.horizon)))
    for name, given, kind in (("comparators", comparators, "rounds"), ("static", static, "static")):
        if given.kind != kind or given.horizon != setup.horizon:
            raise ValueError(
                f"{name} must be of kind {kind!r} for {setup.horizon} rounds, but is of kind "
                f"{given.kind!r} for {given.horizon}."
            )
    return comparators, static


def _comparator(
    kind: str,
    setup: Setup,
    pairs: Pair,
    convexity: Convexity | None,
    stage: Array | None = None,
) -> Comparator:
    comparator = Comparator(
        outer_var=pairs.x,
        inner_var=pairs.y,
        residual=None if kind == "given" else pairs.residual,
        inner_residual=pairs.inner_residual,
        curvature=None if kind == "given" else pairs.curvature,
        stage=stage,
        beaten=None,
        descents=pairs.descents,
        agreeing=pairs.agreeing,
        resolved=pairs.resolved,
        above=pairs.above,
        convexity=convexity,
        kind=kind,
        tolerance=setup.solver.tolerance_for(jax.tree.leaves(pairs.x)[0].dtype),
        closed_form=kind == "rounds" and setup.problem.outer_argmin is not None,
        inner_closed_form=kind != "stages" and setup.problem.inner_argmin is not None,
    )
    return check(comparator)


def _convexity_at(
    flat: FlatProblem, setup: Setup, x: PyTree, y: PyTree, stacked: bool = True
) -> Convexity | None:
    """Return evidence on the convexity of g in y, from some of the rounds."""
    if not flat.has_follower or not flat.dense_inner:
        return None
    if not stacked:
        x = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (setup.horizon, *leaf.shape)), x)
    rounds, x, y = some((setup.rounds, x, y), CONVEXITY_ROUNDS)

    def measure(round: PyTree, x: Array, y: Array) -> Convexity:
        return implicit.convexity(flat, x, y.astype(flat.dtype), round)

    return flat.map_rounds(measure, rounds, as_vectors(x), as_vectors(y))


@compiled
def _search_answers(
    setup: Setup, x: PyTree, stacked: bool
) -> tuple[PyTree, Array, Convexity | None]:
    """Return y*_t of the decisions, one for each round or one for all, with the evidence."""
    flat = setup.flat()
    if stacked:
        answered = flat.map_rounds(lambda r, x: answer(flat, x, r), setup.rounds, as_vectors(x))
    else:
        point = ravel_pytree(x)[0]
        answered = flat.map_rounds(lambda r: answer(flat, point, r), setup.rounds)
    y = jax.vmap(flat.tree_y)(answered.y)
    return y, answered.residual, _convexity_at(flat, setup, x, y, stacked)


@compiled
def _search_rounds(setup: Setup, starts: PyTree) -> tuple[Pair, Convexity | None]:
    """Return the pairs of all rounds as trees."""
    flat, closed = setup.flat(), setup.problem.outer_argmin

    def best(round: PyTree, start: Array) -> Pair:
        if closed is None:
            return implicit.solve_round(flat, round, jnp.stack([flat.start, start]))
        return implicit.check_round(flat, ravel_pytree(closed(round))[0], round)

    # Room for the Hessian of phi, which the default chunk leaves for short x only.
    copies = 1 + (flat.outer_dim // 256) ** 2
    pairs = flat.map_rounds(best, setup.rounds, as_vectors(starts), copies=copies)
    pairs = _trees(flat, pairs)
    return pairs, _convexity_at(flat, setup, pairs.x, pairs.y)


@compiled
def _search_static(setup: Setup, starts: PyTree) -> tuple[Pair, Convexity | None]:
    """Return the one x, with the answers and inner residuals of all rounds."""
    flat = setup.flat()
    best = implicit.solve_static(flat, setup.rounds, as_vectors(starts))
    answered = flat.map_rounds(lambda r: answer(flat, best.x, r), setup.rounds)
    x, y = flat.unravel_x(best.x), jax.vmap(flat.tree_y)(answered.y)
    pair = best._replace(x=x, y=y, inner_residual=answered.residual)
    return pair, _convexity_at(flat, setup, x, y, stacked=False)


@compiled
def _search_stages(setup: Setup, starts: PyTree, bounds: tuple[Array, Array], longest: int) -> Pair:
    """Return the pairs of all stages as trees. `bounds` are their first rounds and lengths."""
    flat = setup.flat()
    offsets = jnp.arange(longest, dtype=bounds[0].dtype)
    points = as_vectors(starts)

    def best(stage: tuple[Array, Array]) -> Pair:
        first, length = stage
        # One shape for all stages: a shorter one repeats its last round with weight zero.
        index = first + jnp.minimum(offsets, length - 1)
        weights = (offsets < length).astype(flat.dtype) / length.astype(flat.dtype)
        rounds = jax.tree.map(lambda leaf: leaf[index], setup.rounds)
        return implicit.solve_stage(flat, rounds, weights, points)

    return _trees(flat, jax.lax.map(best, bounds))


def _trees(flat: FlatProblem, pairs: Pair) -> Pair:
    return pairs._replace(x=jax.vmap(flat.unravel_x)(pairs.x), y=jax.vmap(flat.tree_y)(pairs.y))
