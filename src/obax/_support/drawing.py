"""Figures of curves, for histories and regrets. matplotlib is loaded when one is drawn."""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

# Okabe and Ito's, which people with any colour vision can tell apart.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
# More points than pixels only take time to draw.
POINTS = 2000
# The name of curves that are the background of others, and how many runs are named in a legend.
FAINT = "each round"
NAMED = 8


@dataclasses.dataclass(frozen=True)
class Panel:
    """One chart: curves by name, several where there are several runs.

    `level` is a line to compare with.
    """

    title: str
    curves: Mapping[str, Sequence[np.ndarray]]
    log: bool = False
    level: float | None = None


def moving_mean(values: np.ndarray, span: int) -> np.ndarray:
    """Return the mean of the last `span` values, leaving out NaN; NaN where there is none."""
    kept = np.isfinite(values)
    ends = [np.cumsum(np.where(kept, part, 0.0)) for part in (values, np.ones_like(values))]
    total, counted = (np.concatenate([end[:span], end[span:] - end[:-span]]) for end in ends)
    return np.where(counted > 0.5, total / np.maximum(counted, 1), np.nan)


def spans_decades(lines: Sequence[np.ndarray]) -> bool:
    """Return whether values are positive and so far apart that a logarithmic axis is needed."""
    values = np.concatenate([line[np.isfinite(line)] for line in lines])
    return bool(values.size and values.min() > 0 and values.max() > 50 * np.median(values))


def figure(panels: Sequence[Panel], unit: str, file: str | Path | None = None) -> Any:
    """Return all panels in one figure, two in a row; saved to `file` where one is named."""
    from matplotlib import pyplot

    across = min(2, len(panels))
    down = -(-len(panels) // across)
    size = 5.2 * across, 3.2 * down
    shown, grid = pyplot.subplots(down, across, squeeze=False, figsize=size, layout="constrained")
    # A figure of pyplot that nobody closes would stay in memory. A notebook shows it all the same.
    pyplot.close(shown)
    places = grid.flat
    for panel, axes in zip(panels, places, strict=False):
        draw(axes, panel, unit)
    if file is not None:
        shown.savefig(file, dpi=120)
    return shown


def draw(axes: Any, panel: Panel, unit: str) -> None:
    """Draw a panel on axes of matplotlib."""
    drawn = 0.0
    for number, (name, lines) in enumerate(panel.curves.items()):
        faint = name == FAINT
        for place, line in enumerate(lines):
            every = max(1, len(line) // POINTS)
            x, y = np.arange(1, len(line) + 1)[::every], line[::every]
            if panel.log:
                y = np.where(y > 0, y, np.nan)
            drawn = max(drawn, np.nanmax(np.where(np.isfinite(y), y, np.nan), initial=0.0))
            axes.plot(
                x, y,
                color="0.75" if faint else COLOURS[number % len(COLOURS)],
                linewidth=0.6 if faint or len(lines) > 1 else 1.4,
                marker="." if len(line) == 1 else None,
                label=name if name and place == 0 else None,
            )  # fmt: skip
    if panel.level is not None:
        axes.axhline(panel.level, color="0.4", linewidth=0.8, linestyle=":")
        axes.annotate(f"{panel.level:g}", (1.0, panel.level), (2, 0), color="0.4", fontsize=8,
                      xycoords=("axes fraction", "data"), textcoords="offset points",
                      va="center")  # fmt: skip
    if panel.log and drawn > 0:
        axes.set_yscale("log")
    axes.set_title(panel.title, fontsize=10, loc="left")
    axes.set_xlabel(unit, fontsize=9)
    axes.tick_params(which="both", labelsize=8)
    axes.spines[["top", "right"]].set_visible(False)
    if 1 < len(panel.curves) <= NAMED:
        axes.legend(fontsize=8, frameon=False, loc="best")
