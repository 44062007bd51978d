"""Arguments of the regrets, checked once where they enter, and the shapes that follow from them."""

from collections.abc import Sequence
from typing import Annotated, Any, NamedTuple, TypedDict

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array

from .._support import compiling, trees
from .._support.checks import Arrays, Count, Kind, check, is_numeric
from .._support.trees import PyTree, as_variable
from ..implicit import FlatProblem, Solver, length_of
from ..problem import Problem

DEFAULT = Solver()
LOSSES = Annotated[Any, Kind("numbers, one for each round, or a history", is_numeric)]
STAGES = Annotated[Any, Kind("a number of stages or a sequence of their lengths", np.iterable)]


class Search(TypedDict, total=False):
    """Keywords of every search for a comparator: the points at which x and y start, by default
    zero (projected onto the domain), and the settings. They are explained at `dynamic`."""

    outer_start: PyTree
    inner_start: PyTree
    solver: Solver | None


class Setup(NamedTuple):
    """Arguments of every compiled part: rounds as arrays, starting points, settings."""

    problem: Problem
    rounds: PyTree
    outer_start: PyTree
    inner_start: PyTree
    solver: Solver

    @classmethod
    def of(
        cls,
        problem: Problem,
        rounds: PyTree,
        outer_vars: PyTree = None,
        *,
        outer_start: PyTree = None,
        inner_start: PyTree = None,
        solver: Solver | None = None,
    ) -> tuple["Setup", PyTree]:
        """Return the setup, and the decisions x_1..x_T where decisions or a history are given.

        Structures and shapes are checked when a program is traced for them, values on every call.
        """
        solver = check(solver, "solver", Solver | None) or DEFAULT
        x, inner_start = decisions_of(outer_vars), follower_of(outer_vars, inner_start)
        # What a module holds beside its arrays must not be traced.
        variables = trees.hold_static((x, outer_start, inner_start))
        trees_of, finite, inside = _prepared(problem, rounds, *variables)
        rounds, x, outer_start, inner_start = trees_of
        if trees.is_concrete((finite, inside)):
            for name in (name for name, good in finite.items() if not good):
                raise ValueError(f"{name} must be finite, but holds NaN or Inf.")
            if not np.all(inside):
                first = int(np.argmin(inside))
                raise ValueError(
                    f"outer_vars must lie in the domain {problem.domain}, but the decision of "
                    f"round {first + 1} does not: {entry(x, first)}. "
                    f"{int(np.sum(~np.asarray(inside)))} of {inside.size} decisions are outside."
                )
        return cls(problem, rounds, outer_start, inner_start, solver), x

    @property
    def horizon(self) -> int:
        """Number of rounds, T."""
        return length_of(self.rounds)

    def flat(self) -> FlatProblem:
        """Return the problem over vectors."""
        return FlatProblem(self.problem, self.outer_start, self.inner_start, self.solver)

    def starts(self, points: PyTree, count: int) -> PyTree:
        """Return `points` to evaluate in a search, stacked. Without any, `outer_start` is repeated
        `count` times, which is how many a regret gives: one compilation serves both."""
        if points is None:
            return jax.tree.map(
                lambda leaf: jnp.broadcast_to(leaf, (count, *leaf.shape)), self.outer_start
            )
        points, _ = stacked(as_variable(points, "starts"), "starts")
        trees.check_same_structure(entry(points, 0), self.outer_start, "starts[0]", "outer_start")
        return points


@compiling.compiled
def _prepared(
    problem: Problem, rounds: PyTree, x: PyTree, outer_start: PyTree, inner_start: PyTree
) -> tuple[tuple, dict[str, Array], Array]:
    """Check that problem, rounds, decisions and starting points fit together, and fill in defaults.

    Return them; which of them are finite; and which decisions are in the domain.
    """
    if not isinstance(problem, Problem):
        raise ValueError(f"problem must be an obax.Problem, but got {problem!r}.")
    if problem.has_buffers:
        raise ValueError(
            "problem must not have has_buffers=True: buffers, such as running statistics, depend "
            "on the way the follower went, so y*_t(x) and with it the regret are not defined by "
            "the losses alone. State the losses with the buffers frozen, as a Problem without them."
        )
    rounds, horizon = stacked(check(rounds, "rounds", Arrays), "rounds")
    example, inside = entry(rounds, 0), jnp.ones(0, bool)
    if x is not None:
        x, length = stacked(as_variable(x, "outer_vars"), "outer_vars")
        if length != horizon:
            raise ValueError(
                f"outer_vars and rounds must have one length, but there are {length} decisions and "
                f"{horizon} rounds."
            )
        problem.domain.check_matches(entry(x, 0))
        inside = jax.vmap(problem.domain.contains)(x)
    if outer_start is not None:
        outer_start = as_variable(outer_start, "outer_start")
    elif x is not None:
        outer_start = jax.tree.map(jnp.zeros_like, entry(x, 0))
    elif problem.outer_argmin is not None:
        outer_start = _zeros(jax.eval_shape(problem.outer_argmin, example))
    else:
        raise ValueError(
            "outer_start must be given: the problem has no outer_argmin, so the shape of x is not "
            "known. Pass a point x; the numerical search begins there."
        )
    if problem.inner is None and inner_start is not None:
        raise ValueError("inner_start must be None: the problem has no follower.")
    if problem.inner is not None:
        inner_start = _inner_start(problem, example, outer_start, inner_start)
    problem.check(outer_start, inner_start, example)
    named = {"outer_vars": x, "outer_start": outer_start, "inner_start": inner_start}
    finite = {name: trees.all_finite(tree) for name, tree in named.items()}
    return (rounds, x, outer_start, inner_start), finite, inside


