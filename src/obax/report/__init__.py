"""Reports: figures for print and one self-contained page, from what an experiment found."""

from pathlib import Path
from typing import Any

from .. import _atomic
from . import _figures, _page
from ._findings import (
    Claim as Claim,
    Figure as Figure,
    Findings as Findings,
    Series as Series,
    Table as Table,
)


def write(path: Path, info: dict[str, Any], findings: Findings) -> Path:
    """Figures and `report.html` of one run, into its folder."""
    for figure in findings.figures:
        _figures.save(figure, path / "figures")
    title = f"obax: {info['experiment']}"
    _atomic.write_text(path / "report.html", _page.page(title, [(info, findings)]))
    return path / "report.html"


def write_comparison(file: Path, runs: list[tuple[dict[str, Any], Findings]]) -> Path:
    """One page with several runs side by side."""
    names = dict.fromkeys(info["experiment"] for info, _ in runs)
    _atomic.write_text(file, _page.page(f"obax: {', '.join(names)}", runs))
    return file
