"""Output of the commands: tables, JSON, progress and errors."""

import contextlib
import copy
import json
import os
import re
import sys
import time
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import rich.progress
import typer
from rich.console import Console
from rich.table import Table as ScreenTable

if TYPE_CHECKING:
    from ..lab.report import Findings

for name in ("stdout", "stderr"):
    if getattr(sys, name) is None:
        # Whoever started this process has closed it; the command must run all the same.
        setattr(sys, name, Path(os.devnull).open("w"))  # noqa: SIM115

# Away from a terminal, lines are not folded at 80 columns.
console = Console(width=None if sys.stdout.isatty() else 160)
errors = Console(stderr=True)
LOG_SECONDS = 10.0
"""Away from a terminal, a line on the progress is printed after so many seconds."""
Count = Annotated[int, typer.Option(min=1)]
Column = Annotated[str | None, typer.Option(metavar="COLUMN")]
Columns = Annotated[list[str] | None, typer.Option(metavar="COLUMN")]
Assignments = Annotated[list[str] | None, typer.Option("--set", metavar="KEY=VALUE")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON and nothing else.")]


def documented(command: Callable[..., None]) -> Callable[..., None]:
    """Return the command for typer, with the help of its parameters taken from its docstring.

    The docstring has a line "- `name`: help" for each. A parameter that is True or False becomes a
    flag without a --no- form.
    """
    command.__doc__, _, lines = (command.__doc__ or "").partition("\n\n")
    helps = re.findall(r"- `(\w+)`: (.*?)(?=\s+- `|\s*\Z)", lines, re.DOTALL)
    hints = typing.get_type_hints(command, include_extras=True)
    for name, text in helps:
        flag = [f"--{name.replace('_', '-')}"] * (hints[name] is bool)
        given = getattr(hints[name], "__metadata__", [typer.Option(*flag)])
        about = copy.copy(given[0])
        about.help = " ".join(text.split())
        hints[name] = Annotated[getattr(hints[name], "__origin__", hints[name]), about]
    command.__annotations__ = hints
    return command


@contextlib.contextmanager
def progress(name: str, quiet: bool) -> Iterator[Callable[[int, int, str], None]]:
    """Yield a function that shows the parts done: a bar, or a line now and then in a log.

    It takes the number of parts done, that of all parts, and what was found last.
    """
    begun, columns = time.monotonic(), rich.progress
    line_after = 0.0
    with columns.Progress(
        columns.TextColumn("{task.description}"),
        columns.BarColumn(),
        columns.MofNCompleteColumn(),
        columns.TimeElapsedColumn(),
        columns.TimeRemainingColumn(),
        columns.TextColumn("{task.fields[now]}"),
        console=errors,
        disable=quiet or not errors.is_terminal,
    ) as bar:
        task = bar.add_task(name, total=None, now="")

        def on_part(done: int, total: int, now: str) -> None:
            nonlocal line_after
            bar.update(task, completed=done, total=total, now=now)
            seconds = time.monotonic() - begun
            if bar.disable and not quiet and (seconds >= line_after or done == total):
                line_after = seconds + LOG_SECONDS
                print_error(f"{name}: {done} of {total} parts, {seconds:.0f} s. {now}".rstrip())

        yield on_part


def show_findings(findings: "Findings") -> None:
    """Print question, answer and table, then further answers and the verdicts on claims."""
    first, *others = findings.answers
    console.print(f"\n[bold]{first.question}[/]\n{first.words}\n", highlight=False)
    columns = first.table.frame.columns
    show_rows([dict(zip(columns, row, strict=True)) for row in first.table.frame.values], False)
    for answer in others:
        console.print(f"\n[bold]{answer.question}[/] {answer.words}", highlight=False)
    if findings.claims:
        console.print(f"\nClaims of the paper: {findings.verdicts()}", highlight=False, style="dim")


def show_rows(rows: Sequence[Mapping[str, object]], as_json: bool) -> None:
    """Print rows of values as a table, or as JSON."""
    if as_json:
        print_json(rows)
        return
    # A row may lack a column that others have, such as a preset.
    columns = list(dict.fromkeys(column for row in rows for column in row))
    table = ScreenTable(*columns, box=None, header_style="bold", pad_edge=False)
    for row in rows:
        table.add_row(*(str(row.get(column, "")) for column in columns))
    console.print(table, highlight=False)


def print_json(value: object) -> None:
    """Print plain values as indented JSON."""
    typer.echo(json.dumps(value, indent=2))


def print_error(text: str) -> None:
    """Print an error of a command as one line."""
    errors.print(f"obax: {text}", highlight=False, markup=False, soft_wrap=True)
