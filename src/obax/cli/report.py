"""The command `obax report`."""

from pathlib import Path
from typing import Annotated

import typer

from .screen import Json, console, print_json


def rebuild_report(
    folders: Annotated[list[Path], typer.Argument(metavar="DIR...", help="Run folders.")],
    out: Annotated[Path, typer.Option(help="The page for several runs.")] = Path("comparison.html"),
    as_json: Json = False,
) -> None:
    """Write the report of a run again, or one page with several runs over each other."""
    from .. import lab
    from ..lab import RunFolder, report

    opened = [RunFolder.open(path) for path in folders]
    runs = [(folder, lab.findings(folder)) for folder in opened]
    if len(runs) == 1:
        folder, findings = runs[0]
        page = report.write(folder.path, folder.info, findings)
    else:
        names = [path.resolve().name for path in folders]
        if len(set(names)) < len(names):
            names = [str(path) for path in folders]
        both = [(folder.info, found) for folder, found in runs]
        page = report.write_comparison(out, both, names)
    if as_json:
        print_json({"report": str(page)})
    else:
        console.print(f"Open {page}")
