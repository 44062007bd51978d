"""Compare your own algorithms on your own problem by loss, regret, oracle calls and time."""

import contextlib
import dataclasses
import functools
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import equinox as eqx
import jax
import numpy as np
import pandas as pd

from ... import regret as regrets
from ..._support import drawing
from ..._support.checks import Count, check, checked, instance_of
from ..._support.messages import counted
from ..._support.trees import PyTree
from ...algorithms import Algorithm, Info
from ...online import run
from ...problem import Problem
from ...problems import Instance
from ..framework.statistics import Gain, cumulative, readable, with_interval
from .config import Config
from .work import COUNTS, cost, seconds_per_round

LOSS = "loss suffered"
SLOW = 2.0
"""What takes longer than so many seconds is named on standard error."""
ALGORITHM = Annotated[Any, instance_of(Algorithm, "an algorithm such as obax.OAGD(...)")]


@dataclasses.dataclass(frozen=True, repr=False)
class Comparison:
    """The result of `obax.lab.compare`, printed as the answer and a small table.

    `histories` has the history of each algorithm on each stream, `curves` the cumulative losses and
    regrets by measure and algorithm, and `seconds` the time of a round.
    """

    histories: dict[str, list[Info]]
    curves: dict[str, dict[str, list[np.ndarray]]]
    seconds: dict[str, float]

    @property
    def order(self) -> list[str]:
        """The algorithms in the order of their losses, the least first."""
        return sorted(self.histories, key=lambda name: np.mean(self._ends(LOSS, name)))

    @property
    def best(self) -> str:
        """The algorithm with the least loss."""
        return self.order[0]

    @property
    def answer(self) -> str:
        """Which algorithm had the least loss, by how much, and at which cost."""
        first, *others = self.order
        losses = self._ends(LOSS, first)
        if not np.all(np.isfinite(losses)):
            return "No algorithm had a finite loss: all diverged. Smaller steps may help."
        among = "" if len(losses) == 1 else f" of {len(losses)} streams"
        horizon = len(self.curves[LOSS][first][0])
        ahead = self._difference(losses, others[0]) if others else ""
        calls = np.mean([cost(Config(), one).mean() for one in self.histories[first]])
        words = [
            f"{first} had the least loss: {with_interval(losses)} over "
            f"{counted(horizon, 'round')}{among}{ahead}.",
            f"A round of it costs {readable(calls)} calls and {_micro(self.seconds[first])} us.",
        ]
        for measure in self.curves:
            least = min(self.order, key=lambda name: np.mean(self._ends(measure, name)))
            if least != first:
                words.append(f"The least {measure} is that of {least}.")
        return " ".join(words)

    def _difference(self, losses: np.ndarray, other: str) -> str:
        """Return how far the best algorithm is ahead of another."""
        theirs = self._ends(LOSS, other)
        if not np.all(np.isfinite(theirs)):
            return f"; the next, {other}, diverged"
        gain = Gain.of(theirs - losses)
        share = f"{gain.mean / abs(np.mean(theirs)):.1%}" if np.mean(theirs) else "0%"
        ahead = f", {gain.size} ({share}) less than the next, {other}"
        if gain.seeds == 1:
            return f"{ahead} (one stream, so without an interval)"
        return f"{ahead}, which is within noise" if gain.verdict == "within noise" else ahead

    def to_pandas(self) -> pd.DataFrame:
        """Return a row for each algorithm and stream, in the order of the losses.

        Counts are those of a round; `calls` is their sum in gradients, as in `obax run compare`.
        """
        return pd.DataFrame(
            {
                "algorithm": name,
                "stream": number,
                **{measure: self._ends(measure, name)[number] for measure in self.curves},
                "calls": cost(Config(), history).mean(),
                **{count: np.asarray(getattr(history, count)).mean() for count in COUNTS},
                "us per round": 1e6 * self.seconds[name],
                "rejected": int(history.rejected),
            }
            for name in self.order
            for number, history in enumerate(self.histories[name])
        )

    def to_csv(self, file: str | Path) -> None:
        """Write the rows of `to_pandas` to a file."""
        self.to_pandas().to_csv(file, index=False)

    def to_latex(self) -> str:
        """Return the printed table as a LaTeX tabular. It needs the package booktabs."""
        table = self._small().replace("±", r"$\\pm$", regex=True)
        return table.to_latex(index=False, column_format="l" + "r" * (table.shape[1] - 1))

    def plot(self, file: str | Path | None = None) -> Any:
        """Return a matplotlib figure with a panel for each measure; save it to `file`, if given."""
        panels = []
        for measure, curves in self.curves.items():
            lines = {name: curves[name] for name in self.order}
            log = drawing.spans_decades([one for streams in lines.values() for one in streams])
            title = f"{measure}, summed" if measure == LOSS else measure
            panels.append(drawing.Panel(title, lines, log))
        return drawing.figure(panels, "round", file)

    def __repr__(self) -> str:
        return f"{self.answer}\n\n{self._small().to_string(index=False)}"

    def _small(self) -> pd.DataFrame:
        """Return means over the streams as a table to read, without counts that are all zero."""
        by_name = self.to_pandas().groupby("algorithm", sort=False)
        table = pd.DataFrame(
            {measure: by_name[measure].apply(with_interval) for measure in self.curves}
        )
        for count, means in by_name[["calls", *COUNTS, "us per round"]].mean().items():
            if means.any():
                table[str(count).replace("_", " ")] = means.map(readable)
        if any(by_name.rejected.sum()):
            table["rejected"] = by_name.rejected.sum()
        return table.reset_index()

    def _ends(self, measure: str, name: str) -> np.ndarray:
        return np.asarray([line[-1] for line in self.curves[measure][name]])


