r"""What a leader is compared with: the best in hindsight.

| name | leader | follower |
|---|---|---|
| `inner_solution` | given | $y^*_t(x) = \arg\min_y g_t(x, y)$ |
| `outer_solutions` | $x^*_t = \arg\min_{x \in X} f_t(x, y^*_t(x))$ | $y^*_t(x^*_t)$ |
| `static_solution` | $x^* = \arg\min_{x \in X} \sum_t f_t(x, y^*_t(x))$ | $y^*_t(x^*)$ |
| `stage_solutions` | $x^*_s = \arg\min_{x \in X} \sum_{t \in s} f_t(x, y^*_s(x))$ | $y^*_s(x) = \arg\min_y \sum_{t \in s} g_t(x, y)$ |

Closed forms of the problem are taken, and their residuals measured like all others. Otherwise the
follower is found by damped Newton and the leader by projected Newton on its domain, or by first-order
methods where x or y is long (`Solver.dense_limit`). All searches are local: for a loss that is not
convex in x they end in a stationary point, and starting from several points is up to the caller.
"""  # noqa: E501

import warnings
from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from .._support import trees
from .._support.trees import PyTree
from ..problem import Problem
from ..reduced import Solver
from . import inputs
from .search import search_answers, search_rounds, search_stages, search_static


class ComparatorWarning(UserWarning):
    """A comparator is less accurate than asked for; regrets against it are so, too."""


