"""What a comparison of one's own found: the answer first, then a small table."""

import dataclasses
import html
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from ..._support import drawing
from ..._support.counting import counted
from ...algorithms import Info
from ..kit.numbers import readable
from ..kit.verdict import Gain, with_interval
from .config import Config
from .methods import COUNTS, cost

LOSS = "loss suffered"


@dataclasses.dataclass(frozen=True, repr=False)
class Comparison:
    """What `obax.lab.compare` found. Printed, it is the answer and a small table.

    `histories` are those of each algorithm on each stream, `curves` the cumulative ones by measure
    and algorithm, `seconds` those of a round.
    """

    histories: dict[str, list[Info]]
    curves: dict[str, dict[str, list[np.ndarray]]]
    seconds: dict[str, float]

    @property
    def order(self) -> list[str]:
        """The algorithms, the one that suffered least first."""
        return sorted(self.histories, key=lambda name: np.mean(self._ends(LOSS, name)))

    @property
    def best(self) -> str:
        """The one that suffered least."""
        return self.order[0]

    @property
    def answer(self) -> str:
        """Which suffered least, by how much, and what it cost."""
        first, *others = self.order
        mine = self._ends(LOSS, first)
        if not np.all(np.isfinite(mine)):
            return "None of them suffered a finite loss: all diverged. Smaller steps may help."
        among = "" if len(mine) == 1 else f" of {len(mine)} streams"
        horizon = len(self.curves[LOSS][first][0])
        said = (
            f"{first} suffered least: {with_interval(mine)} over {counted(horizon, 'round')}{among}"
        )
        if others:
            said += self._beside(mine, others[0])
        calls = np.mean([cost(Config(), one).mean() for one in self.histories[first]])
        spent = f"A round of it costs {readable(calls)} calls and {_micro(self.seconds[first])} us."
        words = [f"{said}.", spent]
        for measure in self.curves:
            ends = {name: np.mean(self._ends(measure, name)) for name in self.order}
            least = min(ends, key=lambda name: ends[name])
            if least != first:
                words.append(f"The least {measure} is that of {least}.")
        return " ".join(words)

    def _beside(self, mine: np.ndarray, other: str) -> str:
        """How far the best is ahead of another."""
        theirs = self._ends(LOSS, other)
        if not np.all(np.isfinite(theirs)):
            return f"; the next, {other}, diverged"
        gain = Gain.of(theirs - mine)
        share = f"{gain.mean / abs(np.mean(theirs)):.1%}" if np.mean(theirs) else "0%"
        ahead = f", {gain.size} ({share}) less than the next, {other}"
        if gain.seeds == 1:
            return f"{ahead} (one stream, so without an interval)"
        return f"{ahead}, which is within noise" if gain.verdict == "within noise" else ahead

    def to_pandas(self) -> pd.DataFrame:
        """A row for each algorithm and stream, in the order of the losses; counts are those of a
        round, `calls` all of them in gradients, as `obax run compare` counts."""
        rows = []
        for name in self.order:
            for number, history in enumerate(self.histories[name]):
                row: dict[str, Any] = {"algorithm": name, "stream": number}
                row |= {measure: self._ends(measure, name)[number] for measure in self.curves}
                row["calls"] = cost(Config(), history).mean()
                row |= {count: np.asarray(getattr(history, count)).mean() for count in COUNTS}
                row["us per round"] = 1e6 * self.seconds[name]
                rows.append(row | {"rejected": int(history.rejected)})
        return pd.DataFrame(rows)

    def plot(self, file: str | Path | None = None) -> Any:
        """One matplotlib figure, a panel for each measure over the rounds; saved to `file` where
        one is named."""
        panels = []
        for measure, found in self.curves.items():
            lines = {name: found[name] for name in self.order}
            log = drawing.spans_decades([one for mine in lines.values() for one in mine])
            panels.append(
                drawing.Panel(f"{measure}, summed" if measure == LOSS else measure, lines, log)
            )
        return drawing.figure(panels, "round", file)

    def __repr__(self) -> str:
        return f"{self.answer}\n\n{self._small().to_string(index=False)}"

    def _repr_html_(self) -> str:
        return f"<p>{html.escape(self.answer)}</p>{self._small().to_html(index=False, border=0)}"

    def _small(self) -> pd.DataFrame:
        """The table as it is read: means over the streams, without counts that are all zero."""
        whole = self.to_pandas()
        rows = []
        for name in self.order:
            mine = whole[whole.algorithm == name]
            row = {"algorithm": name}
            row |= {measure: with_interval(mine[measure]) for measure in self.curves}
            for count in ("calls", *COUNTS):
                if count == "calls" or whole[count].any():
                    row[count.replace("_", " ")] = readable(mine[count].mean())
            row["us per round"] = _micro(self.seconds[name])
            if whole.rejected.any():
                row["rejected"] = str(mine.rejected.sum())
            rows.append(row)
        return pd.DataFrame(rows)

    def _ends(self, measure: str, name: str) -> np.ndarray:
        return np.asarray([line[-1] for line in self.curves[measure][name]])


def _micro(seconds: float) -> str:
    return readable(1e6 * seconds)
