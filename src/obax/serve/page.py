"""The file `watch.json`, in which a running job says what `obax watch` shows of it."""

import dataclasses
import json
import math
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from .._support import files
from .._support.messages import counted

FILE = "watch.json"
MAX_CURVES = 12
MAX_POINTS = 300
SMOOTHED = 20
"""How many points a smoothed curve averages."""
# All of them have a contrast of 3 to the light page and to the dark one.
COLOURS = ("#0f77c0", "#d55e00", "#009270", "#c9468f", "#b07800", "#9257d0", "#1f93b8", "#a5694f",
           "#5b6ee1", "#7a8b00", "#808080", "#0f77c0")  # fmt: skip
Curve = tuple[Sequence[float], Sequence[float | None]]
"""Horizontal and vertical values."""
REQUIRED = {"title", "updated", "done", "facts", "charts"}


class WatchError(Exception):
    """A folder has nothing to show."""


@dataclasses.dataclass
class Page:
    """What the page shows, as plain values."""

    title: str
    charts: Sequence[Mapping[str, Any]] = ()
    """They come from `chart`: the first is shown, the others are folded."""
    facts: Iterable[Sequence[str]] = ()
    """Pairs of a name and a value."""
    question: str = ""
    answer: str = ""
    table: Sequence[Sequence[str]] = ()
    """The first row is the head."""
    rejected: Sequence[Mapping[str, Any]] = ()
    """Rows with reasons."""
    text: str = ""
    done: bool = False
    trouble: str | None = None

    def contents(self) -> dict[str, Any]:
        """Return all of it, and the time."""
        return vars(self) | {"facts": [list(fact) for fact in self.facts], "updated": time.time()}


def write(folder: Path, *arguments: Any, **options: Any) -> None:
    """Write what the page shows: the arguments are those of `Page`."""
    files.write_text(folder / FILE, json.dumps(Page(*arguments, **options).contents()))


def read(folder: Path) -> dict[str, Any]:
    """Return what the page shows now; if it cannot be read, `trouble` says why."""
    empty = Page(str(folder)).contents() | {"updated": None}
    try:
        check_folder(folder)
        page = json.loads((folder / FILE).read_text())
        if not isinstance(page, dict) or not page.keys() >= REQUIRED:
            raise WatchError(f"{folder / FILE} was not written by obax.")
        return empty | page
    except (WatchError, OSError, ValueError, RecursionError) as error:
        # The folder may be created, moved or removed at this moment, or hold anything.
        return empty | {"trouble": str(error)}


def check_folder(folder: Path) -> None:
    """Raise a `WatchError` if nothing has written a page into the folder."""
    if not (folder / FILE).is_file():
        raise WatchError(
            f"{folder} holds neither a run of `obax run` nor a stream of `obax stream --checkpoint "
            f"{folder}` nor one of obax.callbacks.Watch: it has no {FILE}. Folders of version 0.2 "
            f"and before get theirs when they are resumed."
        )


def chart(
    title: str,
    x_label: str,
    curves: Mapping[str, Curve],
    *,
    log: bool = False,
    styles: Sequence[tuple[str, str]] | None = None,
) -> dict[str, Any]:
    """Return a chart of at most `MAX_CURVES` curves; `styles` are pairs of colour and dash."""
    if styles is None:
        styles = [(colour, "solid") for colour in COLOURS[:-1]] + [(COLOURS[-1], "dash")]
    drawn = [
        {"name": name, "x": list(x), "y": [_finite(v) for v in y], "colour": colour, "dash": dash}
        for (name, (x, y)), (colour, dash) in zip(
            list(curves.items())[:MAX_CURVES], styles, strict=False
        )
    ]
    return {"title": title, "unit": x_label, "log": log, "curves": drawn}


def smoothed(name: str, x: Sequence[float], y: Sequence[float]) -> dict[str, Curve]:
    """Return a curve and its running mean."""
    means = [float(np.mean(y[max(0, i - SMOOTHED + 1) : i + 1])) for i in range(len(y))]
    return {name: (x, y), f"mean of {SMOOTHED} points": (x, means)}


def summary(name: str, points: Sequence[float], observed: str) -> str:
    """Return the mean of a curve over all that was `observed` and over its last tenth."""
    if not len(points):
        return "Nothing has been learned yet."
    recent = mean_with_interval(points[-max(2, len(points) // 10) :])
    return (
        f"{name} {mean_with_interval(points)} over {observed}, recently {recent} "
        f"(95% intervals over the {counted(len(points), 'point')} of its curve)."
    )


def mean_with_interval(values: Sequence[float]) -> str:
    """Return the mean and the half-width of its 95% t-interval.

    >>> mean_with_interval([1.0, 1.2, 0.8]), mean_with_interval([0.5])
    ('1.00 ± 0.50', '0.5')
    """
    deviation = float(np.std(values, ddof=1)) if len(values) > 1 else 0.0
    return with_interval(float(np.mean(values)), deviation, len(values))


def with_interval(mean: float, deviation: float, count: int) -> str:
    """Return a mean and the half-width of its 95% t-interval, from a standard deviation."""
    from scipy.special import stdtrit

    half = float(stdtrit(count - 1, 0.975) * deviation / math.sqrt(count)) if count > 1 else 0.0
    if not 1e-9 * abs(mean) < half < math.inf:
        return f"{mean:.4g}"
    decimals = 1 - math.floor(math.log10(half))
    if decimals > 6:
        return f"{mean:.4g} ± {half:.2g}"
    return f"{mean:,.{max(0, decimals)}f} ± {half:,.{max(0, decimals)}f}"


def _finite(value: float | None) -> float | None:
    """Return `None` for what JSON does not have."""
    return None if value is None or not math.isfinite(value) else value
