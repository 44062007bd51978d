"""One's own problem and algorithms side by side, by the measures of the experiment: the loss that
each suffered, its regret where that can be had, what it asked of the oracles, and its time."""

import functools
from collections.abc import Callable, Mapping
from typing import Any

import equinox as eqx
import jax
import numpy as np

from ... import regret as regrets
from ..._support import validation
from ..._support.trees import PyTree
from ..._support.typed import typed
from ...algorithms import Algorithm, Info
from ...online import run
from ...problem import Problem
from ...problems import Instance
from ..kit.curves import cumulative
from .methods import seconds_of
from .result import LOSS, Comparison

REGRETS = ("dynamic", "static", "local")


@typed
def compare(
    problem: Problem | Instance,
    rounds: PyTree,
    algorithms: Mapping[str, Algorithm],
    outer_var: PyTree = None,
    inner_var: PyTree = None,
    *,
    buffers: PyTree = None,
    regret: str = "auto",
    timings: int = 3,
) -> Comparison:
    """Play the same rounds with several algorithms, and say which suffered least.

    **Arguments:**

    - `problem`: what they were made for; or a ready instance of `obax.problems`, which says where
      to start.
    - `rounds`: stacked on axis 0, as for `obax.run`; or a list of such streams, of equal length:
      then differences come with intervals.
    - `algorithms`: by the names that the table shall show.
    - `outer_var`, `inner_var`, `buffers`: where all of them start, as for `algorithm.init`.
    - `regret`: `"dynamic"`, `"static"` or `"local"`, whose comparators are searched for where the
      problem has no closed form; `"none"`; or `"auto"`: dynamic if the problem knows its optima,
      local if it knows its follower's answer, else none.
    - `timings`: how often each is timed, in turn with the others; the least counts.

    >>> import obax
    >>> stream = obax.problems.quadratic(60, 2, 3, drift=0.05)
    >>> found = obax.lab.compare(stream, stream.rounds, {
    ...     "held": obax.OGD(stream.problem, inner_step_size=0.2),
    ...     "mine": obax.FSOBO(stream.problem, 0.2, 0.2),
    ... })
    >>> found.best, list(found.to_pandas().hvps)
    ('mine', [1.0, 0.0])
    """
    if isinstance(problem, Instance):
        outer_var = problem.outer_var if outer_var is None else outer_var
        inner_var = problem.inner_var if inner_var is None else inner_var
        problem = problem.problem
    streams, horizon = _streams(rounds)
    _check(problem, algorithms, outer_var)
    kind, timings = _kind(problem, regret), validation.count(timings, "timings")
    example = jax.tree.map(lambda a: jax.ShapeDtypeStruct(a.shape[1:], a.dtype), streams[0])
    histories: dict[str, list[Info]] = {}
    runners: list[Callable[[], Any]] = []
    for name, algorithm in algorithms.items():
        state = algorithm.init(outer_var, inner_var, example, buffers=buffers)
        histories[name] = [run(algorithm, state, one, on_rejected="skip")[1] for one in streams]
        runners.append(functools.partial(run, algorithm, state, streams[0], on_rejected="skip"))
    seconds = seconds_of(runners, timings, horizon)
    suffered = {
        name: [cumulative(one.played_value) for one in mine] for name, mine in histories.items()
    }
    curves = {LOSS: suffered}
    if kind is not None:
        start = outer_var, inner_var
        curves[f"{kind} regret"] = _regrets(kind, problem, histories, streams, start)
    return Comparison(histories, curves, dict(zip(histories, seconds, strict=True)))


def _streams(rounds: PyTree) -> tuple[list[PyTree], int]:
    """The streams, and the length that they all have."""
    streams = rounds if isinstance(rounds, list) else [rounds]
    leaves = [leaf for one in streams for leaf in jax.tree.leaves(one)]
    found = {len(leaf) if np.ndim(leaf) else 0 for leaf in leaves}
    if len(found) != 1 or 0 in found:
        raise ValueError(
            "rounds must be one stream, stacked on axis 0, or a list of streams of one length, but "
            f"has leaves of lengths {sorted(found)}."
        )
    return streams, found.pop()


def _check(problem: Problem, algorithms: Mapping[str, Algorithm], outer_var: PyTree) -> None:
    """Raise a `ValueError` that says what does not fit together."""
    if not isinstance(algorithms, Mapping) or not algorithms:
        raise ValueError(
            f"algorithms must be a dict of at least one algorithm by name, but got {algorithms!r}."
        )
    for name, algorithm in algorithms.items():
        where = f"algorithms[{name!r}]"
        validation.instance(algorithm, Algorithm, where, "an algorithm such as obax.OAGD(...)")
        if not eqx.tree_equal(algorithm.problem, problem):
            raise ValueError(
                f"{where}.problem must be the problem that is compared on, but is "
                f"{algorithm.problem!r}; what two problems cost cannot be compared."
            )
    if outer_var is None:
        raise ValueError(
            "outer_var must say where the leader starts, but is None; only an instance of "
            "obax.problems in place of the problem knows it."
        )


def _kind(problem: Problem, regret: str) -> str | None:
    """Which regret there will be."""
    validation.one_of(regret, ("auto", "none", *REGRETS), "regret")
    if regret != "auto":
        return None if regret == "none" else regret
    answers = problem.inner is None or problem.inner_argmin is not None
    if problem.has_buffers or not answers:
        return None
    return "local" if problem.outer_argmin is None else "dynamic"


def _regrets(
    kind: str,
    problem: Problem,
    histories: dict[str, list[Info]],
    streams: list[PyTree],
    start: tuple[PyTree, PyTree],
) -> dict[str, list[np.ndarray]]:
    """Cumulative regrets, those of one stream all against the same comparators."""
    measured: dict[str, list[np.ndarray]] = {name: [] for name in histories}
    for number, rounds in enumerate(streams):
        search: dict[str, Any] = {"inner_start": start[1]}
        if kind != "local":
            solve = regrets.outer_solutions if kind == "dynamic" else regrets.static_solution
            search["comparators"] = solve(problem, rounds, outer_start=start[0], **search)
        for name, mine in histories.items():
            curve = getattr(regrets, kind)(problem, mine[number], rounds, **search)
            measured[name].append(cumulative(curve.terms))
    return measured
