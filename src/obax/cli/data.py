"""The command `obax data`."""

from typing import Annotated

import typer
from typer import Argument

from .._support.messages import UserError, nearest
from .screen import Json, console, documented, show_rows


@documented
def data(
    name: Annotated[str | None, Argument()] = None, check: bool = False, as_json: Json = False
) -> None:
    """Show which data sets are here, whether they are intact, and how to get the others.

    - `name`: A data set to download if its files are missing.
    - `check`: Exit with 1 unless all files are here and intact.
    """
    from .. import datasets

    known = {dataset.name: dataset for dataset in datasets.DATASETS}
    if name is not None and name not in known:
        hint = nearest(name, known)
        raise UserError(f"unknown data set {name!r}.{hint} Known: {', '.join(known)}.")
    if name is not None and not check:
        # A file that is here is listed below, even if its checksum is another.
        datasets.fetch(name, verify=False)
    files = [status for status in datasets.status() if name in (None, status.dataset)]
    rows = [(one.dataset, one.file, one.state, str(one.path or "-")) for one in files]
    names = ("data set", "file", "state", "where")
    show_rows([dict(zip(names, row, strict=True)) for row in rows], as_json)
    missing = {one.dataset: known[one.dataset] for one in files if not one.path and not as_json}
    for dataset in missing.values():
        console.print(f"To get [bold]{dataset.name}[/] ({dataset.what}): {dataset.how}.")
    if missing:
        console.print(
            f"`obax data NAME` downloads one. Or put the files into a folder and set OBAX_DATA to "
            f"it, or into {datasets.cache_folder()}.",
            soft_wrap=True,
        )
    if check and any(status.state != "verified" for status in files):
        raise typer.Exit(1)
