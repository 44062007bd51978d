r"""Regrets as cumulative curves over recorded decisions.

With $\phi_t(x) = f_t(x, y^*_t(x))$ and $y^*_t(x) = \arg\min_y g_t(x, y)$,

| function | curve at t |
|---|---|
| `dynamic` | $\sum_{s \leq t} \phi_s(x_s) - \phi_s(x^*_s)$, Equation (3) |
| `static` | $\sum_{s \leq t} \phi_s(x_s) - \phi_s(x^*)$, $x^*$ of the whole horizon, Equation (4) |
| `local` | $\sum_{s \leq t} |\nabla F_{s,u}(x_s, y^*_s(x_s))|^2$, Equation (14) |
| `interval` | `static` over the rounds r..s alone (adaptive regret) |
| `staged` | $\sum_{s \leq t} \phi_s(x_s) - f_s(x^*_k, y^*_k)$, the pair of the stage k of round s, as in Section 4.1 |
| `played` | losses as suffered in place of $\phi_s(x_s)$ |

Without a follower they are D-Reg, S-Reg and L-Reg.
"""  # noqa: E501

import warnings
from collections.abc import Callable, Sequence
from typing import Unpack

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._support import trees, validation
from .._support.trees import PyTree
from .._support.typed import typed
from ..problem import Problem
from ..reduced import compiled, length_of
from . import inputs
from .comparators import (
    MOST_STARTS,
    inner_solution,
    outer_solutions,
    stage_solutions,
    static_solution,
)
from .inputs import Search
from .results import Comparator, ComparatorWarning, RegretCurve


@typed
def dynamic(
    problem: Problem,
    outer_vars: PyTree,
    rounds: PyTree,
    *,
    comparators: Comparator | None = None,
    **search: Unpack[Search],
) -> RegretCurve:
    """BD-Reg_t for t = 1..T: against the best decision of every single round.

    **Arguments:**

    - `outer_vars`: the decisions x_1..x_T, stacked on axis 0, such as `history.outer_var`, or the
      whole history of a run; `rounds`: stacked likewise.
    - `comparators`: from `outer_solutions`, if they are known already. Otherwise the searches also
      look at the decisions.
    - `outer_start`, `inner_start`: where numerical searches start, by default at zero (projected).
      `inner_start` (a y or an algorithm's state) is needed where neither the problem nor a history
      gives the shape of y.
    - `solver`: tolerance, steps, starts and memory of these searches.

    No decision is better than the best. Where a term is negative beyond the tolerance the
    comparator is wrong: a `ComparatorWarning` names the round, and `curve.comparators.converged`
    is false.

    >>> problem = Problem(lambda x, y, r: (y - r) ** 2, lambda x, y, r: (y - x) ** 2)
    >>> targets = jnp.array([1.0, 2.0, 3.0])
    >>> curve = dynamic(problem, jnp.zeros(3), targets, inner_start=jnp.zeros(()))
    >>> print(curve.cumulative, curve.total)
    [ 1.  5. 14.] 14.0
    """
    return _against(outer_solutions, problem, outer_vars, rounds, comparators, search)


@typed
def static(
    problem: Problem,
    outer_vars: PyTree,
    rounds: PyTree,
    *,
    comparators: Comparator | None = None,
    **search: Unpack[Search],
) -> RegretCurve:
    """BS-Reg_t for t = 1..T, against the one x* that is best for the *whole* horizon. Arguments as
    for `dynamic`; `comparators` from `static_solution`.

    >>> problem = Problem(lambda x, y, r: (y - r) ** 2, lambda x, y, r: (y - x) ** 2)
    >>> targets = jnp.array([1.0, 2.0, 3.0])
    >>> print(static(problem, jnp.zeros(3), targets, inner_start=jnp.zeros(())).cumulative)
    [ 0.  4. 12.]
    """
    return _against(static_solution, problem, outer_vars, rounds, comparators, search)


@typed
def interval(
    problem: Problem,
    outer_vars: PyTree,
    rounds: PyTree,
    start: int,
    stop: int,
    **search: Unpack[Search],
) -> RegretCurve:
    """The adaptive regret over rounds `start`..`stop`, both included and counted from 1: against
    the one x that is best for that interval. The curve has `stop - start + 1` entries.

    >>> problem = Problem(lambda x, y, r: (x - r) ** 2)
    >>> targets = jnp.array([1.0, 2.0, 4.0])
    >>> print(interval(problem, jnp.zeros(3), targets, 2, 3).cumulative)
    [ 3. 18.]
    """
    rounds, horizon = inputs.stacked(rounds, "rounds")
    search = inputs.completed(outer_vars, **search)
    outer_vars = inputs.decisions(problem, outer_vars, rounds)
    start, stop = validation.count(start, "start"), validation.count(stop, "stop")
    if not start <= stop <= horizon:
        raise ValueError(
            f"start and stop must satisfy 1 <= start <= stop <= T = {horizon}, but got start = "
            f"{start} and stop = {stop}."
        )
    outer_vars, rounds = jax.tree.map(lambda leaf: leaf[start - 1 : stop], (outer_vars, rounds))
    return static(problem, outer_vars, rounds, **search)


