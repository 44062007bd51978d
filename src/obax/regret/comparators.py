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

import warnings
from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from .._support import trees, validation
from .._support.trees import PyTree
from ..problem import Problem
from ..reduced import Pair, Solver, curvature_noise
from . import inputs
from .search import search_answers, search_rounds, search_stages, search_static

# How many of the decisions that were played a search over many rounds looks at.
MOST_STARTS = 8


class ComparatorWarning(UserWarning):
    """A comparator is less accurate than asked for, or not a minimum; regrets against it are
    wrong by as much."""


class Comparator(eqx.Module):
    r"""Pairs $(x, y^*(x))$, and how exact they are.

    - `outer_var`, `inner_var`: stacked on axis 0, one for each round or stage; the `outer_var` of a
      static comparator is a single x. `inner_var` is `None` without a follower.
    - `residual`: $L |x - \Pi_X(x - \nabla \phi(x) / L)|$, and `inner_residual`: $|\nabla_y g|$,
      each relative to the scale of the loss: the size of the terms that cancel in the gradient or
      $\sqrt{L |\phi|}$. They do not change when a loss is multiplied by a number, and a residual r
      still costs about $r^2 |\phi|$. `residual` is `None` where x was given.
    - `curvature`: the least eigenvalue of $\nabla^2 \phi$ in the directions that the constraints
      leave free, relative to the largest: negative at a saddle or a maximum, 1 in a corner.
    - `beaten`: where a decision that was played is better than the comparator: `None` as long as
      there is no such round.
    - `tolerance`: what was asked for of the residuals; `reached`: the worst of them; `converged`:
      whether nothing speaks against the comparator.
    - `closed_form`: whether x came from the problem's own formula; `inner_closed_form`: y.
    - `kind`: `"given"`, `"rounds"`, `"static"` or `"stages"`; `stage`: the stage of each round.
    """

    outer_var: PyTree
    inner_var: PyTree
    residual: Float[Array, " n"] | None
    inner_residual: Float[Array, " n"]
    curvature: Float[Array, " n"] | None
    stage: Int[Array, " T"] | None
    beaten: Bool[Array, " T"] | None
    kind: str = eqx.field(static=True)
    tolerance: float = eqx.field(static=True)
    closed_form: bool = eqx.field(static=True)
    inner_closed_form: bool = eqx.field(static=True)

    @property
    def reached(self) -> Float[Array, ""]:
        """The worst residual, of leader and follower."""
        parts = [r for r in (self.residual, self.inner_residual) if r is not None]
        return jnp.max(jnp.concatenate([jnp.ravel(part) for part in parts]))

    @property
    def converged(self) -> bool:
        """Whether every residual is within the tolerance, every x has the curvature of a minimum,
        and no decision that was played is better."""
        exact = bool(self.reached <= self.tolerance)
        return exact and not bool(jnp.any(self.not_minimal)) and self.beaten is None

    @property
    def not_minimal(self) -> Bool[Array, " n"]:
        """Where the curvature is negative beyond rounding, or not a number."""
        if self.curvature is None:
            return jnp.zeros(1, bool)
        return ~(self.curvature >= -curvature_noise(self.curvature.dtype))

    @property
    def horizon(self) -> int:
        """How many rounds it belongs to."""
        return self.inner_residual.size if self.stage is None else self.stage.size

    def of_rounds(self, horizon: int) -> tuple[PyTree, PyTree]:
        """x and y, both stacked with one entry for each round."""
        x, y = self.outer_var, self.inner_var
        if self.kind == "static":
            x = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (horizon, *leaf.shape)), x)
        elif self.kind == "stages":
            x, y = jax.tree.map(lambda leaf: leaf[self.stage], (x, y))
        return x, y


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
    inner_start = inputs.follower_of(outer_vars, inner_start)
    outer_vars = inputs.decisions_of(outer_vars)
    if stacked:
        rounds, _ = inputs.stacked(rounds, "rounds")
        outer_vars = inputs.decisions(problem, outer_vars, rounds)
        given = inputs.setup(problem, rounds, None, inner_start, outer_vars, solver)
    else:
        given = inputs.setup(problem, rounds, outer_vars, inner_start, None, solver)
        outer_vars = given.outer_start
    y, inner = search_answers(given, outer_vars, stacked)
    none = jnp.zeros((0,), inner.dtype)
    return _comparator("given", given, Pair(outer_vars, y, none, inner, none))


