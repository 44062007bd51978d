"""Figures for print: PNG and SVG, from the same description as the interactive ones."""

import io
from pathlib import Path

import matplotlib
from matplotlib.figure import Figure as Canvas

from ..._support import atomic
from . import Figure

# Okabe and Ito's palette, told apart with any colour vision; dashes and widths help in grey.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#8C8C8C")
DASHES = ("-", "--", "-.", (0, (1, 1)), (0, (5, 1, 1, 1)), (0, (3, 1)), "-", "--")


def draw(figure: Figure) -> Canvas:
    """The chart as a matplotlib figure; no window and no global state."""
    canvas = Canvas(figsize=(6.4, 4.2), layout="constrained")
    axes = canvas.add_subplot()
    for index, series in enumerate(figure.series):
        colour, dash = COLOURS[index % len(COLOURS)], DASHES[index % len(DASHES)]
        axes.plot(
            series.x,
            series.mean,
            color=colour,
            linestyle=dash,
            linewidth=1.8,
            label=series.label,
            drawstyle="steps-post" if series.steps else "default",
            marker="o" if len(series.x) < 15 and not series.steps else None,
        )
        low = series.lower(figure.log_y)
        if low is not None and series.high is not None:
            axes.fill_between(series.x, low, series.high, color=colour, alpha=0.18, lw=0)
    axes.set(xlabel=figure.x_label, ylabel=figure.y_label)
    axes.set(**{f"{axis}scale": "log" for axis in "xy" if getattr(figure, f"log_{axis}")})
    axes.set_title(figure.title, fontsize=11)
    axes.grid(alpha=0.25, linewidth=0.6)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(fontsize=8, framealpha=0.85, edgecolor="none")
    return canvas


def save(figure: Figure, folder: Path) -> None:
    """Write `name.png` and `name.svg`; the same figure gives the same bytes."""
    canvas = draw(figure)
    for kind in ("png", "svg"):
        buffer = io.BytesIO()
        with matplotlib.rc_context({"svg.hashsalt": "obax", "svg.fonttype": "none"}):
            canvas.savefig(
                buffer, format=kind, dpi=160, metadata={"Date": None} if kind == "svg" else None
            )
        atomic.write_bytes(folder / f"{figure.name}.{kind}", buffer.getvalue())
