"""The command `obax stream`."""

import dataclasses
import os
import signal
import sys
import time
import types
import typing
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Argument, Option

from .._support.messages import UserError, counted, nearest
from .screen import Assignments, Column, Columns, Count, documented

if TYPE_CHECKING:
    from ..streaming import Input, Job

WARN_AFTER = 100
"""Rows of which none is learned before there is a warning."""
FIRST_SCORE = 1000
"""Away from a terminal, the score is printed after so many rows, then twice as many, and so on."""
RENEW_SECONDS = 0.2
WARNINGS = ("features beyond the first", "the last 100 rows were all rejected", "column ")
"""Warnings of the models that are repeated each time."""
ENDINGS = {".jsonl": "jsonl", ".json": "jsonl", ".ndjson": "jsonl", ".parquet": "parquet"}
Hidden = Annotated[str | None, Option(hidden=True)]
"""A model option as a flag, as in version 0.2: the same as `--set NAME=VALUE`."""


@documented
def stream(
    context: typer.Context,
    source: Annotated[str, Argument(metavar="[FILE]")] = "-",
    target: str = ...,  # type: ignore[assignment]
    task: str = "auto",
    format: str = "auto",
    out: Path | None = None,
    drop: Columns = None,
    numeric: Columns = None,
    date: Columns = None,
    category: Columns = None,
    checkpoint: Path | None = None,
    checkpoint_every: Count = 1000,
    continues: bool = False,
    id: Column = None,
    key: Column = None,
    max_keys: Annotated[int | None, Option(min=1)] = None,
    start: str | None = None,
    coverage: float | None = None,
    settings: Assignments = None,
    overwrite: bool = False,
    other_input: bool = False,
    penalty: Hidden = None,
    memory: Hidden = None,
    inertia: Hidden = None,
    learn: Hidden = None,
    imbalance: Hidden = None,
    features: Hidden = None,
    lags: Hidden = None,
    members: Hidden = None,
    share: Hidden = None,
    max_memory: Hidden = None,
) -> None:
    """Learn from rows as they come; write predictions and hyperparameters as JSON lines.

    - `source`: A file or a pipe; - is standard input.
    - `target`: The column to predict.
    - `task`: classify, regress, or auto: by the target's first values in a file.
    - `format`: csv, jsonl, parquet, or auto.
    - `out`: Where predictions go; by default standard output.
    - `drop`: A column to leave out; may be repeated.
    - `numeric`: A column of numbers.
    - `date`: A column of dates.
    - `category`: A column of categories, whatever it looks like.
    - `checkpoint`: A folder to save in and to resume from.
    - `checkpoint_every`: Rows between two checkpoints.
    - `continues`: Standard input goes on where it was, after a resume.
    - `id`: Says which row a label on a later line belongs to.
    - `key`: Says whose row it is: one model per value.
    - `max_keys`: With --key: models in memory; others are on disk.
    - `start`: With --key: how a new model starts, default or pooled.
    - `coverage`: Write intervals, or sets of classes, of this coverage.
    - `settings`: An option of the model, such as penalty=0.1, memory=500, learn=penalty,memory,
      features=interactions or lags=3; may be repeated.
    - `overwrite`: Replace an --out that exists already.
    - `other_input`: Resume although the input has changed.
    """
    from ..estimators import Pool, StreamingClassifier, StreamingRegressor
    from ..streaming import Checkpoint, Input, Job, Kinds, Output, Stop, StreamError

    models: dict[str, type] = {"classify": StreamingClassifier, "regress": StreamingRegressor}
    if task not in (*models, "auto"):
        raise UserError(f"--task must be classify, regress or auto, but is {task!r}.")
    if format == "auto":
        format = ENDINGS.get(Path(source).suffix, "csv")
    if format not in ("csv", "jsonl", "parquet"):
        raise UserError(f"--format must be csv, jsonl, parquet or auto, but is {format!r}.")
    kinds = Kinds(*(frozenset(columns or ()) for columns in (numeric, date, category)))
    dropped = tuple(drop or ())
    rows = Input(_open(source), target, format, dropped, id, continues, other_input, kinds)
    if task == "auto":
        task = _guessed(rows)
    hidden = [p.name for p in context.command.params if getattr(p, "hidden", False) and p.name]
    flags = [f"{n}={context.params[n]}" for n in hidden if context.params[n] is not None]
    model: Any = models[task](**model_options(models[task], task, [*flags, *(settings or ())]))
    if key is not None:
        model = Pool(model, key, max_keys=max_keys, start=start or "default")
    elif max_keys is not None or start is not None:
        raise UserError("--max-keys and --start are for many models; name their column with --key.")
    output = Output(sys.stdout.buffer if out is None else out, coverage, overwrite)
    saves = None if checkpoint is None else Checkpoint(checkpoint, checkpoint_every)
    screen = Screen(renew=sys.stderr.isatty() and not (out is None and sys.stdout.isatty()))
    stop = Stop()
    try:
        job = Job(model, rows, output, saves, on_batch=screen.show, stop=stop)
        with warnings.catch_warnings():
            # The screen says this itself, without a line of Python.
            warnings.filterwarnings("ignore", "100 rows were rejected and none was learned")
            for beginning in WARNINGS:
                warnings.filterwarnings("always", beginning)
            warnings.showwarning = lambda message, *_, **__: screen.print(
                f"obax: warning: {message}"
            )
            job.run()
    except (StreamError, ValueError) as error:
        raise UserError(str(error)) from error
    except BrokenPipeError:
        # The reader of the output has gone inside a batch, as `head` does. Nothing must be left in
        # the buffer for Python to flush.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit(0) from None
    finally:
        stop.close()
    screen.print(f"obax: {_score(job)}.")
    for line in job.reasons.summary():
        screen.print(f"obax: rejected {line}")
    if stop.signal is not None:
        resume = "the same command goes on from here" if checkpoint else "without --checkpoint"
        name = signal.Signals(stop.signal).name
        screen.print(f"obax: stopped by {name} at row {job.rows:,}; {resume}.")
        raise typer.Exit(128 + stop.signal)
    if job.rows and not job.score.rows:
        screen.print(f"obax: nothing was learned: {_why_nothing_is_learned(job)}")
        raise typer.Exit(1)


