"""The command `obax report`."""

from pathlib import Path
from typing import Annotated

from typer import Argument

from .._support.messages import UserError
from .screen import Json, console, documented, print_json


@documented
def rebuild_report(
    folders: Annotated[list[Path], Argument(metavar="DIR")], as_json: Json = False
) -> None:
    """Write the report of a run again.

    - `folders`: A run folder.
    """
    from .. import lab
    from ..lab import report

    if len(folders) > 1:
        raise UserError(
            "a page over several runs is no longer made: give one folder, and compare methods with "
            "`obax run compare` or obax.lab.compare."
        )
    folder = lab.RunFolder.open(folders[0])
    page = report.write(folder.path, folder.info, lab.findings(folder))
    if as_json:
        print_json({"report": str(page)})
    else:
        console.print(f"Open {page}")
