"""Eager checks of what a person passes to this room, and the shapes that follow from it."""

from collections.abc import Sequence
from typing import NamedTuple, TypedDict

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from .._support import trees, validation
from .._support.trees import PyTree
from ..domain import Domain
from ..problem import Problem
from ..reduced import Flat, Solver, compiled, length_of


class Search(TypedDict, total=False):
    """Keywords of all that searches for a comparator: where x and y start, by default at zero
    (projected onto the domain), and how to search. They are explained at `dynamic`."""

    outer_start: PyTree
    inner_start: PyTree
    solver: Solver | None


class Setup(NamedTuple):
    """What every compiled part takes: rounds as arrays, where x and y start, how to search."""

    problem: Problem
    rounds: PyTree
    horizon: int
    outer_start: PyTree
    inner_start: PyTree
    solver: Solver

    def flat(self) -> Flat:
        """The problem over vectors."""
        return Flat(self.problem, self.outer_start, self.inner_start, self.solver)


def decisions_of(outer_vars: PyTree) -> PyTree:
    """The decisions, also of a history (or of anything else that has an `outer_var`)."""
    return getattr(outer_vars, "outer_var", outer_vars)


def first_of(stacked: PyTree) -> PyTree:
    """The first entry of a stacked tree."""
    return jax.tree.map(lambda leaf: leaf[0], stacked)


def follower_of(outer_vars: PyTree, inner_start: PyTree) -> PyTree:
    """A y for the numerical follower: `inner_start`, or the `inner_var` of a state given in its
    place, or zeros of the shape that a history given as the decisions knows of."""
    if inner_start is not None:
        return getattr(inner_start, "inner_var", inner_start)
    spec = getattr(outer_vars, "follower", None)
    return None if spec is None else _zeros(spec.example())


def completed(
    outer_vars: PyTree,
    *,
    outer_start: PyTree = None,
    inner_start: PyTree = None,
    solver: Solver | None = None,
) -> Search:
    """Where searches start that know the decisions (or a history), where that is not given."""
    if outer_start is None and outer_vars is not None:
        outer_start = jax.tree.map(jnp.zeros_like, first_of(_decisions(outer_vars)[0]))
    inner_start = follower_of(outer_vars, inner_start)
    return Search(outer_start=outer_start, inner_start=inner_start, solver=solver)


def setup(
    problem: Problem,
    rounds: PyTree,
    *,
    outer_start: PyTree = None,
    inner_start: PyTree = None,
    solver: Solver | None = None,
) -> Setup:
    """Check that problem, rounds and starting points fit together; fill in what is not given."""
    if not isinstance(problem, Problem):
        raise ValueError(f"problem must be an obax.Problem, but got {problem!r}.")
    if problem.has_buffers:
        raise ValueError(
            "problem must not have has_buffers=True: buffers, such as running statistics, depend "
            "on the way the follower went, so y*_t(x) and with it the regret are not defined by "
            "the losses alone. State the losses with the buffers frozen, as a Problem without them."
        )
    rounds, horizon = stacked(rounds, "rounds")
    example = first_of(rounds)
    if outer_start is not None:
        outer_start = validation.variable(outer_start, "outer_start")
    elif problem.outer_argmin is not None:
        outer_start = _zeros(jax.eval_shape(problem.outer_argmin, example))
    else:
        raise ValueError(
            "outer_start must be given: the problem has no outer_argmin, so the shape of x is not "
            "known. Pass a point x; the numerical search begins there."
        )
    inner_start = _inner(problem, example, outer_start, inner_start)
    return Setup(problem, rounds, horizon, outer_start, inner_start, solver or Solver())


def _inner(problem: Problem, example: PyTree, outer_start: PyTree, inner_start: PyTree) -> PyTree:
    if problem.inner is None:
        if inner_start is not None:
            raise ValueError("inner_start must be None: the problem has no follower.")
        problem.check(outer_start, None, example)
        return None
    if inner_start is not None:
        inner_start = validation.variable(inner_start, "inner_start")
    elif problem.inner_start is not None:
        inner_start = _zeros(jax.eval_shape(problem.inner_start, outer_start))
    elif problem.inner_argmin is not None:
        inner_start = _zeros(jax.eval_shape(problem.inner_argmin, outer_start, example))
    else:
        raise ValueError(
            "inner_start must be given: the problem has neither inner_argmin nor inner_start, so "
            "the shape of y is not known. Pass a point y (the numerical search begins there) or an "
            "algorithm's state as inner_start=, or the whole history of a run in place of its "
            "decisions, as in regret.dynamic(problem, history, rounds)."
        )
    problem.check(outer_start, inner_start, example)
    return inner_start


