"""The command line: `obax list | run | report | certify | data | stream | serve | watch`.

Exit codes: 0 success; 1 a certificate was violated or a run failed; 2 invalid arguments or files;
130 interrupted.
"""

import sys
from typing import Annotated

import typer

from .. import __version__
from .certify import certify
from .data import data
from .listing import list_experiments
from .report import rebuild_report
from .run import run
from .screen import errors, print_error
from .serve import serve, watch
from .stream import stream

app = typer.Typer(
    name="obax",
    help="Online bilevel optimisation: tune hyperparameters while the data is still arriving.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
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


app.command("list")(list_experiments)
app.command()(run)
app.command("report")(rebuild_report)
for command in (certify, data, stream, serve, watch):
    app.command()(command)


def main() -> None:
    """Run the command line; an error that a user can fix is one line and exit code 2."""
    from .._support.messages import UserError

    try:
        app(standalone_mode=True)
    except (UserError, OSError) as error:
        print_error(str(error))
        sys.exit(2)
    except KeyboardInterrupt:
        errors.print("\nobax: interrupted.")
        sys.exit(130)
