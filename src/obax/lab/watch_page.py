"""What `obax watch` shows of a run: one chart of each metric, and the answer at the end."""

from __future__ import annotations

import time
from collections.abc import Sequence
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
    page_of_run: dict[str, Any] = {"charts": [], "facts": [], "trouble": None}
    try:
        page_of_run |= _contents(folder)
    except Exception as error:
        # A page that cannot be drawn must not end the run.
        expected = isinstance(error, UserError | OSError)
        page_of_run["trouble"] = str(error) if expected else repr(error)
    page.write(
        folder.path,
        f"{info['experiment']} ({info['preset']})",
        text=f"Started {info['started']}, {state}",
        done=info["finished"] is not None,
        **page_of_run,
    )


def _contents(folder: RunFolder) -> dict[str, Any]:
    import pandas as pd

    from . import EXPERIMENTS, find

    info = folder.info
    tables = [folder.read_part(name) for name in info["parts"]]
    charts, rejected = [], 0
    if tables:
        table = pd.concat(tables)
        rejected = rejected_rounds(table)
        charts = [_chart(str(name), group) for name, group in table.groupby("metric", sort=False)]
        # Until there is an answer, the metric that most methods have comes first.
        charts = sorted((c for c in charts if c["curves"]), key=lambda c: -len(c["curves"]))
    name = info["experiment"]
    contents: dict[str, Any] = {
        "question": find(name).question if name in EXPERIMENTS else "",
        "answer": f"Not known yet: {counted(len(tables), 'part')} done.",
    }
    if info["finished"]:
        answer, figure = _answer(folder)
        contents, charts = contents | answer, [figure, *charts]
    seconds = sum(part["seconds"] for part in info["parts"].values())
    facts = [
        ["parts done", f"{len(info['parts'])}"],
        ["seconds of work", f"{seconds:,.1f}"],
        ["rejected", f"{rejected:,}"],
        *_workers(info.get("workers", []), info["finished"] is not None),
    ]
    return contents | {"charts": charts, "facts": facts}


def _workers(seats: Sequence[dict[str, Any]], finished: bool) -> list[list[str]]:
    """Return how many workers there are, and what the first of them do."""
    if not seats:
        return []
    facts = [["workers", f"{len(seats)}"]]
    if not finished:
        facts.append(["parts running", f"{sum(seat['job'] is not None for seat in seats)}"])
    for seat in seats[:MAX_WORKERS]:
        now = seat["trouble"] or ("" if finished else seat["job"] or "idle")
        done = f"{seat['done']} done" + (f", {now}" if now else "")
        facts.append([f"worker {seat['name']} on {seat['host']}", done])
    if len(seats) > MAX_WORKERS:
        facts.append(["more workers", f"{len(seats) - MAX_WORKERS}"])
    return facts


def _answer(folder: RunFolder) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return question, answer and table of a finished run, and its figure."""
    from . import findings

    first = findings(folder).answers[0]
    figure, frame = first.figure, first.table.frame
    curves = {one.label: (one.x, one.mean) for one in figure.series}
    methods = [(one.kind or one.label, one.w) for one in figure.series]
    looks = styles(methods[: page.MAX_CURVES])
    chart = page.chart(figure.title, figure.x_label, curves, log=figure.log_y, styles=looks)
    table = [list(frame.columns), *([str(cell) for cell in row] for row in frame.values)]
    return {"question": first.question, "answer": first.words, "table": table}, chart


def _chart(metric: str, group: pd.DataFrame) -> dict[str, Any]:
    """Return a chart of a metric against t: the mean over seeds for each method and setting."""
    settings = [name for name in group.columns if name not in NOT_SETTINGS]
    means = [
        (dict(zip(settings, key, strict=True)), part.groupby("t")["value"].mean())
        for key, part in group.groupby(settings, sort=False, dropna=False)
    ]
    drawn = [(setting, mean) for setting, mean in means if len(mean) > 1][: page.MAX_CURVES]
    curves = {}
    for setting, mean in drawn:
        same = [other for other, _ in drawn if other["method"] == setting["method"]]
        mean = mean.iloc[:: max(1, len(mean) // page.MAX_POINTS)]
        curves[_label(setting, same)] = (mean.index.tolist(), mean.tolist())
    # Tables without a kind, such as that of the comparison, have the names of their methods.
    methods = [
        (str(setting.get("kind", setting["method"])), _window(setting.get("w")))
        for setting, _ in drawn
    ]
    return page.chart(metric.replace("_", " "), "t", curves, styles=styles(methods))


def _window(w: object) -> int | None:
    """Return the window of a method as a number, `None` for a missing value."""
    return None if str(w) in ("None", "nan", "<NA>") else int(str(w))


def _label(setting: dict[str, object], same: list[dict[str, object]]) -> str:
    """Return the method, and the settings that tell its curves apart."""
    differ = [name for name in setting if len({str(other[name]) for other in same}) > 1]
    return ", ".join([str(setting["method"]), *(f"{name} = {setting[name]}" for name in differ)])