def outer_solutions(
    problem: Problem,
    rounds: PyTree,
    *,
    starts: PyTree = None,
    outer_start: PyTree = None,
    inner_start: PyTree = None,
    solver: Solver | None = None,
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
    given = inputs.setup(problem, rounds, outer_start, inner_start, None, solver)
    points = _points(given, starts, given.horizon)
    return _comparator("rounds", given, search_rounds(given, points))


def static_solution(
    problem: Problem,
    rounds: PyTree,
    *,
    starts: PyTree = None,
    outer_start: PyTree = None,
    inner_start: PyTree = None,
    solver: Solver | None = None,
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
    given = inputs.setup(problem, rounds, outer_start, inner_start, None, solver)
    return _comparator("static", given, search_static(given, _points(given, starts)))


def stage_solutions(
    problem: Problem,
    rounds: PyTree,
    stages: int | Sequence[int],
    *,
    starts: PyTree = None,
    outer_start: PyTree = None,
    inner_start: PyTree = None,
    solver: Solver | None = None,
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
    given = inputs.setup(problem, rounds, outer_start, inner_start, None, solver)
    lengths = np.asarray(inputs.stage_lengths(stages, given.horizon))
    firsts = np.concatenate([[0], np.cumsum(lengths)[:-1]])
    found = search_stages(
        given, _points(given, starts), jnp.asarray(firsts), jnp.asarray(lengths), int(lengths.max())
    )
    stage = jnp.asarray(np.repeat(np.arange(len(lengths)), lengths))
    return _comparator("stages", given, found, stage)


def optima(
    given: inputs.Setup, comparators: Comparator | None, static: Comparator | None
) -> tuple[Comparator, Comparator]:
    """The optima of the rounds and of the horizon, solved for where they are not given."""
    starts = {"outer_start": given.outer_start, "inner_start": given.inner_start}
    if comparators is None:
        comparators = outer_solutions(given.problem, given.rounds, solver=given.solver, **starts)
    if static is None:
        static = static_solution(given.problem, given.rounds, solver=given.solver, **starts)
    for name, found, kind in (("comparators", comparators, "rounds"), ("static", static, "static")):
        if found.kind != kind or found.horizon != given.horizon:
            raise ValueError(
                f"{name} must be of kind {kind!r} for {given.horizon} rounds, but is of kind "
                f"{found.kind!r} for {found.horizon}."
            )
    return comparators, static


def _points(given: inputs.Setup, starts: PyTree, count: int | None = None) -> PyTree:
    """More points to look at, stacked: `starts`, or the start again, in the number that a regret
    has them: one compilation serves both."""
    if starts is None:
        shape = (count or min(MOST_STARTS, given.horizon),)
        return jax.tree.map(
            lambda leaf: jnp.broadcast_to(leaf, shape + leaf.shape), given.outer_start
        )
    points, length = inputs.stacked(validation.variable(starts, "starts"), "starts")
    validation.same_tree(
        jax.tree.map(lambda leaf: leaf[0], points), given.outer_start, "starts[0]", "outer_start"
    )
    if count is not None and length != count:
        raise ValueError(f"starts must be {count} points, one for each round, but are {length}.")
    return points


def _comparator(
    kind: str, given: inputs.Setup, found: Pair, stage: Array | None = None
) -> Comparator:
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
    _warn_if_missed(comparator)
    return comparator


def _warn_if_missed(found: Comparator) -> None:
    """Say how far a comparator is off, and what to do about it."""
    if not trees.is_concrete((found.residual, found.inner_residual, found.curvature)):
        return
    for who, formula, residual, closed in (
        ("leader", "outer_argmin", found.residual, found.closed_form),
        ("follower", "inner_argmin", found.inner_residual, found.inner_closed_form),
    ):
        if residual is None:
            continue
        reached = np.atleast_1d(np.asarray(residual))
        missed = ~(reached <= found.tolerance)
        if not np.any(missed):
            continue
        worst = int(np.argmax(np.where(np.isnan(reached), np.inf, reached)))
        if closed:
            advice = (
                f"Problem.{formula} does not minimise the loss there: correct it, or leave it out "
                "to solve numerically, or pass solver=Solver(tolerance=...) if rounding explains it"
            )
        else:
            advice = (
                "Pass solver=Solver(max_steps=...) for more steps, Solver(tolerance=...) if this "
                "is near enough, or outer_start and inner_start nearer to the solution; check that "
                "the loss is convex, bounded below and, for 1e-10, in float64"
            )
        _warn(
            f"The {who}'s optimum was not reached: residual {reached[worst]:.3g} in "
            f"{_place(found, residual, worst)}, tolerance {found.tolerance:.3g} "
            f"({int(missed.sum())} of {reached.size} missed). {advice}."
        )
    bad = np.atleast_1d(np.asarray(found.not_minimal))
    if found.curvature is not None and np.any(bad):
        curvature = np.atleast_1d(np.asarray(found.curvature))
        worst = int(np.argmin(np.where(np.isnan(curvature), -np.inf, curvature)))
        advice = "Pass starts= nearer to the minimum, or Solver(starts=...) to look at more points"
        if found.closed_form:
            advice = "Problem.outer_argmin does not minimise the loss there: correct it"
        _warn(
            f"The leader's point is not a minimum: in {_place(found, found.curvature, worst)} the "
            f"loss has curvature {curvature[worst]:.3g} of its largest along a free direction "
            f"({int(bad.sum())} of {bad.size} points are a saddle or a maximum). {advice}."
        )


def _place(found: Comparator, values: Array, index: int) -> str:
    unit = "stage" if found.kind == "stages" else "round"
    return "the whole horizon" if np.ndim(values) == 0 else f"{unit} {index + 1}"


def _warn(message: str) -> None:
    warnings.warn(message, ComparatorWarning, stacklevel=5)
