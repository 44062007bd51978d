"""The two answers that the page begins with: is the penalty worth learning, does memory help?"""

from collections.abc import Hashable, Sequence

import pandas as pd

from ..kit.table import select
from ..kit.verdict import Gain, asked, paired, with_interval
from ..report import Answer, Figure, Table
from . import figures
from .config import CUTS, GROUP, PENALTIES, QUESTION, Config, as_read, asked_of, plain

HEADINGS = {"never": "never cut", "changes": "cut at changes", "detected": "cut by detector"}


def tuning(table: pd.DataFrame) -> Answer:
    """Is a penalty that is learned better than one that is not, and how near is it to the best?"""
    losses = select(table, metric="tuning_loss")
    rows, gains, closed = [], [], []
    for group, _ in table[table.kind == "OAGD"].groupby(GROUP, sort=False):
        of = dict(zip(GROUP, group, strict=True))
        loss = {
            name: select(losses, method=method.label(), **of).set_index("seed").value
            for name, method in PENALTIES.items()
        }
        fixed, learned, known = loss.values()
        gains.append(paired(fixed, learned))
        closed.append((fixed.mean() - learned.mean()) / (fixed.mean() - known.mean()))
        said = {name: with_interval(values) for name, values in loss.items()}
        rows.append({"stream": stream_name(group)} | said | {"gain": gains[-1].size})
    words = (
        f"{asked([gain.verdict for gain in gains], 'stream')}: learning the penalty online lowers "
        f"the loss per round by {gains[0].size} against holding it at its start "
        f"({rows[0]['stream']}; {gains[0].basis})"
    )
    if not gains[0].seeds:
        words = "Not tested here: not all three ways to come by a penalty were run"
    if 0 < closed[0] < 2:
        words += f", which closes {closed[0]:.0%} of the gap to the best penalty known in advance"
    return Answer(
        QUESTION,
        f"{words}.",
        Table(
            "penalties",
            "Loss suffered per round",
            "Mean over seeds with its 95% t-interval, at the best step sizes of the grid; the gain "
            "is that of learned over fixed, paired by seed. S: how many models the stream goes "
            "through. All three train the same ridge regression on one sample per round.",
            pd.DataFrame(rows),
        ),
        figures.penalties(table),
    )


def remembering(config: Config, table: pd.DataFrame, figure: Figure) -> Answer:
    """Is a window over everything better than none, for each way to cut it?"""
    largest = max(config.sizes())
    losses, rows, gains = select(table, metric="tuning_loss"), [], {}
    for group, _ in table[table.kind == "OAGD"].groupby(GROUP, sort=False):
        here = select(losses, **dict(zip(GROUP, group, strict=True)))
        loss = {
            method: select(here, method=method.label()).set_index("seed").value
            for method in asked_of(config)
        }
        short, name = loss[plain(1, "never")], stream_name(group)
        whole = {cut: loss[plain(largest, cut)] for cut in CUTS}
        whole["changes"] = loss[as_read(largest, group[1])]
        gains[name] = {cut: paired(short, values) for cut, values in whole.items()}
        columns = {HEADINGS[cut]: with_interval(values) for cut, values in whole.items()}
        gain = {"gain": gains[name]["detected"].size}
        rows.append({"stream": name, "w = 1": with_interval(short)} | columns | gain)
    lead = asked([each["changes"].verdict for each in gains.values()], "stream")
    first, of = next(iter(gains.items()))
    moved = ", ".join(
        f"{_moved(of[cut])} if {CUTS[cut]}" for cut in ("changes", "detected", "never")
    )
    return Answer(
        "Does remembering more help?",
        f"{lead}, if the window ends where the world changes: with a window over "
        f"w = {config.named(largest)} rounds instead of 1 the loss per round "
        f"{moved} ({first}; {of['changes'].basis}).",
        Table(
            "memory",
            "Loss suffered per round, for each way to cut the window",
            "Mean over seeds with its 95% t-interval, at the best step sizes of the grid. "
            f"w = {config.named(largest)}: equal weights over all rounds since the last cut, and "
            "the follower trains on them too. That the window ends with a stage is our reading of "
            "the paper, chosen after 38 others had been tried; the detector "
            "(obax.detectors.ScaleChange) sees the losses alone. The gain is that of its "
            "window over w = 1, paired by seed.",
            pd.DataFrame(rows),
        ),
        figure,
    )


def _moved(gain: Gain) -> str:
    """`falls by 1.2 ± 0.3`, and whether that is noise."""
    if not gain.seeds:
        return "was not measured"
    noise = " (within noise)" if gain.verdict == "within noise" else ""
    if gain.mean < 0:
        return f"rises by {Gain(-gain.mean, gain.half, gain.seeds).size}{noise}"
    return f"falls by {gain.size}{noise}"


def stream_name(group: Sequence[Hashable]) -> str:
    """A group, by the values of its columns, for people."""
    scenario, stages, d1 = group
    return f"{scenario}, S = {stages}" + ("" if d1 == 1 else f", {d1} penalties")
