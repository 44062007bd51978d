"""The table of a run: one number in each row, with columns that identify it.

Every table has the core columns; an experiment declares its own (w, alpha, problem ...) with their
types. `method` is the label of a method for people and is never parsed: its options are columns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

if TYPE_CHECKING:
    import pandas as pd

Value: TypeAlias = str | int | float | bool | None
# The core columns; those of an experiment stand between them.
FIRST = {"experiment": "str", "method": "str"}
LAST = {"seed": "int64", "t": "int64", "metric": "str", "value": "float64"}
# Types with a missing value that keep numbers whole: OGD has no window, and a window is no float.
DTYPES = {int: "Int64", float: "float64", str: "str", bool: "boolean"}


class Rows:
    """The rows of a part, gathered one block after the other."""

    def __init__(self) -> None:
        self._blocks: list[tuple[Mapping[str, Value], np.ndarray, str, np.ndarray]] = []

    def add(
        self,
        identifiers: Mapping[str, Value],
        t: int | Sequence[int] | np.ndarray,
        metrics: Mapping[str, float | Sequence[float] | np.ndarray],
    ) -> None:
        """Add metrics of round t, or of several rounds, under these columns."""
        times = np.atleast_1d(t)
        for metric, value in metrics.items():
            values = np.broadcast_to(np.asarray(value, np.float64), times.shape)
            self._blocks.append((identifiers, times, metric, values))

    def table(self) -> pd.DataFrame:
        """Return all rows as a table. A column that a row does not have is `None` there."""
        import pandas as pd

        names = dict.fromkeys(name for identifiers, *_ in self._blocks for name in identifiers)
        columns: dict[str, list] = {
            name: [ids.get(name) for ids, times, *_ in self._blocks for _ in times]
            for name in names
        }
        columns["t"] = [int(t) for _, times, *_ in self._blocks for t in times]
        columns["metric"] = [metric for _, times, metric, _ in self._blocks for _ in times]
        columns["value"] = [float(v) for *_, values in self._blocks for v in values]
        return pd.DataFrame(columns)


def typed(table: pd.DataFrame, experiment: str, columns: Mapping[str, type]) -> pd.DataFrame:
    """Return the table of a part as it is stored: the declared columns in order and typed."""
    dtypes = FIRST | {name: DTYPES[kind] for name, kind in columns.items()} | LAST
    table = table.assign(experiment=experiment)
    missing, unknown = set(dtypes) - set(table.columns), set(table.columns) - set(dtypes)
    if missing or unknown:
        raise ValueError(
            f"the columns of {experiment} must be those it declares; missing: "
            f"{', '.join(sorted(missing)) or 'none'}, unknown: "
            f"{', '.join(sorted(unknown)) or 'none'}."
        )
    return table[list(dtypes)].astype(dtypes)


def select(table: pd.DataFrame, **wanted: object) -> pd.DataFrame:
    """Return the rows whose columns have these values, `None` for a missing value."""
    for name, value in wanted.items():
        same = table[name].isna() if value is None else (table[name] == value).fillna(False)
        table = table[same.to_numpy(bool)]
    return table


def best_of_grid(rows: pd.DataFrame, run: Sequence[str], grid: Sequence[str]) -> pd.DataFrame:
    """Return the setting (`grid` columns) with the least mean value over seeds for each run.

    Runs are told apart by the `run` columns. The result has one row for each run and both sets of
    columns, so that tables can be merged with it.
    """
    mean = rows.groupby([*run, *grid], sort=False, dropna=False).value.mean().reset_index()
    least = mean.groupby(list(run), sort=False, dropna=False).value.idxmin()
    return mean.loc[least].drop(columns="value")


def summary(rows: pd.DataFrame, by: Sequence[str], name: str) -> pd.DataFrame:
    """Return the mean, as `name`, and the deviation over seeds of each setting.

    The mean is missing where a seed diverged.
    """
    means = rows.groupby(list(by), sort=False, dropna=False).value.agg(["mean", "std"])
    means["mean"] = means["mean"].replace(np.inf, np.nan)
    return means.rename(columns={"mean": name, "std": "deviation"}).reset_index()
