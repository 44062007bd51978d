r"""Regrets as cumulative curves over recorded decisions.

With $\phi_t(x) = f_t(x, y^*_t(x))$ and $y^*_t(x) = \arg\min_y g_t(x, y)$,

| function | curve at t |
|---|---|
| `dynamic` | $\sum_{s \leq t} \phi_s(x_s) - \phi_s(x^*_s)$, eq. (reg:bilevel:dynamic) |
| `static` | $\sum_{s \leq t} \phi_s(x_s) - \phi_s(x^*)$, $x^*$ of the whole horizon, eq. (reg:bilevel:static) |
| `local` | $\sum_{s \leq t} |\nabla F_{s,u}(x_s, y^*_s(x_s))|^2$, eq. (reg:non:bilevel:dynamic) |
| `interval` | `static` over the rounds r..s alone (adaptive regret) |
| `staged` | $\sum_{s \leq t} \phi_s(x_s) - f_s(x^*_k, y^*_k)$, the pair of the stage k of round s (eqn:onl:hyper) |
| `played` | losses as suffered in place of $\phi_s(x_s)$ |

Without a follower they are D-Reg, S-Reg and L-Reg.
"""  # noqa: E501

from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array

from .._support import validation
from .._support.trees import PyTree
from ..problem import Problem
from ..reduced import Solver, length_of
from . import inputs
from .comparators import (
    Comparator,
    inner_solution,
    outer_solutions,
    stage_solutions,
    static_solution,
)
from .curve import RegretCurve


def dynamic(
    problem: Problem,
    outer_vars: PyTree,
    rounds: PyTree,
    *,
    comparators: Comparator | None = None,
    outer_start: PyTree = None,
    inner_start: PyTree = None,
    solver: Solver | None = None,
) -> RegretCurve:
    """BD-Reg_t for t = 1..T: against the best decision of every single round.

    **Arguments:**

    - `outer_vars`: the decisions x_1..x_T, stacked on axis 0, such as `history.outer_var`;
      `rounds`: stacked likewise.
    - `comparators`: from `outer_solutions`, if they are known already.
    - `outer_start`, `inner_start`: where numerical searches start, by default at zero (projected).
      `inner_start` is needed where the problem does not give the shape of y by a closed form.
    - `solver`: tolerance, steps and memory of these searches.

    >>> problem = Problem(lambda x, y, r: (y - r) ** 2, lambda x, y, r: (y - x) ** 2)
    >>> targets = jnp.array([1.0, 2.0, 3.0])
    >>> curve = dynamic(problem, jnp.zeros(3), targets, inner_start=jnp.zeros(()))
    >>> print(curve.cumulative, curve.total)
    [ 1.  5. 14.] 14.0
    """
    played = _decisions(problem, outer_vars, rounds, inner_start, solver)
    if comparators is None:
        comparators = outer_solutions(
            problem, rounds, solver=solver, **_starts(played, outer_start, inner_start)
        )
    _of_kind(comparators, "rounds", "outer_solutions")
    return _difference(problem, _losses_of(problem, played, rounds), comparators, rounds, played)


def static(
    problem: Problem,
    outer_vars: PyTree,
    rounds: PyTree,
    *,
    comparators: Comparator | None = None,
    outer_start: PyTree = None,
    inner_start: PyTree = None,
    solver: Solver | None = None,
) -> RegretCurve:
    """BS-Reg_t for t = 1..T, against the one x* that is best for the *whole* horizon. Arguments as
    for `dynamic`; `comparators` from `static_solution`.

    >>> problem = Problem(lambda x, y, r: (y - r) ** 2, lambda x, y, r: (y - x) ** 2)
    >>> targets = jnp.array([1.0, 2.0, 3.0])
    >>> print(static(problem, jnp.zeros(3), targets, inner_start=jnp.zeros(())).cumulative)
    [ 0.  4. 12.]
    """
    played = _decisions(problem, outer_vars, rounds, inner_start, solver)
    if comparators is None:
        comparators = static_solution(
            problem, rounds, solver=solver, **_starts(played, outer_start, inner_start)
        )
    _of_kind(comparators, "static", "static_solution")
    return _difference(problem, _losses_of(problem, played, rounds), comparators, rounds, played)


def interval(
    problem: Problem,
    outer_vars: PyTree,
    rounds: PyTree,
    start: int,
    stop: int,
    *,
    outer_start: PyTree = None,
    inner_start: PyTree = None,
    solver: Solver | None = None,
) -> RegretCurve:
    """The adaptive regret over rounds `start`..`stop`, both included and counted from 1: against
    the one x that is best for that interval. The curve has `stop - start + 1` entries.

    >>> problem = Problem(lambda x, y, r: (x - r) ** 2)
    >>> targets = jnp.array([1.0, 2.0, 4.0])
    >>> print(interval(problem, jnp.zeros(3), targets, 2, 3).cumulative)
    [ 3. 18.]
    """
    rounds, horizon = inputs.stacked(rounds, "rounds")
    outer_vars = inputs.decisions(problem, outer_vars, rounds)
    start, stop = validation.count(start, "start"), validation.count(stop, "stop")
    if not start <= stop <= horizon:
        raise ValueError(
            f"start and stop must satisfy 1 <= start <= stop <= T = {horizon}, but got start = "
            f"{start} and stop = {stop}."
        )
    outer_vars, rounds = jax.tree.map(lambda leaf: leaf[start - 1 : stop], (outer_vars, rounds))
    return static(
        problem,
        outer_vars,
        rounds,
        outer_start=outer_start,
        inner_start=inner_start,
        solver=solver,
    )


