"""A stream with its model, output and checkpoints, which stay in step.

A checkpoint holds the model, the position in the input, the length of the output, and the first and
last bytes of both. It is taken between two batches, after the output has reached the disk. After
any crash, the output file is cut back to the checkpoint and the rows since then are processed
again: the file ends up the same, byte for byte, as that of a run that was never interrupted. An
input or output that is not the one of the checkpoint is an error.
"""

import contextlib
import dataclasses
import json
import os
import stat
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

from .._support import files
from .._support.messages import counted
from ..checkpoint import ModelFolder
from ..estimators import Played, Pool, StreamingClassifier, StreamingRegressor
from .input_checks import Ends, StreamError
from .late_labels import join_late_labels
from .page import write_page
from .parquet import ParquetSource
from .reasons import Reasons
from .results import results, to_json
from .score import Score
from .signals import Stop, reader_has_gone
from .source import MAX_BATCH, Batch, Input, Position, Source, read_ends

OUTPUT_NOTE = "output.json"
"""The file that names the output of a stream before its first checkpoint."""
PAGE_SECONDS = 1.0
"""How often the page of `obax watch` is written at most."""


@dataclasses.dataclass(frozen=True)
class Output:
    """Where predictions go."""

    destination: Path | BinaryIO
    """A path, or a binary stream such as `sys.stdout.buffer`."""
    coverage: float | None = None
    """The coverage of the intervals or sets that are written with the predictions, if any."""
    overwrite: bool = False
    """Whether to replace a file that is there already and is not the output of this stream."""


@dataclasses.dataclass(frozen=True)
class Checkpoint:
    """Where and how often a stream is saved."""

    folder: Path
    every: int = 1000
    """The number of rows between two checkpoints."""