def decisions_of(outer_vars: PyTree) -> PyTree:
    """Return the decisions, also those of a history (or of another object with an `outer_var`)."""
    return getattr(outer_vars, "outer_var", outer_vars)


def follower_of(outer_vars: PyTree, inner_start: PyTree) -> PyTree:
    """Return a y for the numerical follower: `inner_start`, or the `inner_var` of a state given in
    its place, or zeros of the shape that a history given as the decisions has recorded."""
    if inner_start is not None:
        return getattr(inner_start, "inner_var", inner_start)
    spec = getattr(outer_vars, "follower", None)
    return None if spec is None else _zeros(spec.example())


def _inner_start(
    problem: Problem, example: PyTree, outer_start: PyTree, inner_start: PyTree
) -> PyTree:
    if inner_start is not None:
        return as_variable(inner_start, "inner_start")
    if problem.inner_start is not None:
        return _zeros(jax.eval_shape(problem.inner_start, outer_start))
    if problem.inner_argmin is not None:
        return _zeros(jax.eval_shape(problem.inner_argmin, outer_start, example))
    raise ValueError(
        "inner_start must be given: the problem has neither inner_argmin nor inner_start, so "
        "the shape of y is not known. Pass a point y (the numerical search begins there) or an "
        "algorithm's state as inner_start=, or the whole history of a run in place of its "
        "decisions, as in regret.dynamic(problem, history, rounds)."
    )


def stacked(tree: PyTree, name: str) -> tuple[PyTree, int]:
    """Return a tree of arrays that all have one leading axis, and its length."""
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


def entry(stacked: PyTree, index: int) -> PyTree:
    """Return one entry of a stacked tree."""
    return jax.tree.map(lambda leaf: leaf[index], stacked)


def some(stacked: PyTree, most: int) -> PyTree:
    """Return at most so many entries of a stacked tree, spread over its length."""
    length = length_of(stacked)
    index = np.linspace(0, length - 1, min(most, length)).astype(int)
    return jax.tree.map(lambda leaf: leaf[index], stacked)


def as_vectors(stacked: PyTree) -> Array:
    """Return a tree that is stacked on axis 0 as a matrix."""
    return jax.vmap(lambda tree: ravel_pytree(tree)[0])(stacked)


def losses_of(values: PyTree, horizon: int) -> Array:
    """Return the losses as suffered, one for each round, also those of a history."""
    array = jnp.asarray(check(getattr(values, "played_value", values), "losses", LOSSES))
    if not trees.is_float(array) or array.shape != (horizon,):
        raise ValueError(
            f"losses must be {horizon} floating-point numbers, one for each round, but got "
            f"{array.dtype}{list(array.shape)}."
        )
    return array


def stage_lengths(stages: int | Sequence[int], horizon: int) -> tuple[int, ...]:
    """Return the lengths of the stages: those given, or of so many equal ones, of which the last
    takes the remainder."""
    if isinstance(stages, int | np.integer):
        count = check(stages, "stages", Count)
        if count > horizon:
            raise ValueError(f"stages must be at most T = {horizon}, but got {count}.")
        return (horizon // count,) * (count - 1) + (horizon - (count - 1) * (horizon // count),)
    lengths = tuple(
        check(length, "stages[...]", Count) for length in check(stages, "stages", STAGES)
    )
    if sum(lengths) != horizon:
        raise ValueError(
            f"stages must cover every round once: their lengths must sum to T = {horizon}, but sum "
            f"to {sum(lengths)}."
        )
    return lengths


def _zeros(shapes: PyTree) -> PyTree:
    return jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)