class Comparator(eqx.Module):
    r"""Pairs $(x, y^*(x))$, and how exact they are.

    - `outer_var`, `inner_var`: stacked on axis 0, one for each round or stage; the `outer_var` of a
      static comparator is a single x. `inner_var` is `None` without a follower.
    - `residual`: $|x - \Pi_X(x - \nabla \phi(x))|$, and `inner_residual`: $|\nabla_y g(x, y)|$,
      each divided by the size of the terms that cancel in the gradient if that is above 1.
      `residual` is `None` where x was given.
    - `tolerance`: what was asked for; `converged`: whether all residuals are below it.
    - `closed_form`: whether x came from the problem's own formula; `inner_closed_form`: y.
    - `kind`: `"given"`, `"rounds"`, `"static"` or `"stages"`; `stage`: the stage of each round.
    """

    outer_var: PyTree
    inner_var: PyTree
    residual: Float[Array, " n"] | None
    inner_residual: Float[Array, " n"]
    stage: Int[Array, " T"] | None
    kind: str = eqx.field(static=True)
    tolerance: float = eqx.field(static=True)
    closed_form: bool = eqx.field(static=True)
    inner_closed_form: bool = eqx.field(static=True)

    @property
    def converged(self) -> bool:
        """Whether every residual is within the tolerance."""
        reached = [r for r in (self.residual, self.inner_residual) if r is not None]
        return all(bool(jnp.all(r <= self.tolerance)) for r in reached)

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

    `inner_start` is where the numerical follower starts; it is needed where the problem does not
    give the shape of y by `inner_argmin` or `inner_start`.

    >>> problem = Problem(lambda x, y, r: y**2, lambda x, y, r: (y - x - r) ** 2)
    >>> found = inner_solution(
    ...     problem, jnp.array([1.0, 2.0]), jnp.array([0.5, 0.0]), inner_start=jnp.zeros(())
    ... )
    >>> print(found.inner_var, found.inner_closed_form, found.converged)
    [1.5 2. ] False True
    """
    if stacked:
        rounds, _ = inputs.stacked(rounds, "rounds")
        outer_vars = inputs.decisions(problem, outer_vars, rounds)
        given = inputs.setup(problem, rounds, None, inner_start, outer_vars)
    else:
        given = inputs.setup(problem, rounds, outer_vars, inner_start)
        outer_vars = given.outer_start
    solver = solver or Solver()
    y, inner = search_answers(*_arguments(given), outer_vars, stacked, solver)
    return _comparator("given", given, solver, outer_vars, y, None, inner)


def outer_solutions(
    problem: Problem,
    rounds: PyTree,
    *,
    outer_start: PyTree = None,
    inner_start: PyTree = None,
    solver: Solver | None = None,
) -> Comparator:
    """(x*_t, y*_t(x*_t)) for every round, all rounds in one vmapped call.

    `outer_start` and `inner_start` are where the numerical searches start (default: zeros,
    projected onto the domain); they are needed where no closed form gives the shapes. The search
    is local: for a loss that is not convex in x, try several `outer_start`.

    >>> problem = Problem(lambda x, y, r: (y - r) ** 2, lambda x, y, r: (y - 2 * x) ** 2)
    >>> start = jnp.zeros(())
    >>> found = outer_solutions(
    ...     problem, jnp.array([1.0, 4.0]), outer_start=start, inner_start=start
    ... )
    >>> print(found.outer_var, found.inner_var)
    [0.5 2. ] [1. 4.]
    """
    given = inputs.setup(problem, rounds, outer_start, inner_start)
    solver = solver or Solver()
    return _comparator("rounds", given, solver, *search_rounds(*_arguments(given), solver))


def static_solution(
    problem: Problem,
    rounds: PyTree,
    *,
    outer_start: PyTree = None,
    inner_start: PyTree = None,
    solver: Solver | None = None,
) -> Comparator:
    """x* of the whole horizon with every round's own answer y*_t(x*). Arguments as for
    `outer_solutions`.

    >>> problem = Problem(lambda x, y, r: (y - r) ** 2, lambda x, y, r: (y - 2 * x) ** 2)
    >>> start = jnp.zeros(())
    >>> found = static_solution(
    ...     problem, jnp.array([1.0, 4.0]), outer_start=start, inner_start=start
    ... )
    >>> print(found.outer_var, found.inner_var)
    1.25 [2.5 2.5]
    """
    given = inputs.setup(problem, rounds, outer_start, inner_start)
    solver = solver or Solver()
    return _comparator("static", given, solver, *search_static(*_arguments(given), solver))


def stage_solutions(
    problem: Problem,
    rounds: PyTree,
    stages: int | Sequence[int],
    *,
    outer_start: PyTree = None,
    inner_start: PyTree = None,
    solver: Solver | None = None,
) -> Comparator:
    """One pair (x_s*, y_s*(x_s*)) for each stage, from the stage's summed f *and* summed g.

    `stages` is their number, for stages of equal length (the last takes the remainder), or the
    sequence of their lengths. Other arguments as for `outer_solutions`.

    >>> problem = Problem(lambda x, y, r: (y - r) ** 2, lambda x, y, r: (y - 2 * x) ** 2)
    >>> start = jnp.zeros(())
    >>> found = stage_solutions(
    ...     problem, jnp.array([1.0, 3.0, 8.0]), [2, 1], outer_start=start, inner_start=start
    ... )
    >>> print(found.outer_var, found.inner_var, found.stage)
    [1. 4.] [2. 8.] [0 0 1]
    """
    given = inputs.setup(problem, rounds, outer_start, inner_start)
    lengths = np.asarray(inputs.stage_lengths(stages, given.horizon))
    starts = np.concatenate([[0], np.cumsum(lengths)[:-1]])
    solver = solver or Solver()
    x, y, residual, inner = search_stages(
        *_arguments(given), jnp.asarray(starts), jnp.asarray(lengths), int(lengths.max()), solver
    )
    stage = jnp.asarray(np.repeat(np.arange(len(lengths)), lengths))
    return _comparator("stages", given, solver, x, y, residual, inner, stage)


def _comparator(
    kind: str,
    given: inputs.Setup,
    solver: Solver,
    x: PyTree,
    y: PyTree,
    residual: Array | None,
    inner_residual: Array,
    stage: Array | None = None,
) -> Comparator:
    dtype = jax.tree.leaves(x)[0].dtype
    found = Comparator(
        outer_var=x,
        inner_var=y,
        residual=residual,
        inner_residual=inner_residual,
        stage=stage,
        kind=kind,
        tolerance=solver.tolerance_for(dtype),
        closed_form=kind == "rounds" and given.problem.outer_argmin is not None,
        inner_closed_form=kind != "stages" and given.problem.inner_argmin is not None,
    )
    _warn_if_missed(found)
    return found


def _arguments(given: inputs.Setup) -> tuple[Problem, PyTree, PyTree, PyTree]:
    return given.problem, given.rounds, given.outer_start, given.inner_start


def _warn_if_missed(found: Comparator) -> None:
    """Say how far a comparator is off, and what to do about it."""
    if not trees.is_concrete((found.residual, found.inner_residual)):
        return
    unit = "stage" if found.kind == "stages" else "round"
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
        where = "the whole horizon" if np.ndim(residual) == 0 else f"{unit} {worst + 1}"
        many = f"{int(missed.sum())} of {reached.size}"
        if closed:
            advice = (
                f"problem.{formula} does not minimise the loss there: correct it, or leave it out "
                "to solve numerically, or pass solver=Solver(tolerance=...) if rounding explains it"
            )
        else:
            advice = (
                "pass solver=Solver(max_steps=...) for more steps, Solver(tolerance=...) if this "
                "is near enough, or outer_start and inner_start nearer to the solution; check that "
                "the loss is convex, bounded below and, for 1e-10, in float64"
            )
        warnings.warn(
            f"The {who}'s optimum was not reached: residual {reached[worst]:.3g} in {where}, "
            f"tolerance {found.tolerance:.3g} ({many} missed). {advice[0].upper()}{advice[1:]}.",
            ComparatorWarning,
            stacklevel=4,
        )
