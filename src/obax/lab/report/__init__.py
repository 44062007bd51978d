"""The report of a run: figures as files, and one page that needs no network.

The page answers before it explains: question, answer, table and figure come first, and everything
else is folded.
"""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any, NamedTuple

from ..._support import files
from ..._support.messages import counted
from ..framework.results import (
    VERDICTS,
    Answer as Answer,
    Claim as Claim,
    Figure as Figure,
    Findings as Findings,
    Series as Series,
    Table as Table,
)
from ..framework.statistics import RULE, readable

BADGES = dict(zip(VERDICTS, ("yes", "partly", "noise", "no", "open"), strict=True))
"""The CSS class of each verdict."""


def write(path: Path, info: dict[str, Any], findings: Findings) -> Path:
    """Write the figures and `report.html` of a run into its folder."""
    # Slow to import and only needed here.
    import jinja2

    from . import figures

    folder = path / "figures"
    drawn = {
        figure.name: figures.inline(figure, figures.save(figure, folder))
        for figure in findings.every_figure()
    }
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader(__name__, "."),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.filters |= {"cell": _cell, "counted": counted}
    page = environment.get_template("page.html").render(
        info=info,
        findings=findings,
        svg=drawn,
        badges=BADGES,
        rule=RULE,
        command=shlex.join(info["command"]),
        slowest=sorted(info["parts"].items(), key=lambda part: -part[1]["seconds"])[:8],
    )
    files.write_text(path / "report.html", page)
    return path / "report.html"


class Cell(NamedTuple):
    """A cell of a table: its text, its CSS class, and the number by which it is sorted."""

    text: str
    css: str = ""
    sort: str | None = None


def _cell(value: Any) -> Cell:
    if isinstance(value, bool):
        return Cell("yes" if value else "no")
    if value is None or str(value) in ("nan", "<NA>"):
        return Cell("-", "number", "")
    if isinstance(value, int | float):
        # A setting is shown as it was set, a measurement with three digits.
        is_short = isinstance(value, int) or len(repr(value)) <= 5
        text = f"{value:g}" if is_short and abs(value) < 1e6 else readable(value)
        return Cell(text, "number", repr(value))
    text = str(value)
    return Cell(text, "value" if "±" in text else "long" if len(text) > 24 else "")
