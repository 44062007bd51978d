"""Experiments in which methods learn from one stream and are evaluated on held-out data.

How their parts are made, and how accuracies and times are read, compared and drawn.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
import pandas as pd

from .config import Method
from .experiment import Parts, Texts
from .results import Answer, Claim, Figure
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


class Panel(NamedTuple):
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
    accuracy = select(table, metric="test_accuracy").sort_values("t")
    seconds = select(table, metric="seconds").value.max()
    return f"{accuracy.method.iloc[0]}: {accuracy.value.iloc[-1]:.1%}, {seconds:.3g} s"


def one_example(table: pd.DataFrame) -> float:
    """Return what one test example changes in a balanced accuracy, in points.

    The accuracies of a class are multiples of one over the number of its examples, so that the
    least distance between two of them is that share. The least over classes and seeds counts.
    """
    of_classes = table[table.metric.str.startswith("test_class_")]
    shares = of_classes.dropna(subset="value").groupby(["metric", "seed"]).value
    steps = [np.diff(np.unique(values)).min(initial=1.0) for _, values in shares]
    return 100 * min(steps) / of_classes.metric.nunique() if steps else 0.0


Piece = tuple[str, str]
"""Part of a claim: the measurement in words, and its verdict."""


def piece(name: str, gain: Gain, verdict: str | None = None, unit: str = "points") -> Piece:
    """Return a gain as part of a claim, with the gain's own verdict unless another is given."""
    return f"{name}: {gain.words(unit)}", gain.verdict if verdict is None else verdict


