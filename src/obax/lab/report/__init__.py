"""Reports: figures for print and one self-contained page, from what an experiment found."""

from pathlib import Path
from typing import Any

from ..._support import atomic
from .findings import (
    Claim as Claim,
    Figure as Figure,
    Findings as Findings,
    Series as Series,
    Table as Table,
)


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
