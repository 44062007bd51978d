"""What the page shows, read from a folder that somebody else is writing. Reads only."""

import io
import json
from pathlib import Path
from typing import Any

SERIES, POINTS = 12, 300


class WatchError(Exception):
    """A folder that holds nothing to follow."""


def kind_of(folder: Path) -> str:
    """`"stream"` for the checkpoint folder of `obax stream`, `"run"` for one of `obax run`."""
    if (folder / "run.json").is_file():
        return "run"
    if (folder / "live.json").is_file() or any(folder.glob("*.obax")):
        return "stream"
    raise WatchError(
        f"{folder} holds neither a run of `obax run` (run.json) nor a stream of `obax stream "
        f"--checkpoint {folder}` (live.json)."
    )


def snapshot(folder: Path) -> dict[str, Any]:
    """The state of the job now, in the shape that the page draws.

    `facts`: words and numbers; `charts`: title, unit of the horizontal axis, curves by name;
    `rejected`: rows and reasons.
    """
    try:
        found = _run(folder) if kind_of(folder) == "run" else _stream(folder)
    except (OSError, ValueError, KeyError, TypeError, WatchError) as error:
        # The folder may be being made, moved or removed at this moment.
        found = {"facts": [], "charts": [], "rejected": [], "trouble": str(error)}
    return {"folder": str(folder), "trouble": None} | found


def _stream(folder: Path) -> dict[str, Any]:
    live = json.loads((folder / "live.json").read_text())
    history = live["history"]
    rows, loss = history["row"], history["loss"]
    smooth = [sum(loss[max(0, i - 19) : i + 1]) / min(i + 1, 20) for i in range(len(loss))]
    losses = {"loss": (rows, loss), "mean of 20 points": (rows, smooth)}
    charts = [_chart("Loss before learning", "row", losses)]
    for name, curve in history["hyperparameters"].items():
        curves = curve if isinstance(curve, dict) else {name: curve}
        drawn = {label: (rows, values) for label, values in curves.items()}
        charts.append(_chart(name.replace("_", " "), "row", drawn, log=name != "forgetting"))
    rejected = live["rejected"]
    return {
        "title": "stream",
        "updated": live["updated"],
        "done": live["done"],
        "words": live["explain"],
        "facts": [
            ["rows", f"{live['rows']:,}"],
            ["rows a second", f"{live['rows_per_second']:,}"],
            ["mean loss", f"{live['mean_loss']}"],
            ["rejected", f"{rejected['count']:,}"],
        ],
        "charts": charts,
        "rejected": rejected["last"],
    }


def _run(folder: Path) -> dict[str, Any]:
    import pandas as pd

    path = folder / "run.json"
    info = json.loads(path.read_text())
    frames = []
    for part in info["parts"].values():
        file = folder / part["file"]
        if file.resolve().is_relative_to(folder.resolve()) and file.is_file():
            frames.append(pd.read_parquet(io.BytesIO(file.read_bytes())))
    charts, rejected = [], 0.0
    if frames:
        table = pd.concat(frames)
        for metric, group in table.groupby("metric", sort=False):
            if metric == "rejected":
                rejected = float(group["value"].sum())
            charts += _curves(str(metric), group)
    seconds = sum(part["seconds"] for part in info["parts"].values())
    rounds = sum(int(frame["t"].nunique()) for frame in frames)
    return {
        "title": f"{info['experiment']} ({info['preset']})",
        "updated": path.stat().st_mtime,
        "done": info["finished"] is not None,
        "words": f"Started {info['started']}"
        + (f", finished {info['finished']}." if info["finished"] else ", running."),
        "facts": [
            ["parts done", f"{len(info['parts'])}"],
            ["seconds of work", f"{seconds:,.1f}"],
            ["recorded rounds a second", f"{rounds / seconds:,.0f}" if seconds else "-"],
            ["rejected", f"{rejected:,.0f}"],
        ],
        "charts": charts,
        "rejected": [],
    }


def _curves(metric: str, group: Any) -> list[dict[str, Any]]:
    """One chart of a metric: the mean over seeds of each method and setting against t."""
    means = group.groupby(["method", "setting", "t"], sort=True)["value"].mean()
    curves: dict[str, tuple[list, list]] = {}
    for (method, setting), part in means.groupby(level=[0, 1], sort=False):
        if len(curves) == SERIES or len(part) < 2:
            continue
        part = part.iloc[:: max(1, len(part) // POINTS)]
        label = f"{method} {setting}".strip()
        curves[label] = (part.index.get_level_values("t").tolist(), part.tolist())
    return [_chart(metric, "t", curves)] if curves else []


def _chart(
    title: str, unit: str, curves: dict[str, tuple[list, list]], log: bool = False
) -> dict[str, Any]:
    drawn = [
        {"name": str(name), "x": x, "y": [v if _finite(v) else None for v in y]}
        for name, (x, y) in list(curves.items())[:SERIES]
    ]
    return {"title": title, "unit": unit, "log": log, "curves": drawn}


def _finite(value: Any) -> bool:
    return value is not None and value == value and abs(value) != float("inf")
