"""What an experiment found: answers, claims, figures and tables. Data only."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    import pandas as pd

Value: TypeAlias = str | int | float | bool | None
"""What identifies a row of a table."""
VERDICTS = ("reproduced", "partly", "within noise", "not reproduced", "not tested")


@dataclasses.dataclass(frozen=True)
class Claim:
    """A claim of the paper beside the measurement.

    `kinds` and `windows` are the kinds of method and the window sizes that the claim is about. If
    one of them was not run, the verdict becomes "not tested".
    """

    id: str
    claimed: str
    measured: str
    verdict: str
    setting: str
    kinds: Sequence[str] = ()
    windows: Sequence[int] = ()

    def __post_init__(self) -> None:
        if self.verdict not in VERDICTS:
            raise ValueError(f"verdict must be one of {VERDICTS}, but got {self.verdict!r}.")


@dataclasses.dataclass(frozen=True)
class Series:
    """A curve: the mean, with every seed around it, or a band of quantiles if there are many seeds.

    `label` is short, for the legend; `details` appear when the pointer rests on the curve. `kind`
    and `w` identify the method, which decides the colour.
    """

    label: str
    x: Sequence[float]
    mean: Sequence[float]
    low: Sequence[float] | None = None
    high: Sequence[float] | None = None
    steps: bool = False
    details: str = ""
    seeds: Sequence[Sequence[float]] = ()
    kind: str = ""
    w: int | None = None


@dataclasses.dataclass(frozen=True)
class Figure:
    """A chart of curves over one axis."""

    name: str
    title: str
    x_label: str
    y_label: str
    series: Sequence[Series]
    caption: str
    log_x: bool = False
    log_y: bool = False

    def note(self) -> str:
        """Return the caption with a sentence on what surrounds the curves."""
        if any(len(series.seeds) for series in self.series):
            return f"{self.caption} Bold: the mean; thin: each seed."
        if any(series.low is not None for series in self.series):
            return f"{self.caption} The mean, in the band that holds eight seeds of ten."
        return self.caption


@dataclasses.dataclass(frozen=True)
class Table:
    """A table for people. Numbers stay numbers so that the table can be sorted."""

    name: str
    title: str
    caption: str
    frame: pd.DataFrame


@dataclasses.dataclass(frozen=True)
class Answer:
    """A question, its answer in a sentence with an interval, and the table and figure behind it."""

    question: str
    words: str
    table: Table
    figure: Figure


@dataclasses.dataclass(frozen=True)
class Findings:
    """The content of a report, without the description of the run."""

    answers: Sequence[Answer]
    claims: Sequence[Claim]
    figures: Sequence[Figure]
    tables: Sequence[Table]
    paragraphs: Sequence[str]

    def every_figure(self) -> list[Figure]:
        """Return the figures of the answers, then the others."""
        return [*(answer.figure for answer in self.answers), *self.figures]

    def verdicts(self) -> str:
        """Return the number of claims by verdict: `2 reproduced, 1 within noise`."""
        counts = collections.Counter(claim.verdict for claim in self.claims)
        return ", ".join(f"{counts[verdict]} {verdict}" for verdict in VERDICTS if counts[verdict])