@typed
def staged(
    problem: Problem,
    outer_vars: PyTree,
    rounds: PyTree,
    stages: int | Sequence[int],
    *,
    losses: PyTree = None,
    **search: Unpack[Search],
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
    search = inputs.completed(outer_vars, **search)
    outer_vars = inputs.decisions(problem, outer_vars, rounds)
    played = None
    if losses is None:
        played = _answers(problem, outer_vars, rounds, search)
        losses = losses_of(problem, played, rounds)
    points = inputs.some(outer_vars, MOST_STARTS)
    comparators = stage_solutions(problem, rounds, stages, starts=points, **search)
    losses = inputs.losses(losses, length_of(outer_vars))
    return _difference(problem, losses, comparators, rounds, played)


@typed
def played(
    problem: Problem,
    losses: PyTree,
    rounds: PyTree,
    comparator: str | Comparator = "dynamic",
    **search: Unpack[Search],
) -> RegretCurve:
    """The losses as suffered (a history, or such as `history.played_value`, f_t at the model held
    when the round arrived) minus those of the comparator.

    `comparator` is `"dynamic"`, `"static"`, or what `outer_solutions`, `static_solution` or
    `stage_solutions` returned. `outer_start` is needed where the problem has no `outer_argmin`
    and no history is given.

    >>> problem = Problem(lambda x, y, r: (x - r) ** 2, outer_argmin=lambda r: r)
    >>> print(played(problem, jnp.array([3.0, 1.0]), jnp.array([1.0, 2.0])).cumulative)
    [3. 4.]
    """
    rounds, horizon = inputs.stacked(rounds, "rounds")
    suffered = inputs.losses(losses, horizon)
    if not isinstance(comparator, Comparator):
        solvers = {"dynamic": outer_solutions, "static": static_solution}
        solve = solvers[validation.one_of(comparator, tuple(solvers), "comparator")]
        history = losses if hasattr(losses, "outer_var") else None
        comparator = solve(problem, rounds, **inputs.completed(history, **search))
    return _difference(problem, suffered, comparator, rounds, None)


def _against(
    solve: Callable[..., Comparator],
    problem: Problem,
    outer_vars: PyTree,
    rounds: PyTree,
    comparators: Comparator | None,
    search: Search,
) -> RegretCurve:
    """The regret at the follower's answers, against the optima of the rounds or the static one."""
    search = inputs.completed(outer_vars, **search)
    played = _answers(problem, outer_vars, rounds, search)
    dynamic = solve is outer_solutions
    if comparators is None:
        x = played.outer_var
        starts = x if dynamic else inputs.some(x, MOST_STARTS)
        comparators = solve(problem, rounds, starts=starts, **search)
    kind = "rounds" if dynamic else "static"
    if comparators.kind != kind:
        raise ValueError(
            f"comparators must come from {solve.__name__}, of kind {kind!r}, but are of kind "
            f"{comparators.kind!r}."
        )
    losses = losses_of(problem, played, rounds)
    curve = _difference(problem, losses, comparators, rounds, played)
    return _with_proof(curve, losses) if dynamic else curve


def _answers(problem: Problem, outer_vars: PyTree, rounds: PyTree, search: Search) -> Comparator:
    """y*_t(x_t) of the decisions, searched as the comparator will be."""
    inner_start, solver = search["inner_start"], search["solver"]
    return inner_solution(problem, outer_vars, rounds, inner_start=inner_start, solver=solver)


def losses_of(problem: Problem, pairs: Comparator, rounds: PyTree) -> Float[Array, " T"]:
    """f_t at the pairs of all rounds."""
    rounds, horizon = inputs.stacked(rounds, "rounds")
    return _outer_values(problem, *pairs.of_rounds(horizon), rounds)


@compiled
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
    best = losses_of(problem, comparators, rounds)
    terms = losses.astype(best.dtype) - best
    return RegretCurve(terms, jnp.cumsum(terms), comparators, decisions)


def _with_proof(curve: RegretCurve, losses: Array) -> RegretCurve:
    """The curve with its comparators marked, and a warning, where a decision beats them."""
    comparators = curve.comparators
    assert comparators is not None
    if not trees.is_concrete((curve.terms, losses)):
        return curve
    allowed = comparators.tolerance * (jnp.abs(losses) + jnp.abs(losses - curve.terms))
    beaten = curve.terms < -allowed
    if not bool(jnp.any(beaten)):
        return curve
    worst = int(jnp.argmin(curve.terms))
    warnings.warn(
        f"The comparator is not the best: in round {worst + 1} the decision that was played is "
        f"better by {-float(curve.terms[worst]):.3g} ({int(np.sum(beaten))} of {beaten.size} "
        "rounds have a negative regret, which proves it). Let it be solved for instead of passing "
        "it, or correct the problem's outer_argmin and inner_argmin; Solver(starts=...) looks at "
        "more points.",
        ComparatorWarning,
        stacklevel=4,
    )
    return eqx.tree_at(
        lambda c: c.comparators.beaten, curve, beaten, is_leaf=lambda node: node is None
    )
