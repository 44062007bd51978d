"""Labels that come later than their rows, on lines of their own with the same id."""

import dataclasses

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
            rows.append(
                row if id is None or isinstance(row, Table) else _one(row, target, id, pending)
            )
        except (KeyError, ValueError, TypeError) as error:
            rows.append(Table.unreadable(str(error.args[0])))
    return dataclasses.replace(batch, rows=rows)


def _one(row: Row, target: object, id: object, pending: Pending) -> Row:
    if target is None:
        pending.keep(id, row)
        return row
    waits = row and id not in pending
    return row if waits else dict(pending.take(id))


def _rows(batch: Batch) -> list[Row | Table]:
    """Each on its own, without what is missing."""
    if not isinstance(batch.rows, Table):
        rows = batch.rows
    else:
        faults = batch.rows.rejected
        table = batch.rows
        rows = [
            Table.unreadable(faults[i]) if i in faults else table.row(i) for i in range(len(table))
        ]
    return [
        row
        if isinstance(row, Table)
        else {n: v for n, v in row.items() if v is not None and v == v}
        for row in rows
    ]
