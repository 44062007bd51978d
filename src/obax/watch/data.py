"""What the page shows, read from a folder that somebody else is writing. Reads only."""

import functools
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .._support.counting import counted
from .._support.errors import UserError
from ..lab.kit.styles import styles

if TYPE_CHECKING:
    import pandas as pd

SERIES, POINTS = 12, 300
OWN = "watch.json"
NOT_SETTINGS = {"experiment", "seed", "t", "metric", "value"}
"""Columns of a run's table that do not tell one curve from another."""
Curves = Mapping[str, tuple[Sequence[float], Sequence[float | None]]]
"""Points and values, by the name of the curve."""


class WatchError(Exception):
    """A folder that holds nothing to follow."""


def kind_of(folder: Path) -> str:
    """`"stream"` for the checkpoint folder of `obax stream`, `"run"` for one of `obax run`, `"own"`
    for what `obax.callbacks.Watch` writes."""
    if (folder / "run.json").is_file():
        return "run"
    if (folder / OWN).is_file():
        return "own"
    if (folder / "live.json").is_file() or any(folder.glob("*.obax")):
        return "stream"
    raise WatchError(
        f"{folder} holds neither a run of `obax run` (run.json) nor a stream of `obax stream "
        f"--checkpoint {folder}` (live.json) nor one of obax.callbacks.Watch ({OWN})."
    )


def snapshot(folder: Path) -> dict[str, Any]:
    """The state of the job now, in the shape that the page draws.

    `question` and `answer`, `table` (lists of cells, the head first), `facts` (words and numbers),
    `charts` (title, unit of the horizontal axis, curves by name; the first is shown, the others
    are folded), `rejected` (rows and reasons).
    """
    try:
        found = {"run": _run, "stream": _stream, "own": _own}[kind_of(folder)](folder)
    except Exception as error:
        # The folder may be being made, moved or removed at this moment, or hold anything.
        told = isinstance(error, WatchError | UserError | OSError)
        words = str(error) if told else f"{folder} holds something else ({error!r})."
        found = {"facts": [], "charts": [], "rejected": [], "trouble": words}
    return {"folder": str(folder), "trouble": None, "question": "", "table": []} | found


def _own(folder: Path) -> dict[str, Any]:
    """What `obax.callbacks.Watch` wrote is in the shape of the page already."""
    page = json.loads((folder / OWN).read_text())
    shown = ("title", "updated", "done", "words", "facts", "rejected")
    charts = [
        _chart(
            one["title"],
            one["unit"],
            {curve["name"]: (curve["x"], curve["y"]) for curve in one["curves"]},
            one["log"],
        )
        for one in page["charts"]
    ]
    loss = next((c for one in charts for c in one["curves"] if c["name"] == "played_value"), None)
    suffered = [value for value in (loss["y"] if loss else ()) if value is not None]
    rounds = int(loss["x"][-1]) if loss and loss["x"] else 0
    return {name: page[name] for name in shown} | {
        "question": "What does a round cost, before it is learned?",
        "answer": _overall("Loss suffered", suffered, counted(rounds, "round")),
        "charts": charts,
    }


