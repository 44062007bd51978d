"""Checks of a problem at a round."""

from collections.abc import Iterator

import jax
import jax.numpy as jnp
import numpy as np

from .._support import trees
from .._support.checks import Arrays, checked
from .._support.trees import PyTree, as_variable
from ..hypergradient import check_hypergradient
from ..problem import Problem
from .checks import ConformanceError

Point = tuple[PyTree, PyTree, PyTree, PyTree]


@checked
def check_problem(
    problem: Problem,
    round: Arrays,
    outer_var: Arrays = None,
    inner_var: Arrays = None,
    *,
    buffers: Arrays = None,
    tolerance: float = 1e-4,
) -> None:
    """Check a problem; raise a `ConformanceError` that names the first check that fails.

    The point (x, y) is by default that of the closed forms of the problem, if it has any. Losses
    must be finite scalars, the same in a second call, and in the precision of their arguments.
    Gradients must vanish at closed forms. Projections must be in the domain. The hypergradient must
    agree with finite differences (`check_hypergradient`).

    >>> import dataclasses
    >>> problem = Problem(lambda x, y, r: (y - r) ** 2, lambda x, y, r: (y - x) ** 2)
    >>> check_problem(problem, jnp.asarray(2.0), 1.0, 1.0)
    >>> check_problem(dataclasses.replace(problem, inner_argmin=lambda x, r: x + 1), 2.0, 1.0, 1.0)
    Traceback (most recent call last):
    ...
    obax.testing.checks.ConformanceError: inner_argmin_is_right: at Problem.inner_argmin(x, round) \
the follower's gradient is 2, not 0: the formula does not minimise inner.
    """
    x, y, round, buffers = point = _point(problem, round, outer_var, inner_var, buffers)
    try:
        problem.check(x, y, round, buffers)
    except Exception as error:
        raise ConformanceError("fits_together", f"{error}") from error
    for check in (_losses, _precision, _domain, _answers):
        for name, message in check(problem, point):
            raise ConformanceError(name, message)
    result = check_hypergradient(problem, x, y, round, buffers=buffers, tolerance=tolerance)
    if not result.ok:
        raise ConformanceError("hypergradient_is_right", str(result))


def _point(problem: Problem, round: PyTree, x: PyTree, y: PyTree, buffers: PyTree) -> Point:
    trees.check_has_values(round)
    round = jax.tree.map(jnp.asarray, round)
    if x is None and problem.outer_argmin is not None:
        x = problem.outer_argmin(round)
    if x is None:
        raise ValueError(
            "outer_var must be given: the problem has no outer_argmin to take it from."
        )
    x = as_variable(x, "outer_var")
    if y is None and problem.inner is not None:
        if problem.inner_argmin is None:
            raise ValueError(
                "inner_var must be given: the problem has a follower and no inner_argmin."
            )
        y = problem.inner_argmin(x, round)
    return x, None if y is None else as_variable(y, "inner_var"), round, buffers


def _both(problem: Problem, point: Point) -> dict[str, PyTree]:
    losses = {"outer": problem.outer_loss(*point)}
    return losses if problem.inner is None else losses | {"inner": problem.inner_loss(*point)[0]}


def _losses(problem: Problem, point: Point) -> Iterator[tuple[str, str]]:
    first, again = _both(problem, point), _both(problem, point)
    try:
        compiled = jax.jit(lambda *arguments: _both(problem, arguments))(*point)
    except Exception as error:
        yield "can_be_compiled", f"under jax.jit: {type(error).__name__}: {error}"
        return
    for name, loss in first.items():
        if not np.isfinite(float(loss)):
            yield "losses_are_finite", f"{name} is {float(loss)} at a finite point."
        if float(loss) != float(again[name]):
            yield (
                "losses_are_functions",
                f"{name} is {loss}, then {again[name]}, of the same point.",
            )
        if not np.isclose(float(loss), float(compiled[name]), rtol=1e-3, atol=1e-5):
            yield (
                "losses_are_functions",
                f"{name} is {loss}, but {compiled[name]} when compiled: does it use NumPy's random "
                f"numbers, or a global that changes?",
            )


def _precision(problem: Problem, point: Point) -> Iterator[tuple[str, str]]:
    def single(tree: PyTree) -> PyTree:
        return jax.tree.map(
            lambda leaf: jnp.asarray(leaf).astype(jnp.float32) if trees.is_float(leaf) else leaf,
            tree,
        )

    if jnp.result_type(float) != jnp.float64:
        # Without double precision there is nothing to compare.
        return
    with jax.numpy_dtype_promotion("standard"):
        shapes = jax.eval_shape(lambda *arguments: _both(problem, arguments), *single(point))
    for name, loss in shapes.items():
        if loss.dtype != jnp.float32:
            yield (
                "precision_is_kept",
                f"{name} is {loss.dtype} of variables and a round in float32: an array in it has "
                f"another dtype, such as one of NumPy's, which are double; convert it.",
            )


def _domain(problem: Problem, point: Point) -> Iterator[tuple[str, str]]:
    x, domain = point[0], problem.domain
    for scale in (1.0, 10.0):
        far = jax.tree.map(lambda leaf, scale=scale: scale * (leaf + 1), x)
        once = domain.project(far)
        if not bool(domain.contains(once)):
            yield "domain_projects", f"the projection of {far} on {domain!r} is not in it: {once}."
    if problem.outer_argmin is not None:
        best = problem.outer_argmin(point[2])
        if not bool(domain.contains(best)):
            yield "outer_argmin_is_in_the_domain", f"it is {best}, outside {domain!r}."


def _answers(problem: Problem, point: Point) -> Iterator[tuple[str, str]]:
    """Check in double precision that the gradient vanishes at the closed form."""
    if problem.inner_argmin is None:
        return
    with jax.enable_x64(True):
        x, _, round, buffers = jax.tree.map(_double, point)
        y = problem.inner_argmin(x, round)
        slope = float(trees.norm(problem.inner_slope(x, y, round, buffers)[0]))
        moved = jax.tree.map(lambda leaf: leaf + 1, y)
        scale = float(trees.norm(problem.inner_slope(x, moved, round, buffers)[0]))
    if not slope <= 1e-5 * (1 + scale):
        yield (
            "inner_argmin_is_right",
            f"at Problem.inner_argmin(x, round) the follower's gradient is {slope:.3g}, not 0: the "
            f"formula does not minimise inner.",
        )


def _double(leaf: PyTree) -> PyTree:
    leaf = jnp.asarray(leaf)
    return leaf.astype(jnp.float64) if trees.is_float(leaf) else leaf
