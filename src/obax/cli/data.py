"""The command `obax data`."""

from typing import Annotated

import typer

from .screen import Json, console, show_rows


def data(
    name: Annotated[
        str | None, typer.Argument(help="A data set: fetch it, if its files are not here.")
    ] = None,
    check: Annotated[
        bool, typer.Option("--check", help="Exit with 1 unless all files are here and whole.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Show which data sets are here, whether they are whole, and how to get the others."""
    from .. import datasets
    from .._support.errors import UserError, nearest

    how = {dataset.name: dataset for dataset in datasets.DATASETS}
    if name is not None and name not in how:
        hint = nearest(name, how)
        raise UserError(f"unknown data set {name!r}.{hint} Known: {', '.join(how)}.")
    if name is not None and not check:
        # What is here already is shown below, even where its checksum is another.
        datasets.fetch(name, verify=False)
    found = [status for status in datasets.status() if name in (None, status.dataset)]
    rows = [
        {
            "data set": status.dataset,
            "file": status.file,
            "state": status.state,
            "where": str(status.path) if status.path else "-",
        }
        for status in found
    ]
    show_rows(rows, as_json)
    missing = {one.dataset: how[one.dataset] for one in found if one.path is None and not as_json}
    for dataset in missing.values():
        console.print(f"To get [bold]{dataset.name}[/] ({dataset.what}): {dataset.how}.")
    if missing:
        console.print(
            f"`obax data NAME` downloads one. Or put the files into a folder and set OBAX_DATA to "
            f"it, or into {datasets.cache_folder()}.",
            soft_wrap=True,
        )
    if check and any(status.state != "verified" for status in found):
        raise typer.Exit(1)
