"""Rows of a Parquet file, in batches."""

import os
from pathlib import Path
from typing import Any

import numpy as np

from ..estimators import Table
from .columns import Identifiers, ValueRejected
from .input_checks import Ends, StreamError, check_header
from .source import MAX_BATCH, Batch, Input, Position, read_ends


class ParquetSource:
    """Rows of a Parquet file, as `Source` has those of text; a position counts rows, not bytes."""

    def __init__(
        self,
        input: Input,
        position: Position | None = None,
        *,
        key: str | None = None,
        numeric: bool = False,
        **_: Any,
    ):
        import pyarrow
        from pyarrow import parquet

        if not isinstance(input.source, Path):
            raise StreamError("Parquet must be a file: it cannot be read from a pipe.")
        self.input, self.key, self.numeric = input, key, numeric
        self.position = position or Position()
        self.descriptor = os.open(input.source, os.O_RDONLY)
        try:
            self._file = parquet.ParquetFile(input.source)
            names = list(self._file.schema_arrow.names)
            options = {"--target": [input.target], "--drop": input.drop}
            options |= {"--id": [input.id] if input.id else [], "--key": [key] if key else []}
            check_header(names, options)
        except pyarrow.ArrowException as error:
            os.close(self.descriptor)
            raise StreamError(f"the input is not a Parquet file: {error}.") from error
        except StreamError:
            self.close()
            raise
        self._names = [n for n in names if n not in {*input.drop, input.target, input.id, key}]
        self._batches = self._file.iter_batches(MAX_BATCH)
        self._batch, self._begin = None, 0
        self._identifiers = Identifiers()
        offset, self.position.offset = self.position.offset, 0
        self.skip(offset)

    def close(self) -> None:
        """Close the file."""
        self._file.close()
        os.close(self.descriptor)

    def seen(self) -> Ends:
        """Return the ends of the file, which does not grow."""
        return read_ends(self.descriptor, os.fstat(self.descriptor).st_size)

    def take(self, limit: int) -> Batch:
        """Return up to `limit` rows; none at the end."""
        part = self._next(limit)
        if part is None:
            return Batch(Table([], np.zeros((0, 0))), [], [], [])
        values = np.full((part.num_rows, len(self._names)), None, object)
        rejected: dict[int, str] = {}
        for j, name in enumerate(self._names):
            column = part.column(name).to_pylist()
            self._identifiers.look(name, column)
            for i, value in enumerate(column):
                try:
                    values[i, j] = self.input.kinds.convert(name, value)
                except ValueRejected as error:
                    rejected.setdefault(i, str(error))
        table = Table(self._names, values)
        table.rejected.update(rejected)
        missing = [None] * part.num_rows
        targets, ids, keys = (
            part.column(name).to_pylist() if name else missing
            for name in (self.input.target, self.input.id, self.key)
        )
        return Batch(table, targets, ids, keys)

    def skip(self, count: int) -> int:
        """Skip rows; return how many there were."""
        skipped = 0
        while skipped < count and (part := self._next(count - skipped)) is not None:
            skipped += part.num_rows
        return skipped

    def _next(self, limit: int) -> Any:
        """Return the next rows, at most so many, or `None` at the end."""
        if self._batch is None or self._begin == self._batch.num_rows:
            self._batch, self._begin = next(self._batches, None), 0
            if self._batch is None:
                return None
        part = self._batch.slice(self._begin, limit)
        self._begin += part.num_rows
        self.position.offset += part.num_rows
        self.position.seen = self.seen()
        return part
