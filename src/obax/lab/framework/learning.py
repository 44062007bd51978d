"""Experiments in which methods learn from one stream and are evaluated on held-out data.

How their parts are made, and how accuracies and times are read, compared and drawn.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Generic, TypeVar

import pandas as pd

from .config import Method
from .experiment import Parts
from .results import Answer, Claim, Figure, Table
from .statistics import (
    Gain,
    answer_words,
    chain,
    combined,
    mean_over_seeds,
    paired,
    readable,
    select,
    with_interval,
)

M = TypeVar("M", bound=Method)
CLOCK = "processor_seconds"
"""The time that other programs disturb least."""
ONLY_STEPS = "Steps only: compilation, data and evaluation are not counted."
SYNTHETIC = "The data is synthetic: these figures say nothing about the real data set."


@dataclasses.dataclass(frozen=True)
class Panel:
    """A figure of one metric over the rounds, with a curve for each method."""

    name: str
    metric: str
    title: str
    unit: str
    scale: float = 1.0
    is_time: bool = False


TIME = Panel("time", "seconds", "Cumulative runtime", "seconds", is_time=True)
TRAINING = Panel("training", "train_accuracy", "Training accuracy", "per cent", 100.0)
TEST = Panel("test", "test_accuracy", "Test accuracy", "per cent", 100.0)


def parts_by_seed(config: Any, compare: Callable[[Any, Any, int], pd.DataFrame]) -> Parts:
    """Return `compare(config, method, seed)` as parts, ordered to load each seed's data once."""
    return {
        f"seed{seed}-{name}": functools.partial(compare, config, method, seed)
        for seed in range(config.seeds)
        for name, method in config.runs().items()
        if seed < config.seeds_of(method)
    }


def accuracy_headline(table: pd.DataFrame) -> str:
    """Return the last test accuracy of a part and its seconds, for the progress bar."""
    accuracy = table[table.metric == "test_accuracy"].sort_values("t")
    seconds = table[table.metric == "seconds"].value.max()
    return f"{accuracy.method.iloc[0]}: {accuracy.value.iloc[-1]:.1%}, {seconds:.3g} s"


Piece = tuple[str, str]
"""Part of a claim: the measurement in words, and its verdict."""


def piece(name: str, gain: Gain, verdict: str | None = None, unit: str = "points") -> Piece:
    """Return a gain as part of a claim, with the gain's own verdict unless another is given."""
    return f"{name}: {gain.words(unit)}", gain.verdict if verdict is None else verdict


