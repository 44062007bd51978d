"""A stream with its model, output and checkpoints, kept in step.

A checkpoint holds the model, how many bytes of the input have been read and how many of the output
were written, with the ends of both. It is taken between two batches, after the output has reached
the disk. Taken up again after any crash, the output file is cut back to the checkpoint and the rows
since are played again: the file ends up the same, byte for byte, as that of a run that was never
interrupted. An input or output that is not the one of before is an error.
"""

import contextlib
import json
import os
import stat
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from .._support import atomic
from .._support.counting import counted
from ..checkpoint import Folder
from ..estimators import Played, Pool, StreamingClassifier, StreamingRegressor
from .beginning import KEPT, Seen, StreamError as StreamError
from .late import matched
from .results import as_json, at, results, rounded, tenants
from .score import Score
from .source import LARGEST_BATCH, Batch, Source
from .stopping import Stop, is_closed

LIVE = "live.json"
OUTPUT = "output.json"
"""Which file a stream writes to, before there is a checkpoint that says it."""
LIVE_SECONDS = 1.0
LIVE_POINTS = 256
TENANTS = 50
"""Keys that `obax watch` shows, the worst first."""


class Job:
    """One stream.

    **Arguments:**

    - `model`: a fresh estimator of `obax.estimators`, or a pool of them, which `key` then names the
      column of.
    - `source`: a path, or a file descriptor such as 0.
    - `kind`: `"csv"` or `"jsonl"`. `target`: the name of the column to predict. `drop`: columns to
      leave out.
    - `out`: a path, or a binary stream such as `sys.stdout.buffer`.
    - `checkpoint`: a folder; `every`: so many rows.
    - `id`: the column that tells which row a label belongs to, where they come later: see `late`.
    - `coverage`: of the intervals or sets that are written with the predictions, if any.
    - `on_batch`: called with the job after each batch.
    - `continues`: after a resumption, a pipe goes on where it was; otherwise it starts from its
      beginning again and the rows that were played are passed over. Files are always taken up at
      the right byte.
    - `stop`: asked between batches whether to end.
    - `overwrite`: an output that is there and not this stream's is replaced. `other_input`: go on
      although the input is not the one of before.
    """

    def __init__(
        self,
        model: StreamingClassifier | StreamingRegressor | Pool,
        source: Path | int,
        kind: str,
        target: str,
        out: Path | BinaryIO,
        *,
        drop: tuple[str, ...] = (),
        checkpoint: Path | None = None,
        every: int = 1000,
        continues: bool = False,
        id: str | None = None,
        coverage: float | None = None,
        on_batch: Callable[["Job"], None] | None = None,
        stop: Stop | None = None,
        overwrite: bool = False,
        other_input: bool = False,
    ):
        self.model: Any = model.prepare()
        self.target = target
        key, numbers = None, isinstance(model, StreamingRegressor)
        if isinstance(model, Pool):
            if id is not None or coverage is not None:
                raise StreamError(
                    "--key cannot be used with --id or --coverage, which are for one "
                    "model; leave out one of them."
                )
            key, numbers = model.key, isinstance(model.model, StreamingRegressor)
        self.every = every
        self.folder = None if checkpoint is None else Folder(checkpoint)
        self.rows = 0
        self.score = Score(numbers, coverage)
        self._on_batch, self._stop = on_batch, stop
        self._setup: dict[str, Any] = {"target": target, "kind": kind, "drop": list(drop)}
        self._setup |= {"id": id, "coverage": coverage}
        if key is not None:
            self._setup["key"] = key
        self._overwrite = overwrite
        with contextlib.ExitStack() as opened:
            if self.folder is not None:
                opened.callback(self.folder.close)
            meta = self._resumed()
            descriptor = source if isinstance(source, int) else os.open(source, os.O_RDONLY)
            if isinstance(source, Path):
                opened.callback(os.close, descriptor)
            self._keep_apart(descriptor, out)
            seekable = isinstance(source, Path) or continues
            place = meta if seekable else {}
            self.source = Source(
                descriptor,
                kind,
                target,
                drop,
                offset=place.get("offset", 0),
                header=place.get("header"),
                numeric=numbers,
                id=id,
                key=key,
                # Checkpoints of 0.2.0 know nothing of it.
                inside=place.get("inside", False),
                seen=Seen.of(place["seen"]) if place else Seen(),
            )
            if stop is not None:
                self.source.wait = stop.wait
            if isinstance(source, Path):
                found = ends(descriptor, self.source.offset)
                os.lseek(descriptor, self.source.offset, os.SEEK_SET)
            elif continues:
                self.source.rest = place.get("rest", "").encode("latin-1")
                found = self.source.seen
            else:
                self._pass_over()
                found = self.source.seen
            if meta and not other_input and found != Seen.of(meta["seen"]):
                raise StreamError(
                    f"the input is not the one of the checkpoint in {checkpoint}: its first "
                    f"{meta['offset']:,} bytes begin or end otherwise, or are fewer. Was it "
                    f"replaced, rotated or cut? Use the same input, start anew with another "
                    f"folder, or go on all the same with --other-input."
                )
            self._named = out if isinstance(out, Path) else "standard output"
            if isinstance(out, Path):
                out = opened.enter_context(self._cut_back(out, meta))
            self.out: BinaryIO = out
            # Nothing failed: what was opened is closed with the job.
            self._opened = opened.pop_all()
        self._drawn = 0.0
        self._began, self._first = time.monotonic(), self.rows

    def run(self) -> int:
        """Play until the input ends, nobody reads the output any more, or someone asks to stop; the
        number of rows. Each is an orderly end: what was written is in the checkpoint."""
        ended = False
        try:
            while not ended:
                left = self.every - self.rows % self.every if self.folder else LARGEST_BATCH
                batch = None if self._asked() else self.source.take(min(left, LARGEST_BATCH))
                ended = not batch
                if batch:
                    self.play(batch)
                if self.folder is not None and (ended or self.rows % self.every == 0):
                    self.save()
            if self.folder is not None:
                self.show(done=not self._asked())
        finally:
            # After an error inside a batch the model may be ahead of the output: nothing is saved,
            # and the last checkpoint, where the two agree, is what is taken up again.
            self.close()
        return self.rows

    def _asked(self) -> bool:
        """Whether to stop before the input has ended."""
        return bool(self._stop) or is_closed(self.out)

    def close(self) -> None:
        """Close the files that were opened here."""
        with atomic.naming(self._named):
            self._opened.close()

    def play(self, batch: Batch) -> None:
        """Test and train on some rows, and write a line for each."""
        if self.source.id is not None:
            batch = matched(batch, self.model.pending_)
        found = results(self._played(batch), batch, self.score)
        lines = [as_json({"t": t} | result) for t, result in enumerate(found, self.rows + 1)]
        with atomic.naming(self._named):
            self.out.write(("\n".join(lines) + "\n").encode())
            self.out.flush()
        self.rows += len(batch)
        if self.folder is not None and time.monotonic() - self._drawn > LIVE_SECONDS:
            self.show()
        if self._on_batch is not None:
            self._on_batch(self)

    def _played(self, batch: Batch) -> Played:
        if isinstance(self.model, Pool):
            return self.model.play(batch.keys, batch.rows, batch.targets)
        played: Played = self.model.play(batch.rows, batch.targets, coverage=self.score.coverage)
        return played

    def save(self) -> None:
        """A checkpoint of all that is needed to go on from here."""
        assert self.folder is not None
        with atomic.naming(self._named):
            self.out.flush()
        written, output = 0, Seen()
        # Of a pipe, what was written cannot be taken back; /dev/null only says that it could.
        if _is_file(self.out):
            with atomic.naming(self._named):
                os.fsync(self.out.fileno())
            written = self.out.tell()
            if self.out.readable():
                output = ends(self.out.fileno(), written)
        meta: dict[str, Any] = {
            "offset": self.source.offset,
            "header": self.source.header,
            "seen": self.source.seen.plain(),
            "inside": self.source.inside,
            "rest": self.source.rest.decode("latin-1"),
            "written": written,
            "output": output.plain(),
            "setup": self._setup,
            "score": self.score.plain(),
        }
        self.folder.save(self.rows, self.model, meta)

    def show(self, *, done: bool = False) -> None:
        """What `obax watch` reads."""
        assert self.folder is not None
        self._drawn = time.monotonic()
        keyed = isinstance(self.model, Pool)
        empty = np.zeros(0)
        history = {"row": empty, "loss": empty} if keyed else self.model.hyperparameter_history_
        rejected = self.model.rejected_
        keep = slice(None, None, max(1, len(history["row"]) // LIVE_POINTS))
        rows, loss = (history.pop(name)[keep] for name in ("row", "loss"))
        seconds = max(self._drawn - self._began, 1e-9)
        live = {
            "kind": "stream",
            "rows": self.rows,
            "rows_per_second": round((self.rows - self._first) / seconds, 1),
            "updated": time.time(),
            "done": done,
            "mean_loss": rounded(self.model.mean_loss_),
            "score": rounded(self.score.means),
            "asked": self.score.coverage,
            "curves": rounded(self.score.curves),
            "explain": self.model.explain(),
            "history": {
                "row": rows.tolist(),
                "loss": rounded(loss),
                "hyperparameters": rounded(at(history, keep)),
            },
            "rejected": {
                "count": rejected.count,
                "last": [{"row": r["row"], "reason": r["reason"]} for r in rejected[-20:]],
            },
        }
        if keyed:
            live["tenants"] = tenants(self.model.tenants(TENANTS), len(self.model))
        atomic.write_text(self.folder.path / LIVE, json.dumps(live))

    def _resumed(self) -> dict[str, Any]:
        """The model and the place of the last checkpoint, if there is one."""
        found = None if self.folder is None else self.folder.latest(like=self.model)
        if found is None:
            return {}
        model, meta = found
        if meta["setup"] != self._setup or model.get_params() != self.model.get_params():
            raise StreamError(
                f"{self.folder.path} holds a stream with other settings "  # type: ignore[union-attr]
                f"({meta['setup']}, {model.get_params()}). Use the same ones, or another folder."
            )
        self.model, self.rows = model, meta["round"]
        self.score = Score(**meta["score"])
        return meta

    def _pass_over(self) -> None:
        """The rows before the checkpoint, of an input that starts again."""
        passed = self.source.skip(self.rows)
        if passed < self.rows:
            raise StreamError(
                f"the input ended after {counted(passed, 'row')}, but the checkpoint is at row "
                f"{self.rows:,}; is it another input? For one that goes on instead of "
                f"starting again, pass --continues."
            )

    def _keep_apart(self, descriptor: int, out: Path | BinaryIO) -> None:
        """Nobody's rows are overwritten by what is predicted of them, by whatever name."""
        source = os.fstat(descriptor)
        try:
            found = out.stat() if isinstance(out, Path) else os.fstat(out.fileno())
        except (OSError, ValueError):
            return
        if stat.S_ISREG(source.st_mode) and os.path.samestat(source, found):
            raise StreamError(
                "the output is the same file as the input, which it would destroy; choose another "
                "--out."
            )

    def _cut_back(self, out: Path, meta: dict[str, Any]) -> BinaryIO:
        """The output, as long as it was at the checkpoint."""
        if out.exists() and not out.is_file() and not out.is_dir():
            # A pipe or a device: as standard output, it goes on from wherever it is.
            return out.open("wb")
        if not meta:
            self._begin(out)
            return out.open("w+b")
        written = meta["written"]
        if not out.is_file() or out.stat().st_size < written:
            raise StreamError(
                f"{out} is shorter than the checkpoint says ({written:,} bytes): it was moved or "
                f"changed. Put it back, or start anew with another folder."
            )
        file = out.open("r+b")
        if ends(file.fileno(), written) != Seen.of(meta["output"]):
            file.close()
            raise StreamError(
                f"{out} is not what this stream has written so far: it is left as it is. Pass the "
                f"--out of before, or start anew with another folder."
            )
        file.truncate(written)
        file.seek(written)
        return file

    def _begin(self, out: Path) -> None:
        """Take note of the output, so that a start that was killed early knows it again."""
        name = str(out.resolve())
        note = None if self.folder is None else self.folder.path / OUTPUT
        ours = note is not None and note.is_file() and json.loads(note.read_text()) == name
        if out.is_file() and out.stat().st_size and not (ours or self._overwrite):
            raise StreamError(
                f"{out} is there already, and is not this stream's; choose another --out, or pass "
                f"--overwrite to replace it."
            )
        if note is not None:
            atomic.write_text(note, json.dumps(name))


def _is_file(out: BinaryIO) -> bool:
    """Whether it can be cut back to where it was: not a pipe, a device or a buffer."""
    try:
        return stat.S_ISREG(os.fstat(out.fileno()).st_mode)
    except OSError:
        return False


def ends(descriptor: int, size: int) -> Seen:
    """The first and the last of the first `size` bytes of a file."""
    tail = max(0, size - KEPT)
    return Seen(os.pread(descriptor, min(size, KEPT), 0), os.pread(descriptor, size - tail, tail))