def _stream(folder: Path) -> dict[str, Any]:
    live = json.loads((folder / "live.json").read_text())
    history, curves = live["history"], live["curves"]
    rows, points = history["row"], curves.pop("row")
    charts = [
        _chart(_title(name), "row", _smoothed(name, points, curve))
        for name, curve in curves.items()
    ]
    if live["asked"] is not None:
        asked = {"name": "asked", "x": points, "y": [live["asked"]] * len(points)}
        charts[-1]["curves"].append(asked | {"colour": "#808080", "dash": "dot"})
    charts.append(_chart("Loss before learning", "row", _smoothed("loss", rows, history["loss"])))
    for name, curve in history["hyperparameters"].items():
        many = curve if isinstance(curve, dict) else {name: curve}
        # Forgetting is the same as memory, and a single member has no share to tell.
        if name == "forgetting" or (name == "members" and len(many) == 1):
            continue
        drawn = {label: (rows, values) for label, values in many.items()}
        charts.append(_chart(_title(name), "row", drawn, log=name != "members"))
    # A pool of models has no history of its own.
    charts = [chart for chart in charts if any(curve["x"] for curve in chart["curves"])]
    rejected, score, pool = live["rejected"], live["score"], live.get("tenants")
    if live["asked"] is not None:
        score[f"coverage, asked {live['asked']:g}"] = score.pop("coverage")
    return {
        "title": "stream",
        "question": "How well is this stream predicted, each row before it is learned?",
        "answer": _predicted(live["rows"], curves),
        "updated": live["updated"],
        "done": live["done"],
        "words": live["explain"],
        "facts": [
            ["rows", f"{live['rows']:,}"],
            ["rows per second", f"{live['rows_per_second']:,}"],
            *([name, f"{value:.4g}"] for name, value in score.items()),
            ["mean loss", f"{live['mean_loss']:.4g}"],
            ["rejected", f"{rejected['count']:,}"],
            *([["keys", f"{pool['count']:,}"]] if pool else []),
        ],
        "charts": charts,
        "table": [] if pool is None else _tenants(pool),
        "rejected": rejected["last"],
    }


def _tenants(pool: dict[str, Any]) -> list[list[str]]:
    """The worst keys, the head first."""
    cells = [
        [one[0], *("-" if value is None else f"{value:,.4g}" for value in one[1:])]
        for one in pool["cells"]
    ]
    return [[f"{pool['head'][0]}, worst first", *pool["head"][1:]], *cells]


def _predicted(rows: int, curves: Mapping[str, Sequence[float]]) -> str:
    """The score over all rows and lately, with intervals over the points of its curve."""
    name = "accuracy" if "accuracy" in curves else "MAE"
    return _overall(_title(name), curves.get(name, ()), counted(rows, "row"))


