"""A model that is served: it predicts, learns, keeps rows for their labels, and is saved."""

import asyncio
import dataclasses
import re
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from .._support import files
from .._support.messages import UserError
from ..checkpoint import format
from ..estimators import Pool, StreamingRegressor, Table
from ..estimators.pending import Pending
from ..streaming.reasons import Reasons
from .journal import Journal, JournalError
from .protocol import Request, RequestError, parse, tensor

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

    def _replay(self, journal: Journal, meta: dict[str, Any]) -> None:
        """Learn what came after the checkpoint."""
        begins = meta.get("segment")
        # A file that was not written by a server has no number of its journal yet.
        self._changed = begins is None
        for operation, body in journal.replay(1 if begins is None else begins):
            if begins is None:
                raise UserError(
                    f"{journal.name} is beside a model that was not served: it belongs to another "
                    f"one. Move one of them away."
                )
            self._changed = True
            try:
                request = parse(body)
                self._learn(request) if operation == "learn" else self._keep(request)
            except RequestError:
                continue  # Its client was told.

    # ---- requests ------------------------------------------------------------------------------

    async def learn(self, body: bytes) -> dict[str, Any]:
        """Learn the rows of a request; return what became of them."""
        request = parse(body)
        if request.targets is None:
            raise RequestError("learn needs target, or targets for several rows.")
        if request.rows is None and request.ids is None:
            raise RequestError("learn needs inputs, row or rows, or the id of a row.")
        if self.journal is None:
            raise RequestError(f"{self.name} is served to be read: it does not learn.", 409)
        answer, position = await self._in_turn("learn", request, body, self._learn)
        await self._on_disk(position)
        if self.rows - self._saved_rows >= self.saves.rows:
            self.due.set()
        return answer

    async def infer(self, body: bytes) -> dict[str, Any]:
        """Predict the rows of a request; keep them for their labels if they have an id."""
        request = parse(body)
        if request.rows is None:
            raise RequestError("infer needs inputs, row or rows.")
        if request.ids is not None and self.journal is not None:
            # A learn that is answered is on the disk with all that came before it, rows that wait
            # included; their own answers do not wait for the disk.
            await self._in_turn("infer", request, body, self._keep)
        return await self._run(request, self._infer)

    async def _in_turn(
        self, operation: str, request: Request, body: bytes, call: Callable[[Request], Result]
    ) -> tuple[Result, tuple[int, int]]:
        """Note a request in the journal and handle it, one at a time; return its position too."""
        journal = self.journal
        assert journal is not None
        try:
            async with asyncio.timeout(TURN_SECONDS):
                await self._turn.acquire()
        except TimeoutError:
            raise RequestError(
                "too many requests wait to be learned; try again later.", 503
            ) from None
        try:
            position = 0
            if self.saves.journal:
                try:
                    position = journal.append(operation, body)
                except JournalError as error:
                    raise RequestError(str(error), 503) from error
            self._changed = True
            return await self._run(request, call), (journal.segment, position)
        finally:
            self._turn.release()

    async def _run(self, request: Request, call: Callable[[Request], Result]) -> Result:
        if request.size > INLINE_ROWS:
            return await asyncio.to_thread(call, request)
        return call(request)

    async def _on_disk(self, position: tuple[int, int]) -> None:
        if self.saves.journal and self.journal is not None:
            await self.journal.synced(*position)

    def _keep(self, request: Request) -> None:
        """Keep the rows of a request under their ids."""
        assert request.ids is not None
        for i, id in enumerate(request.ids):
            row = _row(request.rows, i)
            if self.pool is not None and request.keys is not None:
                row = {**row, self.pool.key: request.keys[i]}
            try:
                self.pending.keep(id, row)
            except (ValueError, TypeError) as error:
                raise RequestError(str(error), 409) from error

    def _learn(self, request: Request) -> dict[str, Any]:
        rows: Any = request.rows
        if rows is None:
            rows = [self._waiting(id) for id in request.ids or []]
            if request.size == 1 and isinstance(rows[0], Table):
                raise RequestError(rows[0].rejected[0], 404)
        try:
            rejected = self._learn_rows(rows, request.keys, request.targets or [])
        except (ValueError, TypeError) as error:
            raise RequestError(str(error)) from error
        for line in rejected:
            self.reasons.add(line["reason"])
        learned = {"learned": request.size - len(rejected), "rejected": rejected}
        return _header(self, request) | learned | {"rows": self.rows}

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
        if self.pool is None:
            reasons = self.model.play(rows, targets).rejected
        else:
            if keys is None:
                keys = [_row(rows, i).get(self.pool.key) for i in range(len(targets))]
            reasons = self.pool.play(keys, _without(rows, self.pool.key), targets).rejected
        return [
            {"row": i, "reason": reason or "its target is missing"}
            for i, (reason, target) in enumerate(zip(reasons, targets, strict=True))
            if reason is not None or target is None
        ]

    def _infer(self, request: Request) -> dict[str, Any]:
        try:
            prediction = self._predict(request)
        except (ValueError, TypeError, AttributeError) as error:
            raise RequestError(str(error)) from error
        answer = _header(self, request)
        if request.plain == "inputs":
            return answer | {"outputs": _tensors(prediction)}
        lines = [_plain(prediction, i) for i in range(request.size)]
        return answer | (lines[0] if request.plain == "row" else {"predictions": lines})

    def _predict(self, request: Request) -> "Prediction":
        model, rows = self.model, request.rows
        keys: tuple[Any, ...] = ()
        if self.pool is not None:
            if request.coverage is not None:
                raise ValueError("coverage is for one model, not for a pool.")
            given = request.keys or [_row(rows, i).get(self.pool.key) for i in range(request.size)]
            keys, rows = (given,), _without(rows, self.pool.key)
        if self.numbers:
            values = [float(value) for value in model.predict_many(*keys, rows)]
            if request.coverage is None:
                return Prediction(values)
            intervals = model.predict_interval_many(rows, request.coverage).to_numpy().tolist()
            return Prediction(values, intervals=intervals)
        if request.size == 1 and not keys:
            found = model.predict_proba_one(_row(rows, 0))
            found.pop(None, None)
            classes, lines = list(found), np.array([list(found.values())])
        else:
            table = model.predict_proba_many(*keys, rows)
            classes, lines = list(table.columns), table.to_numpy()
        best: list[Any] = [None] * len(lines)
        if classes:
            # A key that has learned nothing has no chance of any class.
            known: list[bool] = np.any(lines, axis=1).tolist()
            places = lines.argmax(axis=1).tolist()
            best = [classes[i] if seen else None for i, seen in zip(places, known, strict=True)]
        sets = None
        if request.coverage is not None:
            sets = model.predict_set_many(rows, request.coverage)
        return Prediction(best, lines, classes, sets=sets)

    # ---- checkpoints ---------------------------------------------------------------------------

    async def save(self) -> None:
        """Write the model to its file, if it has changed; requests to learn wait meanwhile."""
        if self.journal is None or self.path is None:
            return
        async with self._turn:
            self.due.clear()
            if not self._changed and self.path.exists():
                return
            segment = await self.journal.rotate()
            meta: dict[str, Any] = {"round": self.rows, "segment": segment}
            if self.pool is not None:
                meta["pending"] = self.pending.to_plain()
            data = await asyncio.to_thread(format.model_to_bytes, self.model, meta)
            await asyncio.to_thread(files.write_bytes, self.path, data)
            self.journal.remove_before(segment)
            self._changed, self._saved_rows, self.saved_at = False, self.rows, time.time()

    async def save_from_time_to_time(self) -> None:
        """Save every so many rows or seconds, until cancelled."""
        while True:
            try:
                async with asyncio.timeout(self.saves.seconds):
                    await self.due.wait()
            except TimeoutError:
                pass
            try:
                await self.save()
            except OSError:
                # The disk may have room again; the age of the checkpoint is among the metrics.
                await asyncio.sleep(1.0)


