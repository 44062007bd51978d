"""The table of a run: a number in each row, and in the columns what it belongs to, as values.

Every table has the core columns; an experiment declares its own (w, alpha, problem ...) with their
types. `method` is the label of a method for people, and never read back: its settings are columns.
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
# Types that have a place for "none": OGD has no window, and a window is no float.
DTYPES = {int: "Int64", float: "float64", str: "str", bool: "boolean"}


class Rows:
    """Gathers the rows of a part."""

    def __init__(self) -> None:
        self._blocks: list[tuple[Mapping[str, Value], np.ndarray, str, np.ndarray]] = []

    def add(
        self,
        at: Mapping[str, Value],
        t: int | Sequence[int] | np.ndarray,
        metrics: Mapping[str, float | Sequence[float] | np.ndarray],
    ) -> None:
        """Metrics in round t, or in each of several; `at` is what they belong to."""
        times = np.atleast_1d(t)
        for metric, value in metrics.items():
            values = np.broadcast_to(np.asarray(value, np.float64), times.shape)
            self._blocks.append((at, times, metric, values))

    def table(self) -> pd.DataFrame:
        """All of them; a column that a row does not have is `None` there."""
        import pandas as pd

        names = dict.fromkeys(name for at, *_ in self._blocks for name in at)
        columns: dict[str, list] = {
            name: [at.get(name) for at, times, *_ in self._blocks for _ in times] for name in names
        }
        columns["t"] = [int(t) for _, times, *_ in self._blocks for t in times]
        columns["metric"] = [metric for _, times, metric, _ in self._blocks for _ in times]
        columns["value"] = [float(v) for *_, values in self._blocks for v in values]
        return pd.DataFrame(columns)


def typed(table: pd.DataFrame, experiment: str, columns: Mapping[str, type]) -> pd.DataFrame:
    """The table of one part as it is stored: columns in order, each of its type."""
    dtypes = FIRST | {name: DTYPES[kind] for name, kind in columns.items()} | LAST
    table = table.assign(experiment=experiment)
    if set(table.columns) != set(dtypes):
        missing, unknown = set(dtypes) - set(table.columns), set(table.columns) - set(dtypes)
        raise ValueError(
            f"the columns of {experiment} must be those it declares; missing: "
            f"{', '.join(sorted(missing)) or 'none'}, unknown: "
            f"{', '.join(sorted(unknown)) or 'none'}."
        )
    return table[list(dtypes)].astype(dtypes)


def select(table: pd.DataFrame, **wanted: object) -> pd.DataFrame:
    """The rows whose columns have these values, `None` for none."""
    for name, value in wanted.items():
        same = table[name].isna() if value is None else (table[name] == value).fillna(False)
        table = table[same.to_numpy(bool)]
    return table


def best_of_grid(rows: pd.DataFrame, run: Sequence[str], grid: Sequence[str]) -> pd.DataFrame:
    """Of each run, told apart by the columns `run`, the setting (`grid`) of least mean value over
    seeds: one row for each run, with these columns, to merge tables with."""
    mean = rows.groupby([*run, *grid], sort=False, dropna=False).value.mean().reset_index()
    least = mean.groupby(list(run), sort=False, dropna=False).value.idxmin()
    return mean.loc[least].drop(columns="value")


def summary(rows: pd.DataFrame, by: Sequence[str], name: str) -> pd.DataFrame:
    """Mean, as `name`, and deviation over seeds of each setting; no mean where one diverged."""
    found = rows.groupby(list(by), sort=False, dropna=False).value.agg(["mean", "std"])
    found["mean"] = found["mean"].replace(np.inf, np.nan)
    return found.rename(columns={"mean": name, "std": "deviation"}).reset_index()
