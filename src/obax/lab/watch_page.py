"""What `obax watch` shows of a run: one chart of each metric, and the answer at the end."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from .._support.messages import UserError, counted
from ..serve import page
from .framework.run_folder import RunFolder, rejected_rounds
from .report.figures import styles

if TYPE_CHECKING:
    import pandas as pd

MAX_WORKERS = 12
NOT_SETTINGS = {"experiment", "seed", "t", "metric", "value"}
"""Columns of a run's table that do not tell one curve from another."""
PAUSE = 20
"""How many times as long as writing a page took passes before the next one, so that a run spends
at most a twentieth of its time on them."""


class WatchPage:
    """The page of a run."""

    def __init__(self, folder: RunFolder):
        self._folder = folder
        self._next = 0.0

    def update(self, *, now: bool = False) -> None:
        """Write the page if it is time for it, or `now`."""
        begun = time.monotonic()
        if now or begun >= self._next:
            write_page(self._folder)
            ended = time.monotonic()
            self._next = ended + PAUSE * (ended - begun)


def write_page(folder: RunFolder) -> None:
    """Write the page of a run; if its parts cannot be read, the page says why."""
    info = folder.info
    state = f"finished {info['finished']}." if info["finished"] else "running."
    shown: dict[str, Any] = {"charts": [], "facts": []}
    try:
        shown |= _contents(folder)
    except Exception as error:
        # A page that cannot be drawn must not end the run.
        shown["trouble"] = str(error) if isinstance(error, UserError | OSError) else repr(error)
    title, text = f"{info['experiment']} ({info['preset']})", f"Started {info['started']}, {state}"
    page.write(folder.path, title, text=text, done=info["finished"] is not None, **shown)


def _contents(folder: RunFolder) -> dict[str, Any]:
    import pandas as pd

    from . import EXPERIMENTS, find

    info, charts, rejected = folder.info, [], 0
    if tables := [folder.read_part(name) for name in info["parts"]]:
        table = pd.concat(tables)
        rejected = rejected_rounds(table)
        charts = [_chart(str(name), rows) for name, rows in table.groupby("metric", sort=False)]
        # Until there is an answer, the metric that most methods have comes first.
        charts = sorted((c for c in charts if c["curves"]), key=lambda c: -len(c["curves"]))
    seconds = sum(part["seconds"] for part in info["parts"].values())
    contents: dict[str, Any] = {
        "question": find(info["experiment"]).question if info["experiment"] in EXPERIMENTS else "",
        "answer": f"Not known yet: {counted(len(tables), 'part')} done.",
        "charts": charts,
        "facts": [
            ["parts done", f"{len(tables)}"],
            ["seconds of work", f"{seconds:,.1f}"],
            ["rejected", f"{rejected:,}"],
            *_workers(info.get("workers", []), info["finished"] is not None),
        ],
    }
    return contents | (_answer(folder, charts) if info["finished"] else {})


def _workers(seats: Sequence[dict[str, Any]], finished: bool) -> Iterator[list[str]]:
    """Yield how many workers there are, and what the first of them do."""
    if seats:
        yield ["workers", f"{len(seats)}"]
    if seats and not finished:
        yield ["parts running", f"{sum(seat['job'] is not None for seat in seats)}"]
    for seat in seats[:MAX_WORKERS]:
        now = seat["trouble"] or ("" if finished else seat["job"] or "idle")
        done = f"{seat['done']} done" + (f", {now}" if now else "")
        yield [f"worker {seat['name']} on {seat['host']}", done]
    if len(seats) > MAX_WORKERS:
        yield ["more workers", f"{len(seats) - MAX_WORKERS}"]


def _answer(folder: RunFolder, charts: list[dict[str, Any]]) -> dict[str, Any]:
    """Return question, answer and table of a finished run, and its figure before the charts."""
    from . import findings

    first = findings(folder).answers[0]
    figure, frame = first.figure, first.table.frame
    curves = {one.label: (one.x, one.mean) for one in figure.series}
    looks = styles([(one.kind or one.label, one.w) for one in figure.series][: page.MAX_CURVES])
    chart = page.chart(figure.title, figure.x_label, curves, log=figure.log_y, styles=looks)
    table = [list(frame.columns), *frame.astype(str).values.tolist()]
    return {
        "question": first.question,
        "answer": first.words,
        "table": table,
        "charts": [chart, *charts],
    }


def _chart(metric: str, rows: pd.DataFrame) -> dict[str, Any]:
    """Return a chart of a metric against t: the mean over seeds for each method and setting."""
    names = [name for name in rows.columns if name not in NOT_SETTINGS]
    means = [
        (dict(zip(names, setting, strict=True)), part.groupby("t")["value"].mean())
        for setting, part in rows.groupby(names, sort=False, dropna=False)
    ]
    drawn = [(setting, mean) for setting, mean in means if len(mean) > 1][: page.MAX_CURVES]
    curves, methods = {}, []
    for setting, mean in drawn:
        # The settings that tell the curves of a method apart.
        same = [other for other, _ in drawn if other["method"] == setting["method"]]
        differ = [name for name in names if len({str(other[name]) for other in same}) > 1]
        label = ", ".join(
            [str(setting["method"]), *(f"{name} = {setting[name]}" for name in differ)]
        )
        mean = mean.iloc[:: max(1, len(mean) // page.MAX_POINTS)]
        curves[label] = (mean.index.tolist(), mean.tolist())
        # Tables without a kind, such as that of the comparison, have the names of their methods.
        w = str(setting.get("w"))
        kind = str(setting.get("kind", setting["method"]))
        methods.append((kind, int(w) if w.isdecimal() else None))
    return page.chart(metric.replace("_", " "), "t", curves, styles=styles(methods))
