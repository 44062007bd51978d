"""Figures for print: PNG and SVG, from the same description as the interactive ones."""

import io
from pathlib import Path

import matplotlib
import numpy as np
from matplotlib.figure import Figure as Canvas
from matplotlib.ticker import LogFormatter

from ..._support import atomic
from . import Figure

LINES = {
    "solid": "-",
    "dash": (0, (5, 2)),
    "dot": (0, (1, 1.2)),
    "dashdot": (0, (5, 1.5, 1, 1.5)),
    "longdash": (0, (9, 2)),
    "longdashdot": (0, (9, 2, 1, 2)),
}
"""Plotly's dashes, as matplotlib writes them."""


class Plain(LogFormatter):
    """0.6, and not 6 x 10^-1; powers of ten alone where there are several."""

    def __call__(self, x: float, pos: int | None = None) -> str:
        """What stands at x."""
        return f"{x:g}" if super().__call__(x, pos) else ""


def draw(figure: Figure) -> Canvas:
    """The chart as a matplotlib figure; no window and no global state."""
    canvas = Canvas(figsize=(6.4, 4.4), layout="constrained")
    axes = canvas.add_subplot()
    for series, (colour, dash) in zip(figure.series, figure.styles(), strict=True):
        shape = "steps-post" if series.steps else "default"
        for seed in series.seeds:
            (thin,) = axes.plot(series.x, _drawn(seed, figure.log_y), drawstyle=shape)
            thin.set(color=colour, linewidth=0.6, alpha=0.4)
        axes.plot(
            series.x,
            _drawn(series.mean, figure.log_y),
            color=colour,
            linestyle=LINES[dash],
            linewidth=1.8,
            label=series.label,
            drawstyle=shape,
            marker="o" if len(series.x) < 15 and not series.steps else None,
            markersize=4,
        )
        if series.low is not None and series.high is not None:
            low, high = (_drawn(edge, figure.log_y) for edge in (series.low, series.high))
            axes.fill_between(series.x, low, high, color=colour, alpha=0.18, lw=0)
    axes.set(xlabel=figure.x_label, ylabel=figure.y_label)
    axes.set(**{f"{axis}scale": "log" for axis in "xy" if getattr(figure, f"log_{axis}")})
    for axis in (axes.xaxis, axes.yaxis):
        if axis.get_scale() == "log":
            axis.set_major_formatter(Plain())
            axis.set_minor_formatter(Plain(minor_thresholds=(1.5, 0.5)))
    axes.set_title(figure.title, fontsize=11, loc="left")
    axes.grid(alpha=0.25, linewidth=0.6)
    axes.spines[["top", "right"]].set_visible(False)
    # Below the axes: a legend inside hides curves.
    widest = max((len(series.label) for series in figure.series), default=0)
    columns = 3 if widest < 22 else 2 if widest < 40 else 1
    canvas.legend(loc="outside lower left", ncols=columns, fontsize=8, frameon=False)
    return canvas


def _drawn(values: object, log: bool) -> np.ndarray:
    """What has a place on the axis; a logarithmic one has none below zero."""
    found = np.asarray(values, np.float64)
    return np.where(np.isfinite(found) & ~(log & (found <= 0)), found, np.nan)


def save(figure: Figure, folder: Path) -> None:
    """Write `name.png` and `name.svg`; the same figure gives the same bytes."""
    canvas = draw(figure)
    # Laid out once for both: that takes longer than to draw.
    canvas.draw_without_rendering()
    canvas.set_layout_engine("none")
    for kind in ("png", "svg"):
        buffer = io.BytesIO()
        with matplotlib.rc_context({"svg.hashsalt": "obax", "svg.fonttype": "none"}):
            canvas.savefig(
                buffer, format=kind, dpi=160, metadata={"Date": None} if kind == "svg" else None
            )
        atomic.write_bytes(folder / f"{figure.name}.{kind}", buffer.getvalue())
