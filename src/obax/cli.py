"""The command line: `obax`."""

from typing import Annotated

import typer

from . import __version__

app = typer.Typer(
    name="obax",
    help="Online bilevel optimisation: tune hyperparameters while the data is still arriving.",
    no_args_is_help=True,
    add_completion=False,
)


def _show_version(value: bool) -> None:
    if value:
        typer.echo(f"obax {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool,
        typer.Option("--version", help="Show the version.", callback=_show_version, is_eager=True),
    ] = False,
) -> None:
    pass


def main() -> None:
    """Run the command line."""
    app()