def staged(
    problem: Problem,
    outer_vars: PyTree,
    rounds: PyTree,
    stages: int | Sequence[int],
    *,
    losses: Any = None,
    outer_start: PyTree = None,
    inner_start: PyTree = None,
    solver: Solver | None = None,
) -> RegretCurve:
    """Against one pair (x_s*, y_s*(x_s*)) for each stage, from the stage's summed f and summed g:
    one hyperparameter *and one model* for the stage, as in Section 4.1.

    `stages` as for `stage_solutions`. With `losses` (such as `history.played_value`) these are what
    the player is charged, in place of f_t(x_t, y*_t(x_t)). Other arguments as for `dynamic`.

    A stage's model is not the best answer to each of its rounds, so this regret can be negative.

    >>> problem = Problem(lambda x, y, r: (y - r) ** 2, lambda x, y, r: (y - x) ** 2)
    >>> targets = jnp.array([1.0, 3.0, 5.0])
    >>> curve = staged(problem, jnp.zeros(3), targets, [2, 1], inner_start=jnp.zeros(()))
    >>> print(curve.comparators.outer_var, curve.cumulative)
    [2. 5.] [ 0.  8. 33.]
    """
    played = None
    if losses is None:
        played = _decisions(problem, outer_vars, rounds, inner_start, solver)
        losses = _losses_of(problem, played, rounds)
    else:
        outer_vars = inputs.decisions(problem, outer_vars, inputs.stacked(rounds, "rounds")[0])
        losses = inputs.losses(losses, length_of(outer_vars))
    if outer_start is None:
        outer_start = jax.tree.map(lambda leaf: jnp.zeros_like(leaf[0]), outer_vars)
    comparators = stage_solutions(
        problem, rounds, stages, outer_start=outer_start, inner_start=inner_start, solver=solver
    )
    return _difference(problem, losses, comparators, rounds, played)


def played(
    problem: Problem,
    losses: Any,
    rounds: PyTree,
    comparator: str | Comparator = "dynamic",
    *,
    outer_start: PyTree = None,
    inner_start: PyTree = None,
    solver: Solver | None = None,
) -> RegretCurve:
    """The losses as suffered (such as `history.played_value`, f_t at the model held when the round
    arrived) minus those of the comparator.

    `comparator` is `"dynamic"`, `"static"`, or what `outer_solutions`, `static_solution` or
    `stage_solutions` returned. `outer_start` is needed where the problem has no `outer_argmin`.

    >>> problem = Problem(lambda x, y, r: (x - r) ** 2, outer_argmin=lambda r: r)
    >>> print(played(problem, jnp.array([3.0, 1.0]), jnp.array([1.0, 2.0])).cumulative)
    [3. 4.]
    """
    rounds, horizon = inputs.stacked(rounds, "rounds")
    losses = inputs.losses(losses, horizon)
    if not isinstance(comparator, Comparator):
        solve = {"dynamic": outer_solutions, "static": static_solution}[
            validation.one_of(comparator, ("dynamic", "static"), "comparator")
        ]
        comparator = solve(
            problem, rounds, outer_start=outer_start, inner_start=inner_start, solver=solver
        )
    return _difference(problem, losses, comparator, rounds, None)


def _of_kind(comparators: Comparator, kind: str, maker: str) -> None:
    if comparators.kind != kind:
        raise ValueError(
            f"comparators must come from {maker}, of kind {kind!r}, but are of kind "
            f"{comparators.kind!r}."
        )


def _decisions(
    problem: Problem, outer_vars: PyTree, rounds: PyTree, inner_start: PyTree, solver: Solver | None
) -> Comparator:
    return inner_solution(problem, outer_vars, rounds, inner_start=inner_start, solver=solver)


def _starts(played: Comparator, outer_start: PyTree, inner_start: PyTree) -> dict[str, PyTree]:
    if outer_start is None:
        outer_start = jax.tree.map(lambda leaf: jnp.zeros_like(leaf[0]), played.outer_var)
    return {"outer_start": outer_start, "inner_start": inner_start}


def _losses_of(problem: Problem, pairs: Comparator, rounds: PyTree) -> Array:
    rounds, horizon = inputs.stacked(rounds, "rounds")
    return _outer_values(problem, *pairs.of_rounds(horizon), rounds)


@eqx.filter_jit
def _outer_values(problem: Problem, xs: PyTree, ys: PyTree, rounds: PyTree) -> Array:
    return jax.vmap(problem.outer)(xs, ys, rounds)


def _difference(
    problem: Problem,
    losses: Array,
    comparators: Comparator,
    rounds: PyTree,
    decisions: Comparator | None,
) -> RegretCurve:
    if comparators.horizon != losses.size:
        raise ValueError(
            f"comparators must belong to these {losses.size} rounds, but belong to "
            f"{comparators.horizon}."
        )
    best = _losses_of(problem, comparators, rounds)
    terms = losses.astype(best.dtype) - best
    return RegretCurve(terms, jnp.cumsum(terms), comparators, decisions)
