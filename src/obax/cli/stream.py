"""The command `obax stream`."""

import signal
import sys
from pathlib import Path
from typing import Annotated

import typer


def stream(
    source: Annotated[
        str, typer.Argument(metavar="[FILE]", help="Rows to read; - is standard input.")
    ] = "-",
    target: Annotated[str, typer.Option(help="The column to predict.")] = ...,  # type: ignore[assignment]
    task: Annotated[str, typer.Option(help="classify or regress.")] = "classify",
    kind: Annotated[str, typer.Option("--format", help="csv, jsonl, or auto.")] = "auto",
    out: Annotated[
        Path | None, typer.Option(help="Where predictions go; by default standard output.")
    ] = None,
    drop: Annotated[
        list[str] | None, typer.Option(metavar="COLUMN", help="Leave out; may be repeated.")
    ] = None,
    checkpoint: Annotated[
        Path | None, typer.Option(help="A folder to save in and to go on from.")
    ] = None,
    checkpoint_every: Annotated[int, typer.Option(min=1, help="Rows.")] = 1000,
    continues: Annotated[
        bool,
        typer.Option(
            "--continues", help="After a resumption, standard input goes on where it was."
        ),
    ] = False,
    penalty: Annotated[float, typer.Option(help="The L2 penalty to start with.")] = 1e-3,
    memory: Annotated[float, typer.Option(help="The memory to start with, in rows.")] = 100.0,
    inertia: Annotated[float, typer.Option(help="The inertia to start with.")] = 1.0,
) -> None:
    """Learn from rows as they come; write predictions and hyperparameters as JSON lines."""
    from .._support.errors import UserError
    from ..estimators import StreamingClassifier, StreamingRegressor
    from ..streaming import Job, StreamError

    models: dict[str, type] = {"classify": StreamingClassifier, "regress": StreamingRegressor}
    if task not in models:
        raise UserError(f"--task must be classify or regress, but is {task!r}.")
    if kind == "auto":
        kind = "jsonl" if source.endswith((".jsonl", ".json", ".ndjson")) else "csv"
    if kind not in ("csv", "jsonl"):
        raise UserError(f"--format must be csv, jsonl or auto, but is {kind!r}.")
    if source != "-" and not Path(source).is_file():
        raise UserError(f"{source} is not a file.")
    model = models[task](penalty=penalty, memory=memory, inertia=inertia)
    # Asked to stop, stop like one interrupted.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        job = Job(
            model,
            0 if source == "-" else Path(source),
            kind,
            target,
            sys.stdout.buffer if out is None else out,
            drop=tuple(drop or ()),
            checkpoint=checkpoint,
            every=checkpoint_every,
            continues=continues,
        )
        rows = job.run()
    except (StreamError, ValueError) as error:
        raise UserError(str(error)) from error
    except BrokenPipeError:
        # Whoever read has gone, as `head` does: no more to do. Python must not flush again.
        sys.stderr.close()
        raise typer.Exit(0) from None
    sys.stdout.flush()
    rejected = job.model.rejected_.count
    typer.echo(f"obax: {rows:,} rows, {rejected:,} rejected.", err=True)