def _micro(seconds: float) -> str:
    return readable(1e6 * seconds)


@checked
def compare(
    problem: Problem | Instance,
    rounds: PyTree,
    algorithms: Mapping[str, Algorithm],
    outer_var: PyTree = None,
    inner_var: PyTree = None,
    *,
    buffers: PyTree = None,
    regret: Literal["auto", "none", "dynamic", "static", "local"] = "auto",
    timings: Count = 3,
) -> Comparison:
    """Play the same rounds with several algorithms and return which had the least loss.

    **Arguments:**

    - `problem`: the problem of the algorithms; or a ready instance of `obax.problems`, which also
      has the variables to start from.
    - `rounds`: stacked on axis 0, as for `obax.run`; or a list of such streams with equal length,
      which gives differences with intervals.
    - `algorithms`: the algorithms by the names in the table.
    - `outer_var`, `inner_var`, `buffers`: the start of all algorithms, as for `algorithm.init`.
    - `regret`: `"dynamic"`, `"static"` or `"local"`, whose comparators are searched for if the
      problem has no closed form; `"none"`; or `"auto"`: dynamic if the problem has closed-form
      optima, local if only the follower has one, otherwise none.
    - `timings`: how often each algorithm is timed; the least time counts.

    >>> import obax
    >>> stream = obax.problems.quadratic(60, 2, 3, drift=0.05)
    >>> comparison = obax.lab.compare(stream, stream.rounds, {
    ...     "held": obax.OGD(stream.problem, inner_step_size=0.2),
    ...     "mine": obax.FSOBO(stream.problem, 0.2, 0.2),
    ... })
    >>> comparison.best, list(comparison.to_pandas().hvps)
    ('mine', [1.0, 0.0])
    """
    if isinstance(problem, Instance):
        outer_var = problem.outer_var if outer_var is None else outer_var
        inner_var = problem.inner_var if inner_var is None else inner_var
        problem = problem.problem
    streams, horizon = _streams(rounds)
    _check(problem, algorithms, outer_var)
    kind = _kind(problem, regret)
    example = jax.tree.map(lambda a: jax.ShapeDtypeStruct(a.shape[1:], a.dtype), streams[0])
    histories: dict[str, list[Info]] = {}
    runners: list[Callable[[], Any]] = []
    for number, (name, algorithm) in enumerate(algorithms.items(), 1):
        with print_if_slow(f"compiles and plays {name} ({number} of {len(algorithms)})"):
            state = algorithm.init(outer_var, inner_var, example, buffers=buffers)
            play = functools.partial(run, algorithm, state, on_rejected="skip")
            histories[name] = [play(rounds)[1] for rounds in streams]
        runners.append(functools.partial(play, streams[0]))
    with print_if_slow(f"times the algorithms (timings={timings})"):
        seconds = seconds_per_round(runners, timings, horizon)
    suffered = {
        name: [cumulative(history.played_value) for history in of_algorithm]
        for name, of_algorithm in histories.items()
    }
    curves = {LOSS: suffered}
    if kind is not None:
        starts = {"outer_start": outer_var, "inner_start": inner_var}
        with print_if_slow(f"measures the {kind} regret; regret='none' leaves it out"):
            curves[f"{kind} regret"] = _regrets(kind, problem, histories, streams, starts)
    return Comparison(histories, curves, dict(zip(histories, seconds, strict=True)))


