"""The command `obax watch`."""

from pathlib import Path
from typing import Annotated

import typer

from .._support.messages import UserError


def watch(
    folder: Annotated[
        Path,
        typer.Argument(
            metavar="DIR",
            help="The folder of `obax run`, `obax stream --checkpoint` or `obax.callbacks.Watch`.",
        ),
    ],
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 takes a free one.")] = 8765,
    browser: Annotated[bool, typer.Option("--open", help="Open the page in a browser.")] = False,
) -> None:
    """Show a running job or stream on a page of this machine."""
    import webbrowser

    from ..watch.page import WatchError, check_folder
    from ..watch.server import serve

    try:
        check_folder(folder)
    except WatchError as error:
        raise UserError(str(error)) from error
    with serve(folder, port) as server:
        address = f"http://127.0.0.1:{server.server_address[1]}/"
        typer.echo(f"Showing {folder} on {address} (Ctrl-C stops)")
        if browser:
            webbrowser.open(address)
        server.serve_forever()