class Job:
    """A stream that is predicted and learned.

    **Arguments:**

    - `model`: a new estimator of `obax.estimators`, or a pool of them; the key of the pool names a
      column.
    - `input`, `output`, `checkpoint`: where rows come from, where predictions go, where to save.
    - `on_batch`: called with the job after each batch.
    - `stop`: asked between batches whether to end.
    """

    def __init__(
        self,
        model: StreamingClassifier | StreamingRegressor | Pool,
        input: Input,
        output: Output,
        checkpoint: Checkpoint | None = None,
        *,
        on_batch: Callable[["Job"], None] = lambda job: None,
        stop: Stop | None = None,
    ):
        key, single = None, model
        if isinstance(model, Pool):
            if input.id is not None or output.coverage is not None:
                raise StreamError(
                    "--key cannot be used with --id or --coverage, which are for one "
                    "model; leave out one of them."
                )
            key, single = model.key, model.model
        self.model: Any = model.prepare()
        self.output, self.rows, self.reasons = output, 0, Reasons()
        self.score = Score(isinstance(single, StreamingRegressor), output.coverage)
        self._every = checkpoint.every if checkpoint else 0
        self._on_batch, self._stop = on_batch, stop
        settings: dict[str, Any] = {"target": input.target, "kind": input.format}
        settings |= {"drop": list(input.drop), "id": input.id, "coverage": output.coverage}
        settings |= input.kinds.to_dict()
        self._settings = settings if key is None else settings | {"key": key}
        self.folder: ModelFolder | None = None
        with contextlib.ExitStack() as opened:
            if checkpoint is not None:
                self.folder = opened.enter_context(
                    contextlib.closing(ModelFolder(checkpoint.folder))
                )
            saved = self._restore()
            resumes = saved and (isinstance(input.source, Path) or input.continues)
            open_source = ParquetSource if input.format == "parquet" else Source
            self.source: Source = open_source(
                input,
                Position.from_dict(saved) if resumes else None,
                key=key,
                numeric=self.score.numbers,
                **({} if stop is None else {"wait": stop.wait}),
            )
            opened.callback(self.source.close)
            self._check_output_is_not_input()
            self._check_input(saved)
            out = output.destination
            if isinstance(out, Path):
                out = opened.enter_context(self._open_output(out, saved))
            self.out: BinaryIO = out
            # Nothing failed: what was opened is closed with the job.
            self._opened = opened.pop_all()
        self._page_written = 0.0
        self.started, self.first_row = time.monotonic(), self.rows

    def run(self) -> int:
        """Process rows to the end of the input; return the number of rows.

        It ends early if nobody reads the output any more, or if a stop is requested. In each case
        what was written is in the checkpoint.
        """
        ended = False
        try:
            while not ended:
                limit = self._every - self.rows % self._every if self._every else MAX_BATCH
                batch = None if self._asked_to_stop() else self.source.take(min(limit, MAX_BATCH))
                ended = not batch
                if batch:
                    self.play(batch)
                if self._every and (ended or self.rows % self._every == 0):
                    self.save()
            if self.folder is not None:
                write_page(self, done=not self._asked_to_stop())
        finally:
            # After an error inside a batch the model may be ahead of the output: nothing is saved,
            # and a resumption begins at the last checkpoint, where the two agree.
            self.close()
        return self.rows

    def _asked_to_stop(self) -> bool:
        return bool(self._stop) or reader_has_gone(self.out)

    def close(self) -> None:
        """Close the files that were opened here."""
        with self._name_output_in_errors():
            self._opened.close()

    def play(self, batch: Batch) -> None:
        """Predict and learn some rows, and write a line for each."""
        if self.source.input.id is not None:
            batch = join_late_labels(batch, self.model.pending_)
        played = self._predict_and_learn(batch)
        for reason in filter(None, played.rejected):
            self.reasons.add(reason)
        lines = results(played, batch, self.score)
        numbered = [to_json({"t": t} | line) for t, line in enumerate(lines, self.rows + 1)]
        with self._name_output_in_errors():
            self.out.write(("\n".join(numbered) + "\n").encode())
            self.out.flush()
        self.rows += len(batch)
        if self.folder is not None and time.monotonic() - self._page_written > PAGE_SECONDS:
            write_page(self)
            self._page_written = time.monotonic()
        self._on_batch(self)

    def _predict_and_learn(self, batch: Batch) -> Played:
        if isinstance(self.model, Pool):
            return self.model.play(batch.keys, batch.rows, batch.targets)
        played: Played = self.model.play(batch.rows, batch.targets, coverage=self.score.coverage)
        return played

    def save(self) -> None:
        """Write a checkpoint of all that is needed to resume from here."""
        assert self.folder is not None
        written, ends = 0, Ends()
        with self._name_output_in_errors():
            self.out.flush()
            # What was written to a pipe cannot be cut back; /dev/null only claims that it can.
            if _is_regular_file(self.out):
                os.fsync(self.out.fileno())
                written = self.out.tell()
                if self.out.readable():
                    ends = read_ends(self.out.fileno(), written)
        meta = self.source.position.to_dict() | {
            "written": written,
            "output": ends.to_dict(),
            "setup": self._settings,
            "score": self.score.to_dict(),
            "rejected": self.reasons.to_dict(),
        }
        self.folder.save(self.rows, self.model, meta)

    def _restore(self) -> dict[str, Any]:
        """Restore the model of the last checkpoint, if there is one, and return its other data."""
        restored = None if self.folder is None else self.folder.latest(like=self.model)
        if restored is None:
            return {}
        model, meta = restored
        if meta["setup"] != self._settings or model.get_params() != self.model.get_params():
            raise StreamError(
                f"{self.folder.path} holds a stream with other settings "  # type: ignore[union-attr]
                f"({meta['setup']}, {model.get_params()}). Use the same ones, or another folder."
            )
        self.model, self.rows = model, meta["round"]
        self.score = Score(**meta["score"])
        self.reasons = Reasons(**meta.get("rejected", {}))
        return meta

    def _check_input(self, saved: dict[str, Any]) -> None:
        """Check that the input is the one of the checkpoint; skip its rows if it starts again."""
        input = self.source.input
        if not isinstance(input.source, Path) and not input.continues:
            self._skip_processed_rows()
        seen = self.source.seen()
        if saved and not input.allow_changed and seen != Ends.from_dict(saved["seen"]):
            raise StreamError(
                f"the input is not the one of the checkpoint in {self.folder.path}: its "  # type: ignore[union-attr]
                f"first {saved['offset']:,} bytes begin or end differently, or are fewer. Was it "
                f"replaced, rotated or cut? Use the same input, start anew with another folder, or "
                f"resume in spite of it with --other-input."
            )

    def _skip_processed_rows(self) -> None:
        skipped = self.source.skip(self.rows)
        if skipped < self.rows:
            raise StreamError(
                f"the input ended after {counted(skipped, 'row')}, but the checkpoint is at row "
                f"{self.rows:,}; is it another input? For one that goes on instead of starting "
                f"again, pass --continues."
            )

    def _check_output_is_not_input(self) -> None:
        """Check that predictions do not overwrite the rows, whatever the two files are called."""
        source, out = os.fstat(self.source.descriptor), self.output.destination
        try:
            target = out.stat() if isinstance(out, Path) else os.fstat(out.fileno())
        except (OSError, ValueError):
            return
        if stat.S_ISREG(source.st_mode) and os.path.samestat(source, target):
            raise StreamError(
                "the output is the same file as the input, which it would destroy; choose another "
                "--out."
            )

    def _open_output(self, out: Path, saved: dict[str, Any]) -> BinaryIO:
        """Open the output and cut it back to its length at the checkpoint."""
        if out.exists() and not out.is_file() and not out.is_dir():
            # A pipe or a device: like standard output, it goes on from wherever it is.
            return out.open("wb")
        if not saved:
            self._claim_output(out)
            return out.open("w+b")
        written = saved["written"]
        if not out.is_file() or out.stat().st_size < written:
            raise StreamError(
                f"{out} is shorter than the checkpoint says ({written:,} bytes): it was moved or "
                f"changed. Put it back, or start anew with another folder."
            )
        file = out.open("r+b")
        if read_ends(file.fileno(), written) != Ends.from_dict(saved["output"]):
            file.close()
            raise StreamError(
                f"{out} is not what this stream has written so far, and is left unchanged. Pass "
                f"the --out of before, or start anew with another folder."
            )
        file.truncate(written)
        file.seek(written)
        return file

    def _claim_output(self, out: Path) -> None:
        """Note the name of the output, so that a run that is killed early can be started again."""
        name = str(out.resolve())
        note = None if self.folder is None else self.folder.path / OUTPUT_NOTE
        ours = note is not None and note.is_file() and json.loads(note.read_text()) == name
        if out.is_file() and out.stat().st_size and not (ours or self.output.overwrite):
            raise StreamError(
                f"{out} exists already and is not the output of this stream; choose another --out, "
                f"or pass --overwrite to replace it."
            )
        if note is not None:
            files.write_text(note, json.dumps(name))

    def _name_output_in_errors(self) -> contextlib.AbstractContextManager[None]:
        out = self.output.destination
        return files.named_errors(out if isinstance(out, Path) else "standard output")


def _is_regular_file(out: BinaryIO) -> bool:
    """Return whether a file can be cut back: it is not a pipe, a device or a buffer."""
    try:
        return stat.S_ISREG(os.fstat(out.fileno()).st_mode)
    except OSError:
        return False
