"""What an experiment found, in a form that any renderer can show; figures for print and one
self-contained page of it."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..._support import atomic
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
    """A curve: a mean, and where there are several seeds a band around it.

    `label` is short, for the legend; `hover` may say more.
    """

    label: str
    x: Sequence[float]
    mean: Sequence[float]
    low: Sequence[float] | None = None
    high: Sequence[float] | None = None
    steps: bool = False
    hover: str = ""

    def lower(self, log: bool) -> Sequence[float] | None:
        """Where the band begins; on a logarithmic axis there is no place below zero."""
        if self.low is None or not log:
            return self.low
        return [max(low, mean / 10) for low, mean in zip(self.low, self.mean, strict=True)]


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


@dataclasses.dataclass(frozen=True)
class Table:
    """A table to be read by people; numbers stay numbers so that it can be sorted."""

    name: str
    title: str
    caption: str
    frame: pd.DataFrame


@dataclasses.dataclass(frozen=True)
class Findings:
    """Everything a report shows besides what was run; `summary` is the table for the screen."""

    claims: Sequence[Claim]
    figures: Sequence[Figure]
    tables: Sequence[Table]
    paragraphs: Sequence[str]
    summary: Table


def write(path: Path, info: dict[str, Any], findings: Findings) -> Path:
    """Figures and `report.html` of one run, into its folder."""
    # matplotlib is slow to import and only needed here.
    from . import figures, page

    for figure in findings.figures:
        figures.save(figure, path / "figures")
    title = f"obax: {info['experiment']}"
    atomic.write_text(path / "report.html", page.page(title, [(info, findings)]))
    return path / "report.html"


def write_comparison(file: Path, runs: list[tuple[dict[str, Any], Findings]]) -> Path:
    """One page with several runs side by side."""
    from . import page

    names = dict.fromkeys(info["experiment"] for info, _ in runs)
    atomic.write_text(file, page.page(f"obax: {', '.join(names)}", runs))
    return file
