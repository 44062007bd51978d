"""What an experiment found, in a form that any renderer can show; figures for print and one
self-contained page of it."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..._support import atomic
from ..kit.numbers import readable
from ..kit.styles import Style, styles
from ..kit.verdict import VERDICTS

if TYPE_CHECKING:
    import pandas as pd


@dataclasses.dataclass(frozen=True)
class Claim:
    """A claim of the paper beside what was measured."""

    id: str
    claimed: str
    measured: str
    verdict: str
    setting: str

    def __post_init__(self) -> None:
        if self.verdict not in VERDICTS:
            raise ValueError(f"verdict must be one of {VERDICTS}, but got {self.verdict!r}.")


@dataclasses.dataclass(frozen=True)
class Series:
    """A curve: a mean, and around it every seed, or where those are many a band of quantiles.

    `label` is short, for the legend; `hover` may say more; `method` is whose colour and dash it
    has, where the label does not say.
    """

    label: str
    x: Sequence[float]
    mean: Sequence[float]
    low: Sequence[float] | None = None
    high: Sequence[float] | None = None
    steps: bool = False
    hover: str = ""
    seeds: Sequence[Sequence[float]] = ()
    method: str = ""


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

    def styles(self) -> list[Style]:
        """Of its curves."""
        return styles([series.method or series.label for series in self.series])

    def note(self) -> str:
        """The caption, and what stands around the curves."""
        if any(len(series.seeds) for series in self.series):
            return f"{self.caption} Bold: the mean; thin: each seed."
        if any(series.low is not None for series in self.series):
            return f"{self.caption} The mean, in the band that holds eight seeds of ten."
        return self.caption

    def words(self) -> str:
        """For who cannot see it: what it shows, and where its curves end."""
        ends = [f"{one.label} {readable(one.mean[-1])}" for one in self.series if len(one.mean)]
        return f"{self.title}: {self.y_label} against {self.x_label}. At the end: {'; '.join(ends)}"


@dataclasses.dataclass(frozen=True)
class Table:
    """A table to be read by people; numbers stay numbers so that it can be sorted."""

    name: str
    title: str
    caption: str
    frame: pd.DataFrame


@dataclasses.dataclass(frozen=True)
class Answer:
    """A question in plain words, its answer in a sentence with its interval, and what shows it: a
    small table and a figure."""

    question: str
    words: str
    table: Table
    figure: Figure


@dataclasses.dataclass(frozen=True)
class Findings:
    """Everything a report shows besides what was run: answers first, all else folded."""

    answers: Sequence[Answer]
    claims: Sequence[Claim]
    figures: Sequence[Figure]
    tables: Sequence[Table]
    paragraphs: Sequence[str]

    def every_figure(self) -> list[Figure]:
        """Those of the answers, and the others."""
        return [*(answer.figure for answer in self.answers), *self.figures]

    def verdicts(self) -> str:
        """The claims in a line: `2 reproduced, 1 within noise`; empty without any."""
        found = collections.Counter(claim.verdict for claim in self.claims)
        return ", ".join(f"{found[verdict]} {verdict}" for verdict in VERDICTS if found[verdict])


def write(path: Path, info: dict[str, Any], findings: Findings) -> Path:
    """Figures and `report.html` of one run, into its folder."""
    # matplotlib is slow to import and only needed here.
    from . import figures, page

    for figure in findings.every_figure():
        figures.save(figure, path / "figures")
    atomic.write_text(path / "report.html", page.page(info, findings))
    return path / "report.html"


def write_comparison(
    file: Path, runs: Sequence[tuple[dict[str, Any], Findings]], names: Sequence[str] = ()
) -> Path:
    """One page with several runs over each other, each by its name: that of its folder, say."""
    from . import page

    known = list(names) or [f"run {number + 1}" for number in range(len(runs))]
    named = [(name, *run) for name, run in zip(known, runs, strict=True)]
    atomic.write_text(file, page.comparison(named))
    return file
