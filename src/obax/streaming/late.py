"""Labels that come later than their rows, on lines of their own with the same id."""

import dataclasses
from typing import Any

from ..estimators import Table
from ..estimators.late import Pending
from .source import Batch, Row


def matched(batch: Batch, pending: Pending) -> Batch:
    """The batch with each label beside the row that it belongs to.

    - A line with an id and no target is predicted, and its row kept.
    - A line with a target and the id of a row that is kept is that row, which is learned now. What
      else is on the line plays no part.
    - A line with a target and another id is a row like any other, if it has features; if not, its
      row was dropped or never came, and it is rejected in those words.
    """
    rows = []
    for row, target, id in zip(_rows(batch), batch.targets, batch.ids, strict=True):
        try:
            if id is not None and not isinstance(row, Table):
                row = _one(row, target, id, pending)
            rows.append(row)
        except (KeyError, ValueError, TypeError) as error:
            rows.append(Table.unreadable(str(error.args[0])))
    return dataclasses.replace(batch, rows=rows)


def _one(row: Row, target: object, id: Any, pending: Pending) -> Row:
    if target is None:
        pending.keep(id, row)
    elif id in pending or not row:
        return dict(pending.take(id))
    return row


def _rows(batch: Batch) -> list[Row | Table]:
    """Each on its own, without what is missing."""
    table = batch.rows
    if not isinstance(table, Table):
        return [row if isinstance(row, Table) else _present(row) for row in table]
    faults = table.rejected
    return [
        Table.unreadable(faults[i]) if i in faults else _present(table.row(i))
        for i in range(len(table))
    ]


def _present(row: Row) -> Row:
    return {name: v for name, v in row.items() if v is not None and v == v}
