"""Output of the commands: tables, JSON, progress and errors."""

import json
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich import progress
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
Json = Annotated[bool, typer.Option("--json", help="Print JSON and nothing else.")]


def progress_bar(quiet: bool) -> progress.Progress:
    """Return a bar of parts and times; it prints nothing away from a terminal."""
    return progress.Progress(
        progress.TextColumn("{task.description}"),
        progress.BarColumn(),
        progress.MofNCompleteColumn(),
        progress.TimeElapsedColumn(),
        progress.TimeRemainingColumn(),
        progress.TextColumn("{task.fields[now]}"),
        console=errors,
        disable=quiet or not errors.is_terminal,
    )


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