def stacked(tree: PyTree, name: str) -> tuple[PyTree, int]:
    """A tree of arrays that all have one leading axis, and its length."""
    arrays = jax.tree.map(jnp.asarray, tree)
    leaves = jax.tree_util.tree_leaves_with_path(arrays)
    if not leaves:
        raise ValueError(f"{name} must have at least one array leaf, but got {tree!r}.")
    for path, leaf in leaves:
        if leaf.ndim == 0:
            raise ValueError(
                f"{trees.leaf_name(path, name)} must be stacked on axis 0, but is a scalar."
            )
    lengths = sorted({leaf.shape[0] for _, leaf in leaves})
    if len(lengths) > 1 or lengths == [0]:
        raise ValueError(
            f"{name} must be stacked on axis 0 with one length >= 1, but the leaves have lengths "
            f"{lengths}."
        )
    return arrays, lengths[0]


def decisions(problem: Problem, outer_vars: PyTree, rounds: PyTree) -> PyTree:
    """Decisions x_1..x_T: as many as there are rounds, and all in the domain."""
    variables, length = _decisions(outer_vars)
    if length != (horizon := stacked(rounds, "rounds")[1]):
        raise ValueError(
            f"outer_vars and rounds must have one length, but there are {length} decisions and "
            f"{horizon} rounds."
        )
    problem.domain.check_matches(first_of(variables))
    inside = _inside(problem.domain, variables)
    if trees.is_concrete(inside) and not np.all(inside):
        first = int(np.argmin(inside))
        point = jax.tree.map(lambda leaf: leaf[first], variables)
        raise ValueError(
            f"outer_vars must lie in the domain {problem.domain}, but the decision of round "
            f"{first + 1} does not: {point}. {int(np.sum(~np.asarray(inside)))} of {length} "
            "decisions are outside."
        )
    return variables


def _decisions(outer_vars: PyTree) -> tuple[PyTree, int]:
    return stacked(validation.variable(decisions_of(outer_vars), "outer_vars"), "outer_vars")


@compiled
def _inside(domain: Domain, variables: PyTree) -> Array:
    return jax.vmap(domain.contains)(variables)


def losses(values: PyTree, horizon: int) -> Array:
    """Losses as suffered, one for each round; also those of a history."""
    array = jnp.asarray(getattr(values, "played_value", values))
    if not trees.is_float(array) or array.shape != (horizon,):
        raise ValueError(
            f"losses must be {horizon} floating-point numbers, one for each round, but got "
            f"{array.dtype}{list(array.shape)}."
        )
    return array


def stage_lengths(stages: int | Sequence[int], horizon: int) -> tuple[int, ...]:
    """The lengths of the stages: S equal ones (the last takes the remainder), or as given."""
    if isinstance(stages, int | np.integer):
        count = validation.count(stages, "stages")
        if count > horizon:
            raise ValueError(f"stages must be at most T = {horizon}, but got {count}.")
        return (horizon // count,) * (count - 1) + (horizon - (count - 1) * (horizon // count),)
    lengths = tuple(validation.count(length, "stages[...]") for length in stages)
    if sum(lengths) != horizon:
        raise ValueError(
            f"stages must cover every round once: their lengths must sum to T = {horizon}, but sum "
            f"to {sum(lengths)}."
        )
    return lengths


def power(order: float) -> float:
    """The order p of a path length."""
    if isinstance(order, bool) or not isinstance(order, int | float) or not 1 <= order < np.inf:
        raise ValueError(f"order must be a number >= 1, such as 1 or 2, but got {order!r}.")
    return order


def _zeros(shapes: PyTree) -> PyTree:
    return jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)


def some(stacked: PyTree, most: int) -> PyTree:
    """At most so many entries of a stacked tree, spread over its length."""
    length = length_of(stacked)
    index = np.linspace(0, length - 1, min(most, length)).astype(int)
    return jax.tree.map(lambda leaf: leaf[index], stacked)
