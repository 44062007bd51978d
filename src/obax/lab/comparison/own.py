"""One's own problem and algorithms side by side, by the measures of the experiment: the loss that
each suffered, its regret where that can be had, what it asked of the oracles, and its time."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import numpy as np
import pandas as pd

from ... import regret as regrets
from ..._support import drawing, validation
from ..._support.trees import PyTree
from ...algorithms import Algorithm, Info
from ...online import run
from ...problem import Problem
from ...problems import Instance
from ..kit.curves import cumulative
from ..kit.numbers import counted, readable
from ..kit.verdict import Gain, with_interval
from .config import Config
from .methods import COUNTS, cost, seconds_of

REGRETS = ("dynamic", "static", "local")
LOSS = "loss suffered"


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
) -> "Comparison":
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
        start = (problem.outer_var, problem.inner_var)
        outer_var = start[0] if outer_var is None else outer_var
        inner_var = start[1] if inner_var is None else inner_var
        problem = problem.problem
    streams, horizon = _streams(rounds)
    _check(problem, algorithms, outer_var)
    kind = _kind(problem, regret)
    example = jax.tree.map(lambda a: jax.ShapeDtypeStruct(a.shape[1:], a.dtype), streams[0])
    histories, runners = {}, []
    for name, algorithm in algorithms.items():
        state = algorithm.init(outer_var, inner_var, example, buffers=buffers)
        histories[name] = [run(algorithm, state, one, on_rejected="skip")[1] for one in streams]
        runners.append(lambda a=algorithm, s=state: run(a, s, streams[0], on_rejected="skip"))
    seconds = seconds_of(runners, validation.count(timings, "timings"), horizon)
    curves = {LOSS: {name: _losses(mine) for name, mine in histories.items()}}
    if kind is not None:
        curves[f"{kind} regret"] = _regrets(kind, problem, histories, streams, outer_var)
    return Comparison(histories, curves, dict(zip(histories, seconds, strict=True)))


@dataclasses.dataclass(frozen=True, repr=False)
class Comparison:
    """What `obax.lab.compare` found. Printed, it is the answer and a small table.

    `histories` are those of each algorithm on each stream, `curves` the cumulative ones by measure
    and algorithm, `seconds` those of a round.
    """

    histories: dict[str, list[Info]]
    curves: dict[str, dict[str, list[np.ndarray]]]
    seconds: dict[str, float]

    @property
    def order(self) -> list[str]:
        """The algorithms, the one that suffered least first."""
        return sorted(self.histories, key=lambda name: np.mean(self._ends(LOSS, name)))

    @property
    def best(self) -> str:
        """The one that suffered least."""
        return self.order[0]

    @property
    def answer(self) -> str:
        """Which suffered least, by how much, and what it cost."""
        first, *others = self.order
        mine = self._ends(LOSS, first)
        if not np.all(np.isfinite(mine)):
            return "None of them suffered a finite loss: all diverged. Smaller steps may help."
        among = "" if len(mine) == 1 else f" of {len(mine)} streams"
        horizon = len(self.curves[LOSS][first][0])
        said = f"{first} suffered least: {with_interval(mine)} over {horizon:,} rounds{among}"
        if others:
            said += self._beside(mine, others[0])
        calls = np.mean([cost(Config(), one).mean() for one in self.histories[first]])
        spent = f"A round of it costs {readable(calls)} calls and {_micro(self.seconds[first])} us."
        words = [f"{said}.", spent]
        for measure in [name for name in self.curves if name != LOSS]:
            least = min(self.order, key=lambda name: np.mean(self._ends(measure, name)))
            words += [f"The least {measure} is that of {least}."] if least != first else []
        return " ".join(words)

    def _beside(self, mine: np.ndarray, other: str) -> str:
        """How far the best is ahead of another."""
        theirs = self._ends(LOSS, other)
        if not np.all(np.isfinite(theirs)):
            return f"; the next, {other}, diverged"
        gain = Gain.of(theirs - mine)
        share = f"{gain.mean / abs(np.mean(theirs)):.1%}" if np.mean(theirs) else "0%"
        ahead = f", {gain.size} ({share}) less than the next, {other}"
        if gain.seeds == 1:
            return f"{ahead} (one stream, so without an interval)"
        return f"{ahead}, which is within noise" if gain.verdict == "within noise" else ahead

    def to_pandas(self) -> pd.DataFrame:
        """A row for each algorithm and stream, in the order of the losses; counts are those of a
        round, `calls` all of them in gradients, as `obax run compare` counts."""
        rows = []
        for name in self.order:
            for number, history in enumerate(self.histories[name]):
                row: dict[str, Any] = {"algorithm": name, "stream": number}
                row |= {measure: self._ends(measure, name)[number] for measure in self.curves}
                row["calls"] = cost(Config(), history).mean()
                row |= {count: np.asarray(getattr(history, count)).mean() for count in COUNTS}
                row["us per round"] = 1e6 * self.seconds[name]
                rows.append(row | {"rejected": int(history.rejected)})
        return pd.DataFrame(rows)

    def plot(self, file: str | Path | None = None) -> Any:
        """One matplotlib figure, a panel for each measure over the rounds; saved to `file` where
        one is named."""
        panels = [
            drawing.Panel(f"{measure}, summed", {name: lines[name] for name in self.order}, _far(lines))
            for measure, lines in self.curves.items()
        ]
        return drawing.figure(panels, "round", file)

    def __repr__(self) -> str:
        return f"{self.answer}\n\n{self._small().to_string(index=False)}"

    def _repr_html_(self) -> str:
        return f"<p>{html.escape(self.answer)}</p>{self._small().to_html(index=False, border=0)}"

    def _small(self) -> pd.DataFrame:
        """The table as it is read: means over the streams, without counts that are all zero."""
        whole = self.to_pandas()
        rows = []
        for name in self.order:
            mine = whole[whole.algorithm == name]
            row = {"algorithm": name}
            row |= {measure: with_interval(mine[measure]) for measure in self.curves}
            for count in ("calls", *COUNTS):
                if count == "calls" or whole[count].any():
                    row[count.replace("_", " ")] = readable(mine[count].mean())
            row["us per round"] = _micro(self.seconds[name])
            if whole.rejected.any():
                row["rejected"] = str(mine.rejected.sum())
            rows.append(row)
        return pd.DataFrame(rows)

    def _ends(self, measure: str, name: str) -> np.ndarray:
        return np.asarray([line[-1] for line in self.curves[measure][name]])


def _micro(seconds: float) -> str:
    return readable(1e6 * seconds)


def _streams(rounds: PyTree) -> tuple[list[PyTree], int]:
    """The streams, and the length that they all have."""
    streams = rounds if isinstance(rounds, list) else [rounds]
    found = {len(leaf) for one in streams for leaf in jax.tree.leaves(one)}
    if len(found) != 1:
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


def _losses(histories: list[Info]) -> list[np.ndarray]:
    return [cumulative(one.played_value) for one in histories]


def _regrets(
    kind: str,
    problem: Problem,
    histories: dict[str, list[Info]],
    streams: list[PyTree],
    outer_var: PyTree,
) -> dict[str, list[np.ndarray]]:
    """Cumulative regrets, all against the same comparators."""
    raise NotImplementedError
