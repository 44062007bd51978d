"""Rows of a Parquet file, in batches."""

import os
from pathlib import Path
from typing import Any

from .input_checks import Ends, StreamError
from .source import MAX_BATCH, Batch, Source, read_ends


class ParquetSource(Source):
    """Rows of a Parquet file; a position counts rows, not bytes."""

    def _start(self) -> None:
        import pyarrow
        from pyarrow import parquet

        if not isinstance(self.input.source, Path):
            raise StreamError("Parquet must be a file: it cannot be read from a pipe.")
        try:
            file = parquet.ParquetFile(self.input.source)
        except pyarrow.ArrowException as error:
            raise StreamError(f"the input is not a Parquet file: {error}.") from error
        self._check_header(list(file.schema_arrow.names))
        self._groups = file.iter_batches(MAX_BATCH)
        self._group, self._begin = None, 0
        offset, self.position.offset = self.position.offset, 0
        self.skip(offset)

    def seen(self) -> Ends:
        """Return the ends of the file, which does not grow."""
        return read_ends(self.descriptor, os.fstat(self.descriptor).st_size)

    def take(self, limit: int) -> Batch:
        """Return up to `limit` rows; none at the end."""
        part = self._next(limit)
        columns = {} if part is None else part.to_pydict()
        return self._columns_batch(columns, 0 if part is None else part.num_rows, {})

    def skip(self, count: int) -> int:
        """Skip rows; return how many there were."""
        skipped = 0
        while skipped < count and (part := self._next(count - skipped)) is not None:
            skipped += part.num_rows
        return skipped

    def _next(self, limit: int) -> Any:
        """Return the next rows, at most so many, or `None` at the end."""
        if self._group is None or self._begin == self._group.num_rows:
            self._group, self._begin = next(self._groups, None), 0
            if self._group is None:
                return None
        part = self._group.slice(self._begin, limit)
        self._begin += part.num_rows
        self.position.offset += part.num_rows
        self.position.seen = self.seen()
        return part