@dataclasses.dataclass(frozen=True)
class Prediction:
    """What is predicted for the rows of a request."""

    values: list[Any]
    probabilities: np.ndarray | None = None
    classes: Sequence[Any] = ()
    intervals: list[list[float]] | None = None
    sets: list[set[Any]] | None = None


def read_model(path: Path) -> tuple[Any, dict[str, Any]]:
    """Return the model or pool that a file holds, and its meta."""
    checkpoint = format.Checkpoint(format.read_bytes(path), str(path))
    return format.model_from_bytes(checkpoint), checkpoint.meta


def _header(served: ServedModel, request: Request) -> dict[str, Any]:
    header = {"model_name": served.name, "model_version": "1"}
    return header if request.id is None else header | {"id": request.id}


def _tensors(prediction: Prediction) -> list[dict[str, Any]]:
    rows, classes = len(prediction.values), list(prediction.classes)
    outputs = [tensor("prediction", prediction.values)]
    if prediction.probabilities is not None:
        outputs.append(
            {
                "name": "probabilities",
                "datatype": "FP64",
                "shape": [rows, len(classes)],
                "data": prediction.probabilities.ravel(),
                "parameters": {"classes": classes},
            }
        )
    if prediction.intervals is not None:
        flat = [float(v) for line in prediction.intervals for v in line]
        outputs.append(tensor("interval", flat, (rows, 2)))
    if prediction.sets is not None:
        inside = [label in members for members in prediction.sets for label in classes]
        outputs.append(tensor("set", inside, (rows, len(classes))))
        outputs[-1]["parameters"] = {"classes": classes}
    return outputs


def _plain(prediction: Prediction, row: int) -> dict[str, Any]:
    line: dict[str, Any] = {"prediction": prediction.values[row]}
    if prediction.probabilities is not None:
        labels = map(str, prediction.classes)
        line["probabilities"] = dict(
            zip(labels, prediction.probabilities[row].tolist(), strict=True)
        )
    if prediction.intervals is not None:
        line["interval"] = prediction.intervals[row]
    if prediction.sets is not None:
        line["set"] = [label for label in prediction.classes if label in prediction.sets[row]]
    return line


def _row(rows: Any, index: int) -> dict[Any, Any]:
    if isinstance(rows, Table):
        return {name: value for name, value in rows.row(index).items() if value == value}
    row = rows[index]
    return {} if isinstance(row, Table) else dict(row)


def _without(rows: Any, key: str) -> Any:
    """Return rows without the column of the key."""
    if isinstance(rows, Table):
        if key not in rows.names:
            return rows
        rows = [rows.row(i) for i in range(len(rows))]
    return [
        row if isinstance(row, Table) else {n: v for n, v in row.items() if n != key}
        for row in rows
    ]
