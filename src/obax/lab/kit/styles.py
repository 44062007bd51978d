"""One colour and one dash for each method, in every figure of every page.

The colours keep a contrast of 3 to white and to the dark page; the dash helps in grey.
"""

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

PAPERS = ("#ffffff", "#16191d")
"""What figures are drawn on: by day, and by night."""
DASHES = ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot")
GREY, RED, GREEN, OCHRE, BROWN = "#808080", "#d55e00", "#009270", "#b07800", "#a5694f"
OLIVE, TEAL, BLUE = "#7a8b00", "#1f93b8", "#0f77c0"
INDIGO, VIOLET, PINK = "#5b6ee1", "#9257d0", "#c9468f"
CYCLE = (BLUE, RED, GREEN, PINK, OCHRE, TEAL, VIOLET, BROWN, INDIGO, OLIVE, GREY)
KINDS = {"OGD": GREY, "OAGD": INDIGO, "AutoBalance": RED, "MAML": RED, "ANIL": GREEN}
KINDS |= {"ITD-BiO": OCHRE, "SOBOW": GREEN, "SOGD": RED, "ZO-SOGD": VIOLET, "FSOBO": OCHRE}
KINDS |= {"AOBO": BROWN, "OBBO": OLIVE, "RTHO": PINK, "offline": BROWN, "comparators": BROWN}
KINDS |= {"F2OBO": BLUE, "WOBO": VIOLET}
BEST = GREEN
"""What nobody can know in advance is no learner."""
WINDOWS = ((1, TEAL), (5, BLUE), (10, INDIGO), (100, VIOLET), (10**9, PINK))
"""OAGD up to this w: from green to red, the longer it remembers."""
OPTIONS = {"x fixed": "dot", "oracle x": "dash", "implicit": "dash", "head": "dot"}
OPTIONS |= {"sampled": "dash", "first order": "dot", "one solve": "dashdot", "CG": "longdash"}
OPTIONS |= {"leader held": "dot", "δ = 0.5": "dash", "δ = 1": "longdash", "adaptive": "dash"}
OPTIONS |= {"offline": "dashdot", "comparators": "longdash"}
OPTIONS |= {"window": "longdash", "single loop": "dot"}
# Ways to cut a window: their curves often lie on each other.
OPTIONS |= {"cut at the true changes": "dash", "cut where a detector says": "dot"}
# As the comparison of all methods writes them.
ALIASES = {"OAGD window": "OAGD, w = 10", "OAGD w=1": "OAGD, w = 1", "OGD x fixed": "OGD, x fixed"}
ALIASES |= {"OBBO adaptive": "OBBO, adaptive", "WOBO window": "WOBO, window"}
ALIASES |= {"WOBO single": "WOBO, single loop"}


class Style(NamedTuple):
    """How a curve is drawn; the dash by plotly's names."""

    colour: str
    dash: str


def own_style(name: str) -> Style | None:
    """Of a method, by its label; `None` for what is none."""
    kind, *options = ALIASES.get(name, name).split(", ")
    if kind not in KINDS:
        return None
    window = re.search(r"\bw = (\d+)", ALIASES.get(name, name))
    colour = BEST if "oracle x" in options else KINDS[kind]
    if kind == "OAGD" and window:
        colour = next(shade for most, shade in WINDOWS if int(window[1]) <= most)
    return Style(colour, _dash(kind, *options))


def _dash(*words: str) -> str:
    return next((OPTIONS[word] for word in words if word in OPTIONS), "solid")


def styles(names: Sequence[str]) -> list[Style]:
    """Of all curves of a figure: each method's own. What is no method takes what is free, and so
    does a second setting of one."""
    own = [own_style(name) for name in names]
    taken = {style for style in own if style}
    found: list[Style] = []
    for name, style in zip(names, own, strict=True):
        if style is None or style in found:
            free = _free(style, _dash(*name.split(", ")))
            style = next(one for one in free if one not in taken or len(found) >= len(CYCLE) * 6)
            taken.add(style)
        found.append(style)
    return found


def _free(style: Style | None, first: str) -> Iterator[Style]:
    """Other dashes of a method's colour, then all there are, beginning with a dash."""
    if style:
        yield from (Style(style.colour, dash) for dash in DASHES)
    for dash in dict.fromkeys((first, *DASHES)):
        yield from (Style(colour, dash) for colour in CYCLE)