class Runs(Generic[M]):
    """The runs of a table by method: those of `methods` that the table has.

    Final figures are means over the measurements after the `share` of the rounds. The `resolution`
    is the value of one test example in points of accuracy, if it is known. `setting` is what claims
    say about the run.
    """

    setting = ""

    def __init__(
        self, methods: Iterable[M], table: pd.DataFrame, share: float, resolution: float = 0.0
    ):
        selected = {m: select(table, kind=m.kind, **m.options()) for m in methods}
        self.rows = {
            method: {str(metric): some for metric, some in rows.groupby("metric", sort=False)}
            for method, rows in selected.items()
            if len(rows)
        }
        self.methods = list(self.rows)
        self.data = str(table.data.iloc[0])
        self.synthetic = "(synthetic)" in self.data
        self.share, self.resolution = share, resolution

    def name(self, method: M) -> str:
        """Return the label of a method, with its step sizes if several were run."""
        own, label = method.options(), method.label()
        words = [label]
        for step in ("alpha", "beta"):
            sizes = {method.options().get(step) for method in self.methods} - {None}
            if len(sizes) > 1 and own[step] is not None:
                size = f"{step} = {own[step]:g}"
                words += [size] if size not in label else []
        return ", ".join(words)

    def curve(self, method: M, metric: str = "test_accuracy") -> pd.DataFrame:
        """Return the metric, rounds by seeds."""
        return self.rows[method][metric].pivot(index="t", columns="seed", values="value")

    def final(self, method: M, metric: str = "test_accuracy") -> pd.Series:
        """Return the mean of the metric at the end of the run, by seed."""
        return self._end(self.curve(method, metric))

    def _end(self, curve: pd.DataFrame) -> pd.Series:
        return curve[curve.index > self.share * curve.index.max()].mean()

    def last(self, method: M, metric: str = "seconds") -> pd.Series:
        """Return the metric after the last round, by seed."""
        return self.curve(method, metric).iloc[-1]

    def claim(
        self,
        id: str,
        claimed: str,
        pieces: Sequence[Piece],
        kinds: Sequence[str],
        *,
        rule: Callable[[Sequence[str]], str] = combined,
        intro: Sequence[str] = (),
        windows: Sequence[int] = (),
    ) -> Claim:
        """Return a claim with its verdict. `kinds` and `windows` are those that it is about.

        A claim without pieces is not tested.
        """
        words = "; ".join([*intro, *(measured for measured, _ in pieces)])
        if not pieces:
            words = "these runs cannot tell: a method that it names, or the rounds, are missing"
        verdict = rule([verdict for _, verdict in pieces])
        return Claim(id, claimed, words, verdict, self.setting, tuple(kinds), tuple(windows))

    def accuracy_gain(self, one: M, other: M) -> Gain:
        """Return by how many points of test accuracy `one` ends above `other`.

        Only rounds and seeds that both have count.
        """
        ours, theirs = self.curve(one).align(self.curve(other), join="inner")
        return paired(100 * self._end(ours), 100 * self._end(theirs), self.resolution)

    def time_gain(self, one: M, other: M, metric: str = "seconds") -> Gain:
        """Return how many seconds less the steps of `one` take than those of `other`.

        The times are those up to the last round that both have.
        """
        ours, theirs = self.curve(one, metric).align(self.curve(other, metric), join="inner")
        return paired(theirs.iloc[-1], ours.iloc[-1]) if len(ours) else Gain.of([])

    def replay_claims(self, method: M, goal: str, goals: Iterable[M], last: M) -> Iterator[Claim]:
        """Yield claims of ours on a replay window: over a kind of methods, over the last rounds.

        It must be at least as accurate as each of `goals`, in a fifth of its time.
        """
        claimed = (
            f"ours: OAGD with a replay window is at least as accurate as {goal}, at no more than a "
            "fifth of its time"
        )
        for other in goals or [None]:
            pieces, name = [], method.label()
            if other is not None:
                ours, theirs = self.last(method, CLOCK), self.last(other, CLOCK)
                share = ours.mean() / theirs.mean()
                time = f"{ours.mean():.3g} s for {theirs.mean():.3g} s ({share:.2g} of it)"
                pieces = [
                    piece(f"over {other.label()}", self.accuracy_gain(method, other)),
                    piece(f"{time}, below a fifth by", paired(theirs / 5, ours), unit="s"),
                ]
                name += f"; {other.label()}"
            yield self.claim(f"replay ({name})", claimed, pieces, ["OAGD", goal])
        if last in self.methods:
            claimed = "ours: drawing the window from the past is better than its last rounds"
            pieces = [piece(f"over {last.label()}", self.accuracy_gain(method, last))]
            yield self.claim(f"replay over last ({method.label()})", claimed, pieces, ["OAGD"])

    def larger_is_better_and_slower(
        self, id: str, symbol: str, methods: Sequence[tuple[int, M]], clock: str
    ) -> list[Claim]:
        """Return two claims on a number of the methods: larger is better, larger is slower."""
        better, slower = [], []
        for (small, lesser), (large, greater) in itertools.pairwise(methods):
            step = f"{symbol} = {large} over {small}"
            better.append(piece(step, self.accuracy_gain(greater, lesser)))
            slower.append(piece(step, self.time_gain(lesser, greater, clock), unit="s"))
        accuracies = [f"{symbol} = {n}: {100 * self.final(m).mean():.1f}" for n, m in methods]
        seconds = [f"{symbol} = {n}: {self.last(m, clock).mean():.3g} s" for n, m in methods]
        claims = (
            (")", f"the larger {symbol}, the better the accuracy", better, accuracies),
            (", time)", f"the larger {symbol}, the longer the runtime", slower, seconds),
        )
        return [
            self.claim(f"{id}{end}", claimed, pieces, ["OAGD"], rule=chain, intro=intro)
            for end, claimed, pieces, intro in claims
        ]

    def best(self, methods: Iterable[M]) -> M | None:
        """Return the method with the best final test accuracy, of those with the most seeds."""
        final = {method: self.final(method) for method in methods}
        return max(final, key=lambda m: (len(final[m]), final[m].mean()), default=None)

    def extremes(
        self, methods: Sequence[M], number: Callable[[M], float]
    ) -> tuple[list[M], list[M]]:
        """Return the methods with the largest number and those with the smallest.

        Both lists are empty if all numbers are equal.
        """
        numbers = {method: number(method) for method in methods}
        ends = sorted(set(numbers.values()))
        if len(ends) < 2:
            return [], []
        most, least = ([m for m in methods if numbers[m] == end] for end in (ends[-1], ends[0]))
        return most, least

    def answer(
        self,
        question: str,
        ones: Sequence[M],
        others: Sequence[M],
        doubt: tuple[str, str] | None = None,
        remarks: Sequence[str] = (),
    ) -> Answer:
        """Answer whether the best of `ones` ends above the best of `others`, and in which time.

        The table and the figure show every method, and the answer names another method that leads
        them. A `doubt` is what else may explain a gain, and why; with a doubt a gain is not a yes.
        The `remarks` follow.
        """
        one, other = self.best(ones), self.best(others)
        words = "Not tested here: methods that the question is about were not run."
        if one and other:
            words = self._answer(one, other, len(ones), doubt) + self._leading_method(one, other)
        words = " ".join([words, *remarks, *[SYNTHETIC] * self.synthetic])
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
        return Answer(question, words, table, *self.panels([TEST]))

    def _answer(self, one: M, other: M, choices: int, doubt: tuple[str, str] | None) -> str:
        gain, where = self.accuracy_gain(one, other), "above"
        lead = answer_words([gain.verdict], "method")
        if doubt and gain.verdict == "reproduced":
            lead = f"Not told apart from {doubt[0]}"
        if gain.mean < 0:
            gain, where = dataclasses.replace(gain, mean=-gain.mean), "below"
        ratio = self.last(one).mean() / self.last(other).mean()
        chosen = f"{self.name(one)}{f' (best of {choices})' if choices > 1 else ''}"
        return (
            f"{lead}: {chosen} ends {gain.size} points {where} {self.name(other)} in test accuracy "
            f"({gain.basis}), in {readable(ratio)} times its seconds"
            f"{f' ({doubt[1]})' if doubt else ''}."
        )

    def _leading_method(self, one: M, other: M) -> str:
        """Return a sentence on the method that leads the table, if it is neither of the two."""
        final = {method: self.final(method).mean() for method in self.methods}
        first = max(final, key=lambda method: final[method])
        better = max(one, other, key=lambda method: final[method])
        if first in (one, other) or not (gain := self.accuracy_gain(first, better)).mean > 0:
            return ""
        return (
            f" {self.name(first)} leads the table; over {self.name(better)}: "
            f"{gain.words('points')}."
        )

    def panels(self, panels: Sequence[Panel]) -> list[Figure]:
        """Return figures over the rounds."""
        return [
            Figure(
                panel.name,
                f"{panel.title} ({self.data})",
                "round t",
                panel.unit,
                [
                    mean_over_seeds(
                        rows[panel.metric],
                        self.name(method),
                        kind=method.kind,
                        w=getattr(method, "w", None),
                        details=method.full_label(),
                        scale=panel.scale,
                    )
                    for method, rows in self.rows.items()
                ],
                f"{self.data}." + (f" {ONLY_STEPS}" if panel.is_time else ""),
                log_y=panel.is_time,
            )
            for panel in panels
        ]

    def notes(self) -> list[str]:
        """Return what every reader must know: synthetic data and rejected rounds."""
        counts = {self.name(m): int(self.last(m, "rejected").sum()) for m in self.methods}
        listed = ", ".join(f"{name} {count}" for name, count in counts.items() if count)
        rejected = f"Rounds rejected because they were not finite, over all seeds: {listed}."
        return [SYNTHETIC] * self.synthetic + [rejected] * bool(listed)