@contextlib.contextmanager
def print_if_slow(what: str) -> Iterator[None]:
    """Print on standard error what is being done, if it takes more than `SLOW` seconds."""
    message = f"obax.lab.compare {what} ..."
    timer = threading.Timer(SLOW, print, [message], {"file": sys.stderr, "flush": True})
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _streams(rounds: PyTree) -> tuple[list[PyTree], int]:
    """Return the streams and their common length."""
    streams = rounds if isinstance(rounds, list) else [rounds]
    leaves = [leaf for rounds in streams for leaf in jax.tree.leaves(rounds)]
    lengths = {len(leaf) if np.ndim(leaf) else 0 for leaf in leaves}
    if len(lengths) != 1 or 0 in lengths:
        raise ValueError(
            "rounds must be one stream, stacked on axis 0, or a list of streams of one length, but "
            f"has leaves of lengths {sorted(lengths)}."
        )
    return streams, lengths.pop()


def _check(problem: Problem, algorithms: Mapping[str, Algorithm], outer_var: PyTree) -> None:
    """Raise a `ValueError` if the arguments do not fit together."""
    if not isinstance(algorithms, Mapping) or not algorithms:
        raise ValueError(
            f"algorithms must be a dict of at least one algorithm by name, but got {algorithms!r}."
        )
    for name, algorithm in algorithms.items():
        where = f"algorithms[{name!r}]"
        check(algorithm, where, ALGORITHM)
        if not eqx.tree_equal(algorithm.problem, problem):
            raise ValueError(
                f"{where}.problem must be the problem of the comparison, but is "
                f"{algorithm.problem!r}; the losses of two problems cannot be compared."
            )
    if outer_var is None:
        raise ValueError(
            "outer_var must be the start of the leader, but is None; it may be left out only if "
            "the problem is an instance of obax.problems."
        )


def _kind(problem: Problem, regret: str) -> str | None:
    """Return which regret is measured, or `None`."""
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
    starts: dict[str, PyTree],
) -> dict[str, list[np.ndarray]]:
    """Return cumulative regrets. All algorithms have the same comparators on a stream."""
    measured: dict[str, list[np.ndarray]] = {name: [] for name in histories}
    for number, rounds in enumerate(streams):
        known = {"inner_start": starts["inner_start"]}
        if kind != "local":
            solve = regrets.outer_solutions if kind == "dynamic" else regrets.static_solution
            known["comparators"] = solve(problem, rounds, **starts)
        for name, of_algorithm in histories.items():
            curve = getattr(regrets, kind)(problem, of_algorithm[number], rounds, **known)
            measured[name].append(cumulative(curve.terms))
    return measured
