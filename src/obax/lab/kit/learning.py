"""Tables of experiments in which methods learn from one stream and are judged on held-out data:
how accuracies and times are read, compared and drawn."""

import dataclasses
import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import Generic, TypeVar

import pandas as pd

from ..report import Answer, Claim, Figure, Table
from .curves import band
from .method import Method
from .numbers import readable
from .table import select
from .verdict import Gain, asked, chain, combined, paired, with_interval

M = TypeVar("M", bound=Method)
STEPS = "Steps only: compilation, data and evaluation are not counted."
GOAL = "at no more than a fifth of its time"
SYNTHETIC = "The data is synthetic: these figures say nothing about the real data set."


@dataclasses.dataclass(frozen=True)
class Panel:
    """A figure of one metric over the rounds, with a curve for each method."""

    name: str
    metric: str
    title: str
    unit: str
    scale: float = 1.0
    time: bool = False


TIME = Panel("time", "seconds", "Cumulative runtime", "seconds", time=True)
TRAINING = Panel("training", "train_accuracy", "Training accuracy", "per cent", 100.0)
TEST = Panel("test", "test_accuracy", "Test accuracy", "per cent", 100.0)


class Runs(Generic[M]):
    """The runs of a table by their methods: those of `methods` that it has.

    Final figures are means over the measurements after the `share` of the rounds.
    """

    def __init__(self, methods: Iterable[M], table: pd.DataFrame, share: float):
        found = {m: select(table, kind=m.kind, **m.settings()) for m in methods}
        self.rows = {
            method: {str(metric): some for metric, some in rows.groupby("metric", sort=False)}
            for method, rows in found.items()
            if len(rows)
        }
        self.methods = list(self.rows)
        self.data = str(table.data.iloc[0])
        self.synthetic = "(synthetic)" in self.data
        self.share = share

    def name(self, method: M) -> str:
        """The label of a method, with its step sizes where several were run."""
        sizes = {
            step: {size for m in self.methods if (size := m.settings().get(step)) is not None}
            for step in ("alpha", "beta")
        }
        own = method.settings()
        varied = [step for step in sizes if len(sizes[step]) > 1 and own[step] is not None]
        said = [
            word for step in varied if (word := f"{step} = {own[step]:g}") not in method.label()
        ]
        return ", ".join([method.label(), *said])

    def curve(self, method: M, metric: str = "test_accuracy") -> pd.DataFrame:
        """The metric, rounds by seeds."""
        return self.rows[method][metric].pivot(index="t", columns="seed", values="value")

    def final(self, method: M, metric: str = "test_accuracy") -> pd.Series:
        """The metric at the end of the runs, by seed."""
        return self._end(self.curve(method, metric))

    def _end(self, curve: pd.DataFrame) -> pd.Series:
        return curve[curve.index > self.share * curve.index.max()].mean()

    def last(self, method: M, metric: str = "seconds") -> pd.Series:
        """The metric after the last round, by seed: all seconds, for one."""
        return self.curve(method, metric).iloc[-1]

    def points(self, one: M, other: M) -> Gain:
        """By how many points `one` ends above `other` in test accuracy, on the rounds and the seeds
        that both have."""
        ours, theirs = self.curve(one).align(self.curve(other), join="inner")
        return paired(100 * self._end(ours), 100 * self._end(theirs))

    def sooner(self, one: M, other: M, metric: str = "seconds") -> Gain:
        """How many seconds fewer than `other` the steps of `one` take, up to the last round that
        both have."""
        ours, theirs = self.curve(one, metric).align(self.curve(other, metric), join="inner")
        return paired(theirs.iloc[-1], ours.iloc[-1]) if len(ours) else Gain.of([])

    def goal(self, one: M, other: M, clock: str) -> "list[Piece]":
        """That `one` is at least as accurate as `other`, at no more than a fifth of its time: two
        pieces of a claim."""
        ours, theirs = self.last(one, clock), self.last(other, clock)
        share = ours.mean() / theirs.mean()
        time = (
            f"{ours.mean():.3g} s for {theirs.mean():.3g} s ({share:.2g} of it), below a fifth by"
        )
        return [
            piece(f"over {other.label()}", self.points(one, other)),
            piece(time, paired(theirs / 5, ours), unit="s"),
        ]

    def ladder(
        self,
        id: str,
        name: str,
        symbol: str,
        rungs: Sequence[tuple[int, M]],
        setting: str,
        clock: str = "seconds",
    ) -> list[Claim]:
        """Two claims on methods by a number of theirs: the larger, the better; and the slower."""
        better, slower = [], []
        for (small, lesser), (large, greater) in itertools.pairwise(rungs):
            step = f"{symbol} = {large} over {small}"
            better.append(piece(step, self.points(greater, lesser)))
            slower.append(piece(step, self.sooner(lesser, greater, clock), unit="s"))
        accuracies = [f"{symbol} = {n}: {100 * self.final(m).mean():.1f}" for n, m in rungs]
        seconds = [f"{symbol} = {n}: {self.last(m, clock).mean():.3g} s" for n, m in rungs]
        return [
            judged(f"{id} ({name}{what}", claimed, pieces, setting, rule=chain, intro=intro)
            for what, claimed, pieces, intro in (
                (")", f"the larger {symbol}, the better the accuracy", better, accuracies),
                (", time)", f"the larger {symbol}, the longer the runtime", slower, seconds),
            )
        ]

    def best(self, methods: Iterable[M]) -> M | None:
        """Of those with the most seeds, the one that ends with the best test accuracy."""
        final = {method: self.final(method) for method in methods}
        return max(final, key=lambda m: (len(final[m]), final[m].mean()), default=None)

    def extremes(
        self, methods: Sequence[M], number: Callable[[M], float]
    ) -> tuple[list[M], list[M]]:
        """Those that have the most of a number, and those that have the least; none if all have
        the same."""
        numbers = {method: number(method) for method in methods}
        ends = sorted(set(numbers.values()))
        if len(ends) < 2:
            return [], []
        most, least = ([m for m in methods if numbers[m] == end] for end in (ends[-1], ends[0]))
        return most, least

    def contest(
        self,
        question: str,
        ones: Sequence[M],
        others: Sequence[M],
        doubt: tuple[str, str] | None = None,
    ) -> Answer:
        """Whether the best of the ones ends above the best of the others, and at what time; with
        every method in the table and in the figure. A `doubt` says what else a gain may be due to,
        and why: then it is no yes."""
        one, other = self.best(ones), self.best(others)
        words = "Not tested here: methods that the question is about were not run."
        if one and other:
            gain, where = self.points(one, other), "above"
            lead = asked([gain.verdict], "method")
            if doubt and gain.verdict == "reproduced":
                lead = f"Not told apart from {doubt[0]}"
            if gain.mean < 0:
                gain, where = dataclasses.replace(gain, mean=-gain.mean), "below"
            ratio = self.last(one).mean() / self.last(other).mean()
            chosen = f"{self.name(one)}{f' (best of {len(ones)})' if len(ones) > 1 else ''}"
            words = (
                f"{lead}: {chosen} ends {gain.size} points {where} {self.name(other)} in "
                f"test accuracy ({gain.basis}), in "
                f"{readable(ratio)} times its seconds{f' ({doubt[1]})' if doubt else ''}."
            )
        if self.synthetic:
            words += f" {SYNTHETIC}"
        frame = pd.DataFrame(
            {
                "method": self.name(method),
                "test accuracy, %": with_interval(100 * self.final(method)),
                "seconds": with_interval(self.last(method)),
                "seeds": len(self.final(method)),
            }
            for method in self.methods
        )
        caption = (
            f"{self.data}: mean over the measurements after {self.share:.0%} of the rounds, then "
            "mean over seeds with its 95% t-interval; seconds of all steps, without compilation, "
            "data and evaluation."
        )
        table = Table("summary", "Test accuracy and time", caption, frame)
        (figure,) = self.panels([TEST])
        return Answer(question, words, table, figure)

    def panels(self, panels: Sequence[Panel]) -> list[Figure]:
        """Figures over the rounds."""
        return [
            Figure(
                panel.name,
                f"{panel.title} ({self.data})",
                "round t",
                panel.unit,
                [
                    band(rows[panel.metric], self.name(m), hover=m.full(), scale=panel.scale)
                    for m, rows in self.rows.items()
                ],
                f"{self.data}." + (f" {STEPS}" if panel.time else ""),
                log_y=panel.time,
            )
            for panel in panels
        ]

    def notes(self) -> list[str]:
        """What the reader of any such report must know: synthetic data, rejected rounds."""
        counts = {self.name(m): int(self.last(m, "rejected").sum()) for m in self.methods}
        listed = ", ".join(f"{name} {count}" for name, count in counts.items() if count)
        found = [SYNTHETIC] * self.synthetic
        return found + [f"Rounds that the guard rejected, over all seeds: {listed}."] * bool(listed)


Piece = tuple[str, str]
"""Of a claim: what was measured, in words, and the verdict on it."""


def piece(name: str, gain: Gain, verdict: str | None = None, unit: str = "points") -> Piece:
    """A gain as a piece of a claim; the verdict is the gain's own unless the claim is another."""
    return f"{name}: {gain.words(unit)}", gain.verdict if verdict is None else verdict


def above(gain: Gain, margin: float) -> str:
    """The verdict on a claim that a gain is above the margin."""
    return dataclasses.replace(gain, mean=gain.mean - margin).verdict


def judged(
    id: str,
    claimed: str,
    pieces: Sequence[Piece],
    setting: str,
    *,
    rule: Callable[[Sequence[str]], str] = combined,
    intro: Sequence[str] = (),
) -> Claim:
    """A claim with what was measured. Without pieces it is not tested."""
    words = "; ".join([*intro, *(said for said, _ in pieces)])
    if not pieces:
        words = "these runs cannot tell: a method that it names, or the rounds, are missing"
    return Claim(id, claimed, words, rule([verdict for _, verdict in pieces]), setting)
