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

import inspect
from collections.abc import Callable, Sequence
from typing import Any, Literal, Unpack

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from .._support import trees
from .._support.checks import Arrays, Count, check as check_argument, checked
from .._support.trees import PyTree
from ..implicit import compiled, length_of
from ..problem import Problem
from .comparators import MOST_STARTS, answers, best_fixed, best_of_rounds, best_of_stages
from .results import Comparator, RegretCurve, check, warn_if_beaten
from .setup import Search, Setup, decisions_of, follower_of, losses_of, some, stacked


def dynamic(
    problem: Problem,
    outer_vars: PyTree,
    rounds: PyTree,
    *,
    comparators: Comparator | None = None,
    **search: Unpack[Search],
) -> RegretCurve:
    """Return BD-Reg_t for t = 1..T, the regret against the best decision of every single round.

    **Arguments:**

    - `outer_vars`: the decisions x_1..x_T, stacked on axis 0, such as `history.outer_var`, or the
      whole history of a run; `rounds`: stacked likewise.
    - `comparators`: from `outer_solutions`, if they are known already. Otherwise the searches also
      evaluate the decisions.
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
    check_argument(comparators, "comparators", Comparator | None)
    setup, x = Setup.of(problem, rounds, outer_vars, **search)
    played = answers(setup, x)
    if comparators is None:
        comparators = best_of_rounds(setup, x)
    return _against(problem, setup.rounds, played, comparators, "rounds")


def static(
    problem: Problem,
    outer_vars: PyTree,
    rounds: PyTree,
    *,
    comparators: Comparator | None = None,
    **search: Unpack[Search],
) -> RegretCurve:
    """Return BS-Reg_t for t = 1..T, the regret against the one x* that is best for the *whole*
    horizon. Arguments as for `dynamic`; `comparators` from `static_solution`.

    >>> problem = Problem(lambda x, y, r: (y - r) ** 2, lambda x, y, r: (y - x) ** 2)
    >>> targets = jnp.array([1.0, 2.0, 3.0])
    >>> print(static(problem, jnp.zeros(3), targets, inner_start=jnp.zeros(())).cumulative)
    [ 0.  4. 12.]
    """
    check_argument(comparators, "comparators", Comparator | None)
    setup, x = Setup.of(problem, rounds, outer_vars, **search)
    return _static(setup, x, comparators)


def interval(
    problem: Problem,
    outer_vars: PyTree,
    rounds: PyTree,
    start: int,
    stop: int,
    **search: Unpack[Search],
) -> RegretCurve:
    """Return the adaptive regret over rounds `start`..`stop`, both included and counted from 1: the
    regret against the one x that is best for them. The curve has `stop - start + 1` entries.

    >>> problem = Problem(lambda x, y, r: (x - r) ** 2)
    >>> targets = jnp.array([1.0, 2.0, 4.0])
    >>> print(interval(problem, jnp.zeros(3), targets, 2, 3).cumulative)
    [ 3. 18.]
    """
    setup, x = Setup.of(problem, rounds, outer_vars, **search)
    start, stop = check_argument(start, "start", Count), check_argument(stop, "stop", Count)
    if not start <= stop <= setup.horizon:
        raise ValueError(
            f"start and stop must satisfy 1 <= start <= stop <= T = {setup.horizon}, but got start "
            f"= {start} and stop = {stop}."
        )
    x, rounds = jax.tree.map(lambda leaf: leaf[start - 1 : stop], (x, setup.rounds))
    return _static(setup._replace(rounds=rounds), x, None)


def staged(
    problem: Problem,
    outer_vars: PyTree,
    rounds: PyTree,
    stages: int | Sequence[int],
    *,
    losses: PyTree = None,
    **search: Unpack[Search],
) -> RegretCurve:
    """Return the regret against one pair (x_s*, y_s*(x_s*)) for each stage, from its summed f and
    summed g: one hyperparameter *and one model* for the stage, as in Section 4.1.

    `stages` as for `stage_solutions`. `losses` (such as `history.played_value`) are taken in place
    of f_t(x_t, y*_t(x_t)). Other arguments as for `dynamic`.

    A stage's model is not the best answer to each of its rounds, so this regret can be negative.

    >>> problem = Problem(lambda x, y, r: (y - r) ** 2, lambda x, y, r: (y - x) ** 2)
    >>> targets = jnp.array([1.0, 3.0, 5.0])
    >>> curve = staged(problem, jnp.zeros(3), targets, [2, 1], inner_start=jnp.zeros(()))
    >>> print(curve.comparators.outer_var, curve.cumulative)
    [2. 5.] [ 0.  8. 33.]
    """
    setup, x = Setup.of(problem, rounds, outer_vars, **search)
    played = answers(setup, x) if losses is None else losses_of(losses, setup.horizon)
    comparators = best_of_stages(setup, stages, some(x, MOST_STARTS))
    return _against(problem, setup.rounds, played, comparators)


def played(
    problem: Problem,
    losses: PyTree,
    rounds: PyTree,
    comparator: Literal["dynamic", "static"] | Comparator = "dynamic",
    **search: Unpack[Search],
) -> RegretCurve:
    """Return the regret of the losses as suffered: a history, or an array such as
    `history.played_value`, f_t at the model that was there when the round arrived.

    `comparator` is `"dynamic"`, `"static"`, or what `outer_solutions`, `static_solution` or
    `stage_solutions` returned. `outer_start` is needed where the problem has no `outer_argmin`
    and no history is given.

    >>> problem = Problem(lambda x, y, r: (x - r) ** 2, outer_argmin=lambda r: r)
    >>> print(played(problem, jnp.array([3.0, 1.0]), jnp.array([1.0, 2.0])).cumulative)
    [3. 4.]
    """
    rounds, horizon = stacked(check_argument(rounds, "rounds", Arrays), "rounds")
    suffered = losses_of(losses, horizon)
    if not isinstance(comparator, Comparator):
        check_argument(comparator, "comparator", Literal["dynamic", "static"])
        history = losses if hasattr(losses, "outer_var") else None
        setup, _ = Setup.of(problem, rounds, history, **search)
        best, count = {
            "dynamic": (best_of_rounds, horizon),
            "static": (best_fixed, min(MOST_STARTS, horizon)),
        }[comparator]
        comparator = best(setup, setup.starts(None, count))
    return _against(problem, rounds, suffered, comparator)


def _static(setup: Setup, x: PyTree, comparators: Comparator | None) -> RegretCurve:
    played = answers(setup, x)
    if comparators is None:
        comparators = best_fixed(setup, some(x, MOST_STARTS))
    return _against(setup.problem, setup.rounds, played, comparators, "static")


SOURCES = {"rounds": "outer_solutions", "static": "static_solution"}


def _against(
    problem: Problem,
    rounds: PyTree,
    played: Comparator | Array,
    comparators: Comparator,
    kind: str | None = None,
) -> RegretCurve:
    """Return the regret of decisions (with the follower's answers) or of losses as suffered. Mark
    the rounds in which a decision is better than its own comparator, and warn of them."""
    if kind is not None and comparators.kind != kind:
        raise ValueError(
            f"comparators must come from {SOURCES[kind]}, of kind {kind!r}, but are of kind "
            f"{comparators.kind!r}."
        )
    if comparators.horizon != (horizon := length_of(rounds)):
        raise ValueError(
            f"comparators must belong to these {horizon} rounds, but belong to "
            f"{comparators.horizon}."
        )
    suffered: PyTree = played
    if isinstance(played, Comparator):
        suffered = played.outer_var, played.inner_var
    best = comparators.of_rounds(horizon)
    terms, cumulative, beaten = _compared(problem, rounds, suffered, best, comparators.tolerance)
    decisions = played if isinstance(played, Comparator) else None
    if kind == "rounds" and not (trees.is_concrete(beaten) and not np.any(beaten)):
        comparators = eqx.tree_at(
            lambda c: c.beaten, comparators, beaten, is_leaf=lambda node: node is None
        )
        warn_if_beaten(terms, comparators)
    return RegretCurve(terms, cumulative, comparators, decisions)


@compiled
def _compared(
    problem: Problem, rounds: PyTree, suffered: PyTree, best: PyTree, tolerance: float
) -> tuple[Array, Array, Array]:
    """Return the terms of a regret, their running sum, and where they are negative."""
    values = jax.vmap(problem.outer)
    losses = values(*suffered, rounds) if isinstance(suffered, tuple) else suffered
    lowest = values(*best, rounds)
    terms = losses.astype(lowest.dtype) - lowest
    allowed = tolerance * (jnp.abs(losses) + jnp.abs(losses - terms))
    return terms, jnp.cumsum(terms), terms < -allowed


@checked
def sweep(
    measure: Callable[..., RegretCurve],
    problem: Problem,
    outer_vars: Arrays,
    rounds: Arrays,
    *arguments: Any,
    own_rounds: bool = False,
    **search: Any,
) -> RegretCurve:
    """Compute a regret for every setting of a sweep, and warn where one cannot be trusted.

    `measure` is a function of this package, such as `dynamic`. `outer_vars` (decisions, or the
    history of a sweep) have a leading axis for the settings, and so has the curve that is returned;
    `rounds` have it with `own_rounds=True`. Other arguments go to `measure`.

    >>> problem = Problem(lambda x, y, r: (x - r) ** 2, outer_argmin=lambda r: r)
    >>> print(sweep(dynamic, problem, jnp.zeros((2, 3)), jnp.ones(3)).total)
    [3. 3.]
    """
    try:
        inspect.signature(measure).bind(problem, outer_vars, rounds, *arguments, **search)
    except TypeError as error:
        name = getattr(measure, "__name__", repr(measure))
        raise ValueError(
            f"arguments must be those that {name} takes, but got {arguments}: {error}."
        ) from error
    if hasattr(outer_vars, "outer_var"):
        search["inner_start"] = follower_of(outer_vars, search.get("inner_start"))

    def one(x: PyTree, rounds: PyTree) -> RegretCurve:
        return measure(problem, x, rounds, *arguments, **search)

    axes = (0, 0 if own_rounds else None)
    return check(jax.vmap(one, in_axes=axes)(decisions_of(outer_vars), rounds))
