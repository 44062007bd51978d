"""The result of `obax.lab.compare`: the answer first, then a small table."""

import dataclasses
import html
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from ..._support import drawing
from ..._support.messages import counted
from ...algorithms import Info
from ..framework.statistics import Gain, readable, with_interval
from .config import Config
from .methods import COUNTS, cost

LOSS = "loss suffered"


@dataclasses.dataclass(frozen=True, repr=False)
class Comparison:
    """The result of `obax.lab.compare`, printed as the answer and a small table.

    `histories` has the history of each algorithm on each stream, `curves` the cumulative losses and
    regrets by measure and algorithm, and `seconds` the time of a round.
    """

    histories: dict[str, list[Info]]
    curves: dict[str, dict[str, list[np.ndarray]]]
    seconds: dict[str, float]

    @property
    def order(self) -> list[str]:
        """The algorithms in the order of their losses, the least first."""
        return sorted(self.histories, key=lambda name: np.mean(self._ends(LOSS, name)))

    @property
    def best(self) -> str:
        """The algorithm with the least loss."""
        return self.order[0]

    @property
    def answer(self) -> str:
        """Which algorithm had the least loss, by how much, and at which cost."""
        first, *others = self.order
        losses = self._ends(LOSS, first)
        if not np.all(np.isfinite(losses)):
            return "No algorithm had a finite loss: all diverged. Smaller steps may help."
        among = "" if len(losses) == 1 else f" of {len(losses)} streams"
        horizon = len(self.curves[LOSS][first][0])
        lead = (
            f"{first} had the least loss: {with_interval(losses)} over "
            f"{counted(horizon, 'round')}{among}"
        )
        if others:
            lead += self._difference(losses, others[0])
        calls = np.mean([cost(Config(), one).mean() for one in self.histories[first]])
        spent = f"A round of it costs {readable(calls)} calls and {_micro(self.seconds[first])} us."
        words = [f"{lead}.", spent]
        for measure in self.curves:
            ends = {name: np.mean(self._ends(measure, name)) for name in self.order}
            least = min(ends, key=lambda name: ends[name])
            if least != first:
                words.append(f"The least {measure} is that of {least}.")
        return " ".join(words)

    def _difference(self, losses: np.ndarray, other: str) -> str:
        """Return how far the best algorithm is ahead of another."""
        theirs = self._ends(LOSS, other)
        if not np.all(np.isfinite(theirs)):
            return f"; the next, {other}, diverged"
        gain = Gain.of(theirs - losses)
        share = f"{gain.mean / abs(np.mean(theirs)):.1%}" if np.mean(theirs) else "0%"
        ahead = f", {gain.size} ({share}) less than the next, {other}"
        if gain.seeds == 1:
            return f"{ahead} (one stream, so without an interval)"
        return f"{ahead}, which is within noise" if gain.verdict == "within noise" else ahead

    def to_pandas(self) -> pd.DataFrame:
        """Return a row for each algorithm and stream, in the order of the losses.

        Counts are those of a round; `calls` is their sum in gradients, as in `obax run compare`.
        """
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
        """Return a matplotlib figure with a panel for each measure; save it to `file`, if given."""
        panels = []
        for measure, curves in self.curves.items():
            lines = {name: curves[name] for name in self.order}
            log = drawing.spans_decades([one for streams in lines.values() for one in streams])
            panels.append(
                drawing.Panel(f"{measure}, summed" if measure == LOSS else measure, lines, log)
            )
        return drawing.figure(panels, "round", file)

    def __repr__(self) -> str:
        return f"{self.answer}\n\n{self._small().to_string(index=False)}"

    def _repr_html_(self) -> str:
        return f"<p>{html.escape(self.answer)}</p>{self._small().to_html(index=False, border=0)}"

    def _small(self) -> pd.DataFrame:
        """Return means over the streams as a table to read, without counts that are all zero."""
        whole = self.to_pandas()
        rows = []
        for name in self.order:
            of_algorithm = whole[whole.algorithm == name]
            row = {"algorithm": name}
            row |= {measure: with_interval(of_algorithm[measure]) for measure in self.curves}
            for count in ("calls", *COUNTS):
                if count == "calls" or whole[count].any():
                    row[count.replace("_", " ")] = readable(of_algorithm[count].mean())
            row["us per round"] = _micro(self.seconds[name])
            if whole.rejected.any():
                row["rejected"] = str(of_algorithm.rejected.sum())
            rows.append(row)
        return pd.DataFrame(rows)

    def _ends(self, measure: str, name: str) -> np.ndarray:
        return np.asarray([line[-1] for line in self.curves[measure][name]])


def _micro(seconds: float) -> str:
    return readable(1e6 * seconds)
