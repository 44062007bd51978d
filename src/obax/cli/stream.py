"""The command `obax stream`."""

import dataclasses
import os
import signal
import sys
import time
import types
import typing
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .._support.counting import counted

if TYPE_CHECKING:
    from ..estimators import StreamingClassifier, StreamingRegressor
    from ..streaming import Job

PATIENCE = 100
"""Rows of which none is learned before there is a warning."""
FIRST_SCORE = 1000
"""Away from a terminal, the score is printed after so many rows, then twice as many, and so on."""
RENEW_SECONDS = 0.2


def stream(
    source: Annotated[
        str,
        typer.Argument(
            metavar="[FILE]", help="Rows to read, a file or a pipe; - is standard input."
        ),
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
    id: Annotated[
        str | None,
        typer.Option(metavar="COLUMN", help="Tells which row a label on a later line belongs to."),
    ] = None,
    key: Annotated[
        str | None,
        typer.Option(metavar="COLUMN", help="One model for each value: whose row it is."),
    ] = None,
    max_keys: Annotated[
        int | None, typer.Option(min=1, help="With --key: models in memory, others on disk.")
    ] = None,
    start: Annotated[
        str | None, typer.Option(help="With --key: where a new key begins, default or pooled.")
    ] = None,
    coverage: Annotated[
        float | None, typer.Option(help="Write intervals, or sets of classes, of this coverage.")
    ] = None,
    penalty: Annotated[str | None, typer.Option(help="The L2 penalty to start with.")] = None,
    memory: Annotated[str | None, typer.Option(help="The memory to start with, in rows.")] = None,
    inertia: Annotated[str | None, typer.Option(help="The inertia to start with.")] = None,
    learn: Annotated[str | None, typer.Option(help="What is tuned, with commas, or none.")] = None,
    imbalance: Annotated[
        str | None, typer.Option(help="For rare classes: learn weights or logits.")
    ] = None,
    features: Annotated[str | None, typer.Option(help="linear, fourier or interactions.")] = None,
    lags: Annotated[str | None, typer.Option(help="So many last targets as features.")] = None,
    members: Annotated[str | None, typer.Option(help="Of the mixture, with commas.")] = None,
    share: Annotated[str | None, typer.Option(help="Of the mixture's weights, per row.")] = None,
    max_memory: Annotated[
        str | None, typer.Option(help="Bytes that a model may take; 1 GiB by default.")
    ] = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace an --out that is there already.")
    ] = False,
    other_input: Annotated[
        bool,
        typer.Option("--other-input", help="Go on from a checkpoint although the input changed."),
    ] = False,
) -> None:
    """Learn from rows as they come; write predictions and hyperparameters as JSON lines."""
    from .._support.errors import UserError
    from ..estimators import Pool, StreamingClassifier, StreamingRegressor
    from ..streaming import Job, Stop, StreamError

    models: dict[str, type] = {"classify": StreamingClassifier, "regress": StreamingRegressor}
    if task not in models:
        raise UserError(f"--task must be classify or regress, but is {task!r}.")
    if kind == "auto":
        kind = "jsonl" if source.endswith((".jsonl", ".json", ".ndjson")) else "csv"
    if kind not in ("csv", "jsonl"):
        raise UserError(f"--format must be csv, jsonl or auto, but is {kind!r}.")
    place = _place(source)
    model = _model(models[task], task, {
        "penalty": penalty, "memory": memory, "inertia": inertia, "learn": learn,
        "imbalance": imbalance, "features": features, "lags": lags, "members": members,
        "share": share, "max_memory": max_memory,
    })  # fmt: skip
    if key is None and (max_keys is not None or start is not None):
        raise UserError("--max-keys and --start are for many models; name their column with --key.")
    screen = Screen(renew=sys.stderr.isatty() and not (out is None and sys.stdout.isatty()))
    stop = Stop()
    try:
        job = Job(
            model if key is None else Pool(model, key, max_keys=max_keys, start=start or "default"),
            place,
            kind,
            target,
            sys.stdout.buffer if out is None else out,
            drop=tuple(drop or ()),
            checkpoint=checkpoint,
            every=checkpoint_every,
            continues=continues,
            id=id,
            coverage=coverage,
            on_batch=screen.show,
            stop=stop,
            overwrite=overwrite,
            other_input=other_input,
        )
        with warnings.catch_warnings():
            # The screen says it, without a line of Python.
            warnings.filterwarnings("ignore", "100 rows were rejected and none was learned")
            for told in ("features beyond the first", "the last 100 rows were all rejected"):
                warnings.filterwarnings("always", told)
            warnings.showwarning = lambda message, *_, **__: screen.say(f"obax: warning: {message}")
            job.run()
    except (StreamError, ValueError) as error:
        raise UserError(str(error)) from error
    except BrokenPipeError:
        # Whoever read has gone inside a batch, as `head` does: no more to do. Nothing is left in
        # the buffer for Python to flush.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit(0) from None
    finally:
        stop.close()
    screen.say(f"obax: {_score(job)}.")
    if stop.signal is not None:
        go_on = "the same command goes on from here" if checkpoint else "without --checkpoint"
        screen.say(
            f"obax: stopped by {signal.Signals(stop.signal).name} at row {job.rows:,}; {go_on}."
        )
        raise typer.Exit(128 + stop.signal)
    if job.rows and not job.score.rows:
        screen.say(f"obax: nothing was learned: {_why(job)}")
        raise typer.Exit(1)


