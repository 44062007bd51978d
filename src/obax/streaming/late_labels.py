"""Labels that come later than their rows, on lines of their own with the same id."""

import dataclasses
from typing import Any

from ..estimators import Table
from ..estimators.pending import Pending
from .source import Batch, Row


def join_late_labels(batch: Batch, pending: Pending) -> Batch:
    """Return the batch with each label beside the row that it belongs to.

    - A line with an id and no target is predicted, and its row is kept.
    - A line with a target and the id of a row that is kept becomes that row, which is learned now.
      Other columns of the line are ignored.
    - A line with a target and another id is an ordinary row, if it has features. If it has none,
      its row was dropped or never came, and the line is rejected with that reason.
    """
    rows: list[Row | Table] = []
    for row, target, id in zip(_separate_rows(batch), batch.targets, batch.ids, strict=True):
        try:
            if id is not None and not isinstance(row, Table):
                row = _join(row, target, id, pending)
            rows.append(row)
        except (KeyError, ValueError, TypeError) as error:
            rows.append(Table.unreadable(str(error.args[0])))
    return dataclasses.replace(batch, rows=rows)


def _join(row: Row, target: object, id: Any, pending: Pending) -> Row:
    if target is None:
        pending.keep(id, row)
    elif id in pending or not row:
        return dict(pending.take(id))
    return row


def _separate_rows(batch: Batch) -> list[Row | Table]:
    """Return the rows one by one, without missing values; unreadable ones stay tables."""
    table = batch.rows
    if not isinstance(table, Table):
        return [row if isinstance(row, Table) else _present(row) for row in table]
    return [
        Table.unreadable(table.rejected[i]) if i in table.rejected else _present(table.row(i))
        for i in range(len(table))
    ]


def _present(row: Row) -> Row:
    return {name: v for name, v in row.items() if v is not None and v == v}
