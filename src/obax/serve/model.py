"""A model that is served: it predicts, learns, keeps rows for their labels, and is saved."""

import asyncio
import contextlib
import dataclasses
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

from .._support import files
from .._support.messages import UserError
from ..checkpoint import format
from ..estimators import Pool, StreamingRegressor, Table
from ..estimators.pending import Pending
from ..streaming.reasons import Reasons
from .journal import Journal
from .prediction import predict
from .protocol import ModelRequest, RequestError, parse

INLINE_ROWS = 256
"""Requests of more rows are handled in a thread, so that others need not wait for them."""
TURN_SECONDS = 30.0
"""How long a request waits until those before it have been learned."""
NAME = re.compile(r"[A-Za-z0-9._-]{1,100}")
Result = TypeVar("Result")


@dataclasses.dataclass(frozen=True)
class Saves:
    """When models are saved, beside at the end."""

    rows: int = 10_000
    """Rows learned between two checkpoints."""
    seconds: float = 60.0
    """Seconds between two checkpoints, if anything was learned."""
    journal: bool = False
    """Whether each request is on the disk before it is answered."""


class ServedModel:
    """A model, its file, and its journal.

    **Arguments:**

    - `name`: the name in addresses.
    - `model`: an estimator of `obax.estimators` or a pool; with `path`, the one that the file holds
      if it is there.
    - `path`: where it is saved; with `None` it does not learn.
    """

    def __init__(self, name: str, model: Any, path: Path | None, saves: Saves):
        if not NAME.fullmatch(name):
            raise UserError(
                f"a model's name must have letters, digits, '.', '_' and '-' only, but is {name!r}."
            )
        self.name, self.path, self.saves = name, path, saves
        self.journal: Journal | None = None
        meta: dict[str, Any] = {}
        if path is not None:
            if path.exists():
                model, meta = read_model(path)
            self.journal = Journal(path, saves.journal)
        self.model: Any = model.prepare()
        single = model.model if isinstance(model, Pool) else model
        self.numbers = isinstance(single, StreamingRegressor)
        self.pool = model if isinstance(model, Pool) else None
        self.key = model.key if isinstance(model, Pool) else None
        self.pending: Pending = Pending(single.max_pending) if self.pool else model.pending_
        if self.pool and "pending" in meta:
            self.pending = Pending.from_plain(single.max_pending, meta["pending"])
        self.reasons = Reasons()
        """Why rows were rejected since the start."""
        self.saved_at, self._saved_rows = time.time(), self.rows
        self._changed, self._turn, self.due = False, asyncio.Lock(), asyncio.Event()
        if self.journal is not None:
            self._replay(self.journal, meta)

    @property
    def rows(self) -> int:
        """The number of rows learned."""
        return int(self.model.learned_)

    @property
    def inputs(self) -> dict[str, str]:
        """The features that rows have had, and the key of a pool, with their usual datatypes."""
        reader = self.model._fitted if self.pool is None else self.pool.reader
        columns = reader.columns
        texts = [*([] if self.key is None else [self.key]), *columns.words, *columns.dates]
        # A word or a date is several columns of the model, with the name of the feature in front.
        derived = tuple(f"{name}{mark}" for name in columns.words for mark in "=#")
        derived += tuple(f"{name}." for name in columns.dates)
        numbers = [str(n) for n in self.model.feature_names_ if not str(n).startswith(derived)]
        return {str(name): "BYTES" for name in texts} | dict.fromkeys(numbers, "FP64")

    def _replay(self, journal: Journal, meta: dict[str, Any]) -> None:
        """Learn what came after the checkpoint."""
        contained = meta.get("journal")
        # A file that was not written by a server has no number of its journal yet.
        self._changed = contained is None
        for operation, body in journal.replay(contained or 0):
            if contained is None:
                raise UserError(
                    f"{journal.path} is beside a model that was not served: it belongs to another "
                    f"one. Move one of them away."
                )
            self._changed = True
            # An error was the answer to the request.
            with contextlib.suppress(RequestError):
                request = parse(body, self.key)
                self._learn(request) if operation == "learn" else self._keep(request)

    # ---- requests ------------------------------------------------------------------------------

    async def learn(self, body: bytes) -> dict[str, Any]:
        """Learn the rows of a request; return what became of them."""
        request = parse(body, self.key)
        if request.targets is None:
            raise RequestError("learn needs target, or targets for several rows.")
        if request.rows is None and request.ids is None:
            raise RequestError("learn needs inputs, row or rows, or the id of a row.")
        if self.journal is None:
            raise RequestError(f"{self.name} is served to be read: it does not learn.", 409)
        answer, number = await self._in_turn(self.journal, "learn", request, body)
        await self.journal.synced(number)
        if self.rows - self._saved_rows >= self.saves.rows:
            self.due.set()
        return answer

    async def infer(self, body: bytes) -> dict[str, Any]:
        """Predict the rows of a request; keep them for their labels if they have an id."""
        request = parse(body, self.key)
        if request.rows is None:
            raise RequestError("infer needs inputs, row or rows.")
        if request.ids is not None and self.journal is not None:
            # A learn that is answered is on the disk with all that came before it, rows that wait
            # included; their own answers do not wait for the disk.
            await self._in_turn(self.journal, "keep", request, body)
        return await _run(self._infer, request)

    async def _in_turn(
        self, journal: Journal, operation: str, request: ModelRequest, body: bytes
    ) -> tuple[Any, int]:
        """Learn or keep rows after earlier requests; return the number of the entry too."""
        try:
            async with asyncio.timeout(TURN_SECONDS):
                await self._turn.acquire()
        except TimeoutError:
            text = "too many requests wait to be learned; try again later."
            raise RequestError(text, 503) from None
        try:
            number = journal.append(operation, body)
            self._changed = True
            call = self._learn if operation == "learn" else self._keep
            return await _run(call, request), number
        finally:
            self._turn.release()

    def _keep(self, request: ModelRequest) -> None:
        """Keep the rows of a request under their ids."""
        for i, id in enumerate(request.ids or []):
            row = _row(request.rows, i)
            if self.pool is not None and request.keys is not None:
                row[self.pool.key] = request.keys[i]
            try:
                self.pending.keep(id, row)
            except (ValueError, TypeError) as error:
                raise RequestError(str(error), 409) from error

    def _learn(self, request: ModelRequest) -> dict[str, Any]:
        rows: Any = request.rows
        if rows is None:
            rows = [self._waiting(id) for id in request.ids or []]
            if request.size == 1 and isinstance(rows[0], Table):
                raise RequestError(rows[0].rejected[0], 404)
        with _as_request_errors():
            rejected = self._learn_rows(rows, request.keys, request.targets or [])
        for line in rejected:
            self.reasons.add(line["reason"])
        learned = {"learned": request.size - len(rejected), "rejected": rejected}
        return self._header(request) | learned | {"rows": self.rows}

    def _waiting(self, id: Any) -> dict[Any, Any] | Table:
        """Return a row that waits for its label, or one that says why there is none."""
        try:
            return dict(self.pending.take(id))
        except (KeyError, ValueError, TypeError) as error:
            return Table.unreadable(str(error.args[0]))

    def _learn_rows(
        self, rows: Any, keys: list[Any] | None, targets: list[Any]
    ) -> list[dict[str, Any]]:
        """Learn rows; return those that were rejected."""
        if self.pool is None and len(targets) == 1:
            rejected = self.model.rejected_
            before = rejected.count
            self.model.learn_one(_row(rows, 0), targets[0])
            new = rejected.count > before
            return [{"row": 0, "reason": rejected[-1]["reason"]}] if new else []
        reasons = self.model.play(*self._arguments(rows, keys), targets).rejected
        if not any(reasons) and None not in targets:
            return []
        return [
            {"row": i, "reason": reason or "its target is missing"}
            for i, (reason, target) in enumerate(zip(reasons, targets, strict=True))
            if reason is not None or target is None
        ]

    def _arguments(self, rows: Any, keys: list[Any] | None) -> tuple[Any, ...]:
        """Return rows as the model takes them, for a pool with the keys before them."""
        if self.pool is None:
            return (rows,)
        column = self.pool.key
        if keys is None:
            keys = [_row(rows, i).get(column) for i in range(len(rows))]
        if isinstance(rows, Table) and column in rows.names:
            rows = [rows.row(i) for i in range(len(rows))]
        return keys, rows

    def _infer(self, request: ModelRequest) -> dict[str, Any]:
        with _as_request_errors():
            rows = [_row(request.rows, 0)] if request.size == 1 else request.rows
            arguments = self._arguments(rows, request.keys)
            prediction = predict(self.model, arguments, request.coverage)
        return self._header(request) | prediction.answer(request)

    def _header(self, request: ModelRequest) -> dict[str, Any]:
        header = {"model_name": self.name, "model_version": "1"}
        return header if request.id is None else header | {"id": request.id}

    # ---- checkpoints ---------------------------------------------------------------------------

    async def save(self) -> None:
        """Write the model to its file, if it has changed; requests to learn wait meanwhile."""
        if self.journal is None or self.path is None:
            return
        async with self._turn:
            self.due.clear()
            if not self._changed and self.path.exists():
                return
            meta: dict[str, Any] = {"round": self.rows, "journal": self.journal.number}
            if self.pool is not None:
                meta["pending"] = self.pending.to_plain()
            data = await asyncio.to_thread(format.model_to_bytes, self.model, meta)
            await asyncio.to_thread(files.write_bytes, self.path, data)
            await self.journal.clear()
            self._changed, self._saved_rows, self.saved_at = False, self.rows, time.time()

    async def save_from_time_to_time(self) -> None:
        """Save every so many rows or seconds, until cancelled."""
        while True:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.due.wait(), self.saves.seconds)
            try:
                # One that is cancelled goes on: the last checkpoint must come after it.
                await asyncio.shield(self.save())
            except OSError:
                # The disk may have room again; the age of the checkpoint is among the metrics.
                await asyncio.sleep(1.0)


def read_model(path: Path) -> tuple[Any, dict[str, Any]]:
    """Return the model or pool that a file holds, and its meta."""
    checkpoint = format.Checkpoint(format.read_bytes(path), str(path))
    return format.model_from_bytes(checkpoint), checkpoint.meta


async def _run(call: Callable[[ModelRequest], Result], request: ModelRequest) -> Result:
    if request.size > INLINE_ROWS:
        return await asyncio.to_thread(call, request)
    return call(request)


@contextlib.contextmanager
def _as_request_errors() -> Iterator[None]:
    """Raise what a model says of its arguments as a `RequestError`."""
    try:
        yield
    except (ValueError, TypeError, AttributeError) as error:
        raise RequestError(str(error)) from error


def _row(rows: Any, index: int) -> dict[Any, Any]:
    """Return a row that can be changed, without its missing numbers."""
    if isinstance(rows, Table):
        return {name: value for name, value in rows.row(index).items() if value == value}
    row = rows[index]
    return {} if isinstance(row, Table) else dict(row)
