"""Does the leader have any effect? What the derivatives of the losses are made of.

A leaf of x has an effect if the inner gradient grad_y g, the follower's start or the outer loss
changes with it. The derivatives are traced and not computed: JAX leaves out of them what passes
through `stop_gradient`, a comparison or a rounding. Nothing is known of numbers, such as a factor
that happens to be zero; `obax.check_hypergradient` looks at those.
"""

import warnings
from collections.abc import Callable

import equinox as eqx
import jax

from ._support import trees
from ._support.trees import PyTree
from .problem import Problem


class LeaderWarning(UserWarning):
    """The leader, or a part of it, affects neither the follower nor the outer loss."""


def warn_unreached(
    problem: Problem, outer_var: PyTree, inner_var: PyTree, round: PyTree, buffers: PyTree
) -> None:
    """Warn of each leaf of x that has no effect; shapes are all that is looked at."""
    for name in unreached(problem, outer_var, inner_var, round, buffers):
        warnings.warn(
            f"{name} reaches neither the follower (the derivative of inner in it and in y is zero) "
            f"nor outer, so that it will never move: let inner or outer depend on it; see "
            f"docs/leaders.md.",
            LeaderWarning,
            # The caller of `init`.
            stacklevel=4,
        )


def unreached(
    problem: Problem,
    outer_var: PyTree,
    inner_var: PyTree,
    round: PyTree,
    buffers: PyTree = None,
) -> list[str]:
    """Return the names of the leaves of x that have no effect.

    A network may have parts that a problem does not use: of a module only the whole is named.
    """

    def effects(x: PyTree, y: PyTree, round: PyTree, buffers: PyTree) -> PyTree:
        start = None if problem.inner_start is None else problem.inner_start(x)
        slope, _ = problem.inner_slope(x, y, round, buffers)
        return slope, start, problem.outer_loss(x, y, round, buffers)

    is_module = lambda node: isinstance(node, eqx.Module)  # noqa: E731
    flags = _changes_with(effects, outer_var, inner_var, round, buffers)
    marked = jax.tree_util.tree_leaves_with_path(flags, is_leaf=is_module)
    return [
        trees.leaf_name(path, "outer_var")
        for path, node in marked
        if not any(jax.tree.leaves(node))
    ]


def _changes_with(function: Callable[..., PyTree], x: PyTree, *rest: PyTree) -> PyTree:
    """Return for each leaf of x whether the derivative of a function in it is made of anything."""

    def derivative(dx: PyTree, x: PyTree, *rest: PyTree) -> PyTree:
        values = lambda x: eqx.filter(function(x, *rest), eqx.is_inexact_array)  # noqa: E731
        return jax.jvp(values, (x,), (dx,))[1]

    leaves, structure = jax.tree.flatten(x)
    try:
        program = jax.make_jaxpr(derivative)(x, x, *rest).jaxpr
    except (NotImplementedError, TypeError, ValueError):
        # Losses that JAX cannot differentiate twice: nothing is known.
        return jax.tree.unflatten(structure, [True] * len(leaves))
    flags = []
    for start in program.invars[: len(leaves)]:
        moving = {id(start)}
        for line in program.eqns:
            if any(id(value) in moving for value in line.invars):
                moving.update(map(id, line.outvars))
        flags.append(any(id(value) in moving for value in program.outvars))
    return jax.tree.unflatten(structure, flags)