def _overall(name: str, points: Sequence[float], seen: str) -> str:
    """What a curve comes to over all that was `seen`, and lately."""
    from ..lab.kit.verdict import with_interval

    if not len(points):
        return "Nothing has been learned yet."
    lately = with_interval(points[-max(2, len(points) // 10) :])
    return (
        f"{name} {with_interval(points)} over {seen}, lately {lately} "
        f"(95% intervals over the {counted(len(points), 'point')} of its curve)."
    )


def _smoothed(name: str, x: list[float], y: list[float]) -> Curves:
    """A curve, and what it is over some points."""
    smooth = [sum(y[max(0, i - 19) : i + 1]) / min(i + 1, 20) for i in range(len(y))]
    return {name: (x, y), "mean of 20 points": (x, smooth)}


def _title(name: str) -> str:
    if name == "members":
        return "Members' shares of the prediction"
    return f"{name[0].upper()}{name[1:]}".replace("_", " ")


def _run(folder: Path) -> dict[str, Any]:
    import pandas as pd

    from ..lab import EXPERIMENTS
    from ..lab.kit.folder import RunFolder, rejected_rounds

    run = RunFolder.open(folder)
    info, inside = run.info, folder.resolve()
    parts = [
        run.part(name)
        for name, part in info["parts"].items()
        if (folder / part["file"]).resolve().is_relative_to(inside)
    ]
    frames = [part for part in parts if part is not None]
    charts, rejected = [], 0
    if frames:
        table = pd.concat(frames)
        rejected = rejected_rounds(table)
        for metric, group in table.groupby("metric", sort=False):
            charts += _curves(str(metric), group)
        # Until there is an answer, what most methods have come to.
        charts.sort(key=lambda chart: -len(chart["curves"]))
    seconds = sum(part["seconds"] for part in info["parts"].values())
    done, known = info["finished"] is not None, EXPERIMENTS.get(info["experiment"])
    found: dict[str, Any] = {
        "question": known.question if known else "",
        "answer": f"Not known yet: {counted(len(frames), 'part')} done.",
    }
    if done:
        found, lead = _answered(folder, info["metrics_sha256"])
        charts.insert(0, lead)
    return found | {
        "title": f"{info['experiment']} ({info['preset']})",
        "updated": (folder / "run.json").stat().st_mtime,
        "done": done,
        "words": f"Started {info['started']}"
        + (f", finished {info['finished']}." if done else ", running."),
        "facts": [
            ["parts done", f"{len(info['parts'])}"],
            ["seconds of work", f"{seconds:,.1f}"],
            ["rejected", f"{rejected:,}"],
            *_workers(info.get("workers", []), info["finished"] is not None),
        ],
        "charts": charts,
        "rejected": [],
    }


def _workers(seats: list[dict[str, Any]], finished: bool) -> list[list[str]]:
    """How many there are, and what the first of them do."""
    if not seats:
        return []
    running = sum(seat["job"] is not None for seat in seats)
    found = [["workers", f"{len(seats)}"]]
    found += [] if finished else [["parts running", f"{running}"]]
    for seat in seats[:SERIES]:
        now = seat["trouble"] or ("" if finished else seat["job"] or "idle")
        said = f"{seat['done']} done" + (f", {now}" if now else "")
        found.append([f"worker {seat['name']} on {seat['host']}", said])
    more = len(seats) - SERIES
    return found + ([["more workers", f"{more}"]] if more > 0 else [])


@functools.lru_cache(maxsize=4)
def _answered(folder: Path, checksum: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Question, answer and table of a finished run, and its figure; once for each table."""
    from .. import lab

    first = lab.findings(lab.RunFolder.open(folder)).answers[0]
    figure, frame = first.figure, first.table.frame
    curves = {one.label: (one.x, one.mean) for one in figure.series}
    methods = [one.method or one.label for one in figure.series]
    table = [list(frame.columns), *([str(cell) for cell in row] for row in frame.values)]
    found = {"question": first.question, "answer": first.words, "table": table}
    return found, _chart(figure.title, figure.x_label, curves, figure.log_y, methods)


def _curves(metric: str, group: "pd.DataFrame") -> list[dict[str, Any]]:
    """One chart of a metric: the mean over seeds of each method and setting against t."""
    settings = [name for name in group.columns if name not in NOT_SETTINGS]
    curves = {}
    found = [
        (dict(zip(settings, key, strict=True)), part.groupby("t")["value"].mean())
        for key, part in group.groupby(settings, sort=False, dropna=False)
    ]
    drawn = [(setting, means) for setting, means in found if len(means) > 1][:SERIES]
    for setting, means in drawn:
        same = [other for other, _ in drawn if other["method"] == setting["method"]]
        means = means.iloc[:: max(1, len(means) // POINTS)]
        curves[_label(setting, same)] = (means.index.tolist(), means.tolist())
    return [_chart(metric.replace("_", " "), "t", curves)] if curves else []


def _label(setting: dict[str, object], same: list[dict[str, object]]) -> str:
    """The method, and what tells its curves apart."""
    differ = [name for name in setting if len({str(other[name]) for other in same}) > 1]
    return ", ".join([str(setting["method"]), *(f"{name} = {setting[name]}" for name in differ)])


def _chart(
    title: str, unit: str, curves: Curves, log: bool = False, methods: Sequence[str] = ()
) -> dict[str, Any]:
    """A chart of at most so many curves, each in the colour and dash of its method."""
    shown = list(curves.items())[:SERIES]
    looks = styles(list(methods or curves)[:SERIES])
    drawn = [
        {"name": name, "x": list(x), "colour": look.colour, "dash": look.dash}
        | {"y": [None if v is None or not math.isfinite(v) else v for v in y]}
        for (name, (x, y)), look in zip(shown, looks, strict=True)
    ]
    return {"title": title, "unit": unit, "log": log, "curves": drawn}
