"""Figures as PNG and SVG files, and as SVG inside a page; the colour of each method.

A method has the same colour in every figure. The colours have a contrast of at least 3 to white and
to the dark page.
"""

from __future__ import annotations

import io
import itertools
import re
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..._support import files
from ..framework.results import Figure
from ..framework.statistics import readable

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Canvas

PAPERS = ("#ffffff", "#16191d")
"""The backgrounds of figures, light and dark."""
STYLE = Path(__file__).with_suffix(".mplstyle")
INK, GRID, PAPER = "#1b1f24", "#d9dee3", "#ffffff"
"""The colours of text, grid and background there."""
GREY, RED, GREEN, OCHRE, BROWN = "#808080", "#d55e00", "#009270", "#b07800", "#a5694f"
OLIVE, TEAL, BLUE = "#7a8b00", "#1f93b8", "#0f77c0"
INDIGO, VIOLET, PINK = "#5b6ee1", "#9257d0", "#c9468f"
COLOURS = (BLUE, RED, GREEN, PINK, OCHRE, TEAL, VIOLET, BROWN, INDIGO, OLIVE, GREY)
KINDS = {
    kind: colour
    for colour, kinds in {
        GREY: ["OGD"],
        INDIGO: ["OAGD"],
        RED: ["AutoBalance", "MAML", "SOGD", "comparators"],
        GREEN: ["ANIL", "SOBOW"],
        OCHRE: ["ITD-BiO", "FSOBO"],
        BROWN: ["AOBO", "offline"],
        VIOLET: ["ZO-SOGD", "WOBO"],
        OLIVE: ["OBBO"],
        PINK: ["RTHO"],
        BLUE: ["F2OBO"],
    }.items()
    for kind in kinds
}
WINDOWS = ((1, TEAL), (5, BLUE), (10, INDIGO), (100, VIOLET), (10**9, PINK))
"""The colour of OAGD with a window of at most this size."""
LINES = {"solid": "-", "dash": "--", "dot": ":", "dashdot": "-."}
"""How curves of one colour are told apart, in the words of `obax watch` and of matplotlib."""


def colour_of(kind: str, w: int | None = None) -> str | None:
    """Return the colour of a method, or `None` for a curve that is not a method."""
    if kind == "OAGD" and w is not None:
        return next(colour for largest, colour in WINDOWS if w <= largest)
    return KINDS.get(kind)


def styles(curves: Sequence[tuple[str, int | None]]) -> list[tuple[str, str]]:
    """Return the colour and line of each curve of a figure, from the kind and window of its method.

    A curve that is not a method takes a colour that no other curve has.
    """
    own = [colour_of(kind, w) for kind, w in curves]
    free = itertools.cycle([colour for colour in COLOURS if colour not in own] or COLOURS)
    chosen: list[tuple[str, str]] = []
    for colour in own:
        colour = colour or next(free)
        used = sum(other == colour for other, _ in chosen)
        chosen.append((colour, list(LINES)[used % len(LINES)]))
    return chosen


def draw(figure: Figure) -> Canvas:
    """Return the chart as a matplotlib figure, without a window and without global state."""
    import matplotlib
    from matplotlib.figure import Figure as Canvas
    from matplotlib.ticker import LogFormatter

    class PlainNumbers(LogFormatter):
        """Plain numbers at the ticks of a logarithmic axis: 0.6 instead of 6 x 10^-1."""

        def __call__(self, x: float, pos: int | None = None) -> str:
            return f"{x:g}" if super().__call__(x, pos) else ""

    with matplotlib.rc_context(fname=STYLE):
        canvas = Canvas()
        axes = canvas.add_subplot()
        looks = styles([(series.kind, series.w) for series in figure.series])
        for number, (series, (colour, line)) in enumerate(zip(figure.series, looks, strict=True)):
            shape: dict[str, Any] = {
                "drawstyle": "steps-post" if series.steps else "default",
                "color": colour,
            }
            for seed in series.seeds:
                axes.plot(series.x, _drawable(seed, figure.log_y), lw=0.6, alpha=0.4, **shape)
            axes.plot(
                series.x,
                _drawable(series.mean, figure.log_y),
                linestyle=LINES[line],
                label=series.label,
                marker="o" if len(series.x) < 15 and not series.steps else None,
                gid=f"curve-{number}",
                **shape,
            )
            if series.low is not None and series.high is not None:
                low, high = (_drawable(edge, figure.log_y) for edge in (series.low, series.high))
                axes.fill_between(series.x, low, high, color=colour, alpha=0.18, lw=0)
        axes.set(xlabel=figure.x_label, ylabel=figure.y_label, title=figure.title)
        for axis, log in (("x", figure.log_x), ("y", figure.log_y)):
            if log:
                axes.set(**{f"{axis}scale": "log"})
                of_axis = getattr(axes, f"{axis}axis")
                of_axis.set_major_formatter(PlainNumbers())
                of_axis.set_minor_formatter(PlainNumbers(minor_thresholds=(1.5, 0.5)))
        # The legend stands below the axes, because inside it would hide curves.
        if widths := [len(series.label) for series in figure.series]:
            columns = 3 if max(widths) < 22 else 2 if max(widths) < 40 else 1
            canvas.legend(loc="outside lower left", ncols=columns)
    return canvas


def _drawable(values: object, log: bool) -> np.ndarray:
    """Return the values, with NaN for those that have no place on the axis."""
    numbers = np.asarray(values, np.float64)
    return np.where(np.isfinite(numbers) & ~(log & (numbers <= 0)), numbers, np.nan)


def save(figure: Figure, folder: Path) -> str:
    """Write `name.png` and `name.svg`, and return the SVG. Equal figures give equal bytes."""
    import matplotlib

    canvas = draw(figure)
    # Compute the layout once for both files: it takes longer than drawing.
    canvas.draw_without_rendering()
    canvas.set_layout_engine("none")
    for kind, metadata in (("png", None), ("svg", {"Date": None})):
        buffer = io.BytesIO()
        with matplotlib.rc_context(fname=STYLE):
            canvas.savefig(buffer, format=kind, metadata=metadata)
        files.write_bytes(folder / f"{figure.name}.{kind}", buffer.getvalue())
    return buffer.getvalue().decode()


def inline(figure: Figure, svg: str) -> str:
    """Return the SVG of a figure for a page: in the colours of the page, with words for curves.

    A screen reader reads `description(figure)`; a pointer on a curve shows its details.
    """
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    # Names such as "text_1" would occur once in every figure of the page.
    svg = re.sub(r' id="[a-z0-9A-Z]+_\d+"', "", svg)
    for number, series in enumerate(figure.series):
        words = f"<title>{escape(series.details or series.label)}</title>"
        svg = svg.replace(f'<g id="curve-{number}">', f"<g>{words}")
    svg = svg.replace(f"fill: {PAPER}", "fill: none")
    svg = svg.replace(INK, "currentColor").replace(GRID, "var(--line)")
    return svg.replace("<svg ", f'<svg role="img" aria-label="{escape(description(figure))}" ', 1)


def description(figure: Figure) -> str:
    """Return what a figure shows and where its curves end, for people who cannot see it."""
    ends = [f"{one.label} {readable(one.mean[-1])}" for one in figure.series if len(one.mean)]
    axes = f"{figure.title}: {figure.y_label} against {figure.x_label}"
    return f"{axes}. At the end: {'; '.join(ends)}"