def _guessed(rows: "Input") -> str:
    """Return the task that the target of a file looks like, and say so."""
    from ..streaming import StreamError, guess_task

    if not isinstance(rows.source, Path):
        return "classify"
    try:
        task, reason = guess_task(rows)
    except StreamError:
        return "classify"  # The job meets the same error.
    other = "regress" if task == "classify" else "classify"
    typer.echo(f"obax: --task {task}: {reason} (--task {other} for the other).", err=True)
    return task


def _open(source: str) -> Path | int:
    """Return the path of a file, or the descriptor of a pipe such as `<(zcat FILE)`."""
    path = Path(source)
    if source == "-":
        return 0
    if path.is_file():
        return path
    if path.exists() and not path.is_dir():
        return os.open(path, os.O_RDONLY)
    raise UserError(f"{source} is not a file.")


class Screen:
    """The score during a stream: a line that renews itself, or ever rarer lines."""

    def __init__(self, renew: bool) -> None:
        self._renew = renew
        self._next, self._shown = FIRST_SCORE, 0.0
        self._warned = False

    def show(self, job: "Job") -> None:
        """Print the score if it is time for it."""
        if job.rows >= WARN_AFTER and not job.score.rows and not self._warned:
            self._warned = True
            reason = _why_nothing_is_learned(job)
            self.print(f"obax: warning: none of {job.rows:,} rows was learned: {reason}")
        now = time.monotonic()
        if self._renew and now - self._shown > RENEW_SECONDS:
            self._shown = now
            typer.echo(f"\r\x1b[Kobax: {_score(job)}", err=True, nl=False)
        elif not self._renew and job.rows >= self._next:
            self._next = max(2 * self._next, job.rows)
            self.print(f"obax: {_score(job)} ...")

    def print(self, text: str) -> None:
        """Print a line that stays."""
        typer.echo(f"\r\x1b[K{text}" if self._renew else text, err=True)


def _score(job: "Job") -> str:
    loss = f", mean loss {job.model.mean_loss_:.4g}" if job.score.rows else ""
    rejected = job.model.rejected_.count
    return f"{counted(job.rows, 'row')}, {rejected:,} rejected; {job.score.summary()}{loss}"


def _why_nothing_is_learned(job: "Job") -> str:
    rejected, target = job.model.rejected_, job.source.input.target
    if not rejected.count:
        hint = nearest(target, map(str, job.model.feature_names_))
        return f"none has a value for {target!r}.{hint}"
    return f"{rejected.count:,} were rejected, {rejected.most_often()}."


def model_options(model: type, task: str, settings: Iterable[str]) -> dict[str, object]:
    """Return the options of a model from `KEY=VALUE` texts; the model checks the values."""
    fields = {field.name: field.type for field in dataclasses.fields(model)}
    options: dict[str, object] = {}
    for setting in settings:
        name, equals, text = setting.partition("=")
        name = name.strip().replace("-", "_")
        if not equals:
            raise UserError(f"--set must be KEY=VALUE, but is {setting!r}.")
        if name not in fields:
            raise UserError(f"{name} is not an option of --task {task}.{nearest(name, fields)}")
        options[name] = _parse(name, text, fields[name])
    return options


def _parse(name: str, text: str, type_: Any) -> object:
    """Return an option of this type: a number, a word, or words with commas between them."""
    types_ = typing.get_args(type_) if isinstance(type_, types.UnionType) else (type_,)
    words = tuple(word for word in map(str.strip, text.split(",")) if word not in ("", "none"))
    if type(None) in types_ and not words:
        return None
    number = next((kind for kind in (int, float) if kind in types_), None)
    if number is not None:
        try:
            return number(text)
        except ValueError as error:
            expected = "a whole number" if number is int else "a number"
            raise UserError(f"{name} must be {expected}, but is {text!r}.") from error
    return text if str in types_ and "," not in text else words
