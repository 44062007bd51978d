"""The command `obax data`."""

from typing import Annotated

import typer

from .._support.messages import UserError, nearest
from .screen import Json, console, show_rows


def data(
    name: Annotated[
        str | None, typer.Argument(help="A data set to download if its files are missing.")
    ] = None,
    check: Annotated[
        bool, typer.Option("--check", help="Exit with 1 unless all files are here and intact.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Show which data sets are here, whether they are intact, and how to get the others."""
    from .. import datasets

    known = {dataset.name: dataset for dataset in datasets.DATASETS}
    if name is not None and name not in known:
        hint = nearest(name, known)
        raise UserError(f"unknown data set {name!r}.{hint} Known: {', '.join(known)}.")
    if name is not None and not check:
        # A file that is here is listed below, even if its checksum is another.
        datasets.fetch(name, verify=False)
    files = [status for status in datasets.status() if name in (None, status.dataset)]
    rows = [
        {
            "data set": one.dataset,
            "file": one.file,
            "state": one.state,
            "where": str(one.path or "-"),
        }
        for one in files
    ]
    show_rows(rows, as_json)
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