def _place(source: str) -> Path | int:
    """The file, or where a pipe is read from, also one with a name such as `<(zcat rows.csv.gz)`
    has."""
    from .._support.errors import UserError

    path = Path(source)
    if source == "-":
        return 0
    if path.is_file():
        return path
    if path.exists() and not path.is_dir():
        return os.open(path, os.O_RDONLY)
    raise UserError(f"{source} is not a file.")


class Screen:
    """The score while a stream runs: a line that renews itself, or further and further apart."""

    def __init__(self, renew: bool) -> None:
        self._renew = renew
        self._next, self._shown = FIRST_SCORE, 0.0
        self._warned = False

    def show(self, job: "Job") -> None:
        """The score so far, where it is time for it."""
        if job.rows >= PATIENCE and not job.score.rows and not self._warned:
            self._warned = True
            self.say(f"obax: warning: none of {job.rows:,} rows was learned: {_why(job)}")
        now = time.monotonic()
        if self._renew and now - self._shown > RENEW_SECONDS:
            self._shown = now
            typer.echo(f"\r\x1b[Kobax: {_score(job)}", err=True, nl=False)
        elif not self._renew and job.rows >= self._next:
            self._next = max(2 * self._next, job.rows)
            self.say(f"obax: {_score(job)} ...")

    def say(self, text: str) -> None:
        """A line that stays."""
        typer.echo(f"\r\x1b[K{text}" if self._renew else text, err=True)


def _score(job: "Job") -> str:
    loss = f", mean loss {job.model.mean_loss_:.4g}" if job.score.rows else ""
    rejected = job.model.rejected_.count
    return f"{counted(job.rows, 'row')}, {rejected:,} rejected; {job.score.words()}{loss}"


def _why(job: "Job") -> str:
    """What keeps rows from being learned."""
    from .._support.errors import nearest

    rejected = job.model.rejected_
    if not rejected.count:
        names = map(str, job.model.feature_names_)
        return f"none has a value for {job.target!r}.{nearest(job.target, names)}"
    return f"{rejected.count:,} were rejected, {rejected.most_often()}."


def _model(
    kind: type, task: str, given: dict[str, str | None]
) -> "StreamingClassifier | StreamingRegressor":
    """With the options that were given; `estimators.options` has them and checks them."""
    from .._support.errors import UserError

    known = {field.name: field.type for field in dataclasses.fields(kind)}
    options: dict[str, object] = {}
    for name, text in given.items():
        if text is None:
            continue
        if name not in known:
            raise UserError(f"--{name} is not an option of --task {task}.")
        options[name] = _value(name, text, known[name])
    model: StreamingClassifier | StreamingRegressor = kind(**options)
    return model


def _value(name: str, text: str, type_: Any) -> object:
    """What was typed, as the option has it: a number, words with commas between them, a word."""
    from .._support.errors import UserError

    kinds = typing.get_args(type_) if isinstance(type_, types.UnionType) else (type_,)
    words = tuple(word for word in map(str.strip, text.split(",")) if word not in ("", "none"))
    if type(None) in kinds and not words:
        return None
    number = next((kind for kind in (int, float) if kind in kinds), None)
    if number is not None:
        try:
            return number(text)
        except ValueError as error:
            expected = "a whole number" if number is int else "a number"
            flag = f"--{name.replace('_', '-')}"
            raise UserError(f"{flag} must be {expected}, but is {text!r}.") from error
    return text if str in kinds and "," not in text else words