class Runs(Generic[M]):
    """The runs of a table by method: those of `methods` that the table has.

    Final figures are means over the measurements after the `share` of the rounds. The `resolution`
    is the value of one test example in points of accuracy. Claims take their texts from `texts`,
    and from those that all experiments share.
    """

    def __init__(
        self,
        methods: Iterable[M],
        table: pd.DataFrame,
        texts: Texts,
        share: float,
        resolution: float = 0.0,
    ):
        selected = {m: select(table, kind=m.kind, **m.options()) for m in methods}
        self.rows = {
            method: {str(metric): some for metric, some in rows.groupby("metric", sort=False)}
            for method, rows in selected.items()
            if len(rows)
        }
        self.methods = list(self.rows)
        self.data = str(table.data.iloc[0])
        self.share, self.resolution = share, resolution
        self._shared = Texts(__file__, data=self.data, share=share)
        self.texts = texts
        texts.values["data"] = self.data

    def name(self, method: M) -> str:
        """Return the label of a method, with its step sizes if several were run."""
        name = method.label()
        for step in ("alpha", "beta"):
            sizes = {method: method.options().get(step) for method in self.methods}
            size = f"{step} = {sizes[method] or 0:g}"
            if len({*sizes.values()} - {None}) > 1 and sizes[method] and size not in name:
                name += f", {size}"
        return name

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
        self, key: str, pieces: Sequence[Piece], intro: Sequence[str] = (), **values: object
    ) -> Claim:
        """Return a claim of `report.toml` with its verdict. The `values` are those of its texts.

        A claim without pieces is not tested.
        """
        texts = self.texts if key in self.texts.templates["claims"] else self._shared
        rule = chain if "is_order" in texts.templates["claims"][key] else combined
        words = "; ".join([*intro, *(measured for measured, _ in pieces)])
        words = words if pieces else self._shared("untested")
        verdict = rule([verdict for _, verdict in pieces])
        return texts.claim(key, words, verdict, self.texts("setting"), **values)

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

    def replay_claims(self, method: M, goal: str, goals: Sequence[M], last: M) -> Iterator[Claim]:
        """Yield claims of ours on a replay window: over a kind of methods, over the last rounds.

        It must be at least as accurate as each of `goals`, in a fifth of its time.
        """
        label = method.label()
        if not goals:
            yield self.claim("replay", [], name=label, goal=goal)
        for other in goals:
            ours, theirs = self.last(method, CLOCK), self.last(other, CLOCK)
            share = ours.mean() / theirs.mean()
            time = f"{ours.mean():.3g} s for {theirs.mean():.3g} s ({share:.2g} of it)"
            pieces = [
                piece(f"over {other.label()}", self.accuracy_gain(method, other)),
                piece(f"{time}, below a fifth by", paired(theirs / 5, ours), unit="s"),
            ]
            yield self.claim("replay", pieces, name=f"{label}; {other.label()}", goal=goal)
        if last in self.methods:
            pieces = [piece(f"over {last.label()}", self.accuracy_gain(method, last))]
            yield self.claim("replay_over_last", pieces, name=label)

    def larger_is_better_and_slower(
        self, id: str, symbol: str, methods: Sequence[tuple[int, M]], clock: str
    ) -> Iterator[Claim]:
        """Yield two claims on a number of the methods: larger is better, larger is slower."""
        better, slower = [], []
        for (small, lesser), (large, greater) in itertools.pairwise(methods):
            step = f"{symbol} = {large} over {small}"
            better.append(piece(step, self.accuracy_gain(greater, lesser)))
            slower.append(piece(step, self.time_gain(lesser, greater, clock), unit="s"))
        accuracies = [f"{symbol} = {n}: {100 * self.final(m).mean():.1f}" for n, m in methods]
        seconds = [f"{symbol} = {n}: {self.last(m, clock).mean():.3g} s" for n, m in methods]
        yield self.claim("better", better, accuracies, id=id, symbol=symbol)
        yield self.claim("slower", slower, seconds, id=id, symbol=symbol)

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
        numbers = [number(method) for method in methods]
        if len(set(numbers)) < 2:
            return [], []
        by_number = list(zip(methods, numbers, strict=True))
        most, least = ([m for m, n in by_number if n == end(numbers)] for end in (max, min))
        return most, least

    def answer(
        self,
        topic: str,
        ones: Sequence[M],
        others: Sequence[M],
        doubt: tuple[str, str] | None = None,
        remarks: Sequence[str] = (),
    ) -> Answer:
        """Answer whether the best of `ones` ends above the best of `others`, and in which time.

        The question is that of the topic in `report.toml`.

        The table and the figure show every method, and the answer names another method that leads
        them. A `doubt` is what else may explain a gain, and why; with a doubt a gain is not a yes.
        The `remarks` follow.
        """
        one, other = self.best(ones), self.best(others)
        words = [self._shared("untested_answer")]
        if one and other:
            words = [self._difference(one, other, len(ones), doubt), *self._leader(one, other)]
        frame = pd.DataFrame(
            {
                "method": self.name(method),
                "test accuracy, %": with_interval(100 * self.final(method)),
                "seconds": with_interval(self.last(method)),
                "seeds": len(self.final(method)),
            }
            for method in self.methods
        )
        words += [*remarks, *self._synthetic()]
        table = self._shared.table("summary", frame)
        question = self.texts.templates["questions"][topic]
        return Answer(question, " ".join(words), table, *self.panels([TEST]))

    def _difference(self, one: M, other: M, choices: int, doubt: tuple[str, str] | None) -> str:
        gain = self.accuracy_gain(one, other)
        lead = answer_words([gain.verdict], "method")
        if doubt and gain.verdict == "reproduced":
            lead = f"Not told apart from {doubt[0]}"
        return self._shared(
            "answer",
            lead=lead,
            one=self.name(one),
            other=self.name(other),
            choices=choices,
            gain=dataclasses.replace(gain, mean=abs(gain.mean)),
            where="below" if gain.mean < 0 else "above",
            ratio=readable(self.last(one).mean() / self.last(other).mean()),
            doubt=doubt,
        )

    def _leader(self, one: M, other: M) -> Iterator[str]:
        """Yield a sentence on the method that leads the table, if it is neither of the two."""
        final = {method: self.final(method).mean() for method in self.methods}
        first, better = (max(some, key=final.__getitem__) for some in (final, (one, other)))
        gain = self.accuracy_gain(first, better)
        if first not in (one, other) and gain.mean > 0:
            names = {"first": self.name(first), "better": self.name(better)}
            yield self._shared("leader", gain=gain, **names)

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
        return self._synthetic() + [self._shared("rejected", listed=listed)] * bool(listed)

    def _synthetic(self) -> list[str]:
        return [self._shared("synthetic")] * ("(synthetic)" in self.data)
