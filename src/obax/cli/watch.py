"""The command `obax watch`."""

from pathlib import Path
from typing import Annotated

import typer


def watch(
    folder: Annotated[
        Path,
        typer.Argument(
            metavar="DIR",
            help="Of `obax run`, `obax stream --checkpoint` or `obax.callbacks.Watch`.",
        ),
    ],
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 takes a free one.")] = 8765,
    browser: Annotated[bool, typer.Option("--open", help="Open the page in a browser.")] = False,
) -> None:
    """Follow a running job or stream on a page of this machine."""
    import webbrowser

    from .._support.errors import UserError
    from ..watch.data import WatchError, kind_of
    from ..watch.server import serve

    try:
        kind_of(folder)
    except WatchError as error:
        raise UserError(str(error)) from error
    with serve(folder, port) as server:
        address = f"http://127.0.0.1:{server.server_address[1]}/"
        typer.echo(f"Following {folder} on {address} (Ctrl-C stops)")
        if browser:
            webbrowser.open(address)
        server.serve_forever()
