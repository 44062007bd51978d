"""The colour of each method, the same in every figure.

The colours have a contrast of at least 3 to white and to the dark page. Curves that would have the
same colour differ in their dash.
"""

import itertools
from collections.abc import Sequence
from typing import NamedTuple

PAPERS = ("#ffffff", "#16191d")
"""The backgrounds of figures, light and dark."""
DASHES = ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot")
GREY, RED, GREEN, OCHRE, BROWN = "#808080", "#d55e00", "#009270", "#b07800", "#a5694f"
OLIVE, TEAL, BLUE = "#7a8b00", "#1f93b8", "#0f77c0"
INDIGO, VIOLET, PINK = "#5b6ee1", "#9257d0", "#c9468f"
COLOURS = (BLUE, RED, GREEN, PINK, OCHRE, TEAL, VIOLET, BROWN, INDIGO, OLIVE, GREY)
KINDS = {
    "OGD": GREY,
    "OAGD": INDIGO,
    "AutoBalance": RED,
    "MAML": RED,
    "ANIL": GREEN,
    "ITD-BiO": OCHRE,
    "SOBOW": GREEN,
    "SOGD": RED,
    "ZO-SOGD": VIOLET,
    "FSOBO": OCHRE,
    "AOBO": BROWN,
    "OBBO": OLIVE,
    "RTHO": PINK,
    "F2OBO": BLUE,
    "WOBO": VIOLET,
    "offline": BROWN,
    "comparators": RED,
}
WINDOWS = ((1, TEAL), (5, BLUE), (10, INDIGO), (100, VIOLET), (10**9, PINK))
"""The colour of OAGD with a window of at most this size."""


class Style(NamedTuple):
    """A colour and a dash."""

    colour: str
    dash: str


def colour_of(kind: str, w: int | None = None) -> str | None:
    """Return the colour of a method, or `None` for a curve that is not a method."""
    if kind == "OAGD" and w is not None:
        return next(colour for largest, colour in WINDOWS if w <= largest)
    return KINDS.get(kind)


def styles(curves: Sequence[tuple[str, int | None]]) -> list[Style]:
    """Return the style of each curve of a figure, from the kind and window of its method.

    A curve that is not a method takes a colour that no other curve has.
    """
    own = [colour_of(kind, w) for kind, w in curves]
    free = itertools.cycle([colour for colour in COLOURS if colour not in own] or COLOURS)
    chosen: list[Style] = []
    for colour in own:
        colour = colour or next(free)
        dashes = [dash for dash in DASHES if Style(colour, dash) not in chosen]
        chosen.append(Style(colour, dashes[0] if dashes else DASHES[0]))
    return chosen
