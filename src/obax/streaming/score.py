"""Scores of a stream: each row is predicted before it is learned."""

import dataclasses
import math
from typing import Any

MAX_POINTS = 256
"""When the curves have as many points, each two neighbours become one."""


@dataclasses.dataclass
class Score:
    """Running means over the rows that were learned; plain values that a checkpoint can hold."""

    numbers: bool
    """Whether targets are numbers; otherwise they are classes."""
    coverage: float | None = None
    """The requested coverage of intervals or sets, if any."""
    rows: int = 0
    first: float = 0.0
    """The sum of correct predictions, or of absolute errors."""
    second: float = 0.0
    """The sum of squared errors."""
    covered: float = 0.0
    """How many targets were in their interval or set."""
    stride: int = 1
    """How many rows a point of the curves averages."""
    pending: list[float] = dataclasses.field(default_factory=lambda: [0.0, 0.0, 0.0])
    """The three sums above, over the rows since the last point."""
    points: list[list[float]] = dataclasses.field(default_factory=list)
    """For each point the row, and the three means over the `stride` rows up to it."""

    def add(self, error: float, covered: bool) -> None:
        """Add a row: its error, or for classes 0 if the prediction was right and 1 if not."""
        terms = (abs(error) if self.numbers else 1.0 - error, error * error, float(covered))
        self.rows += 1
        self.first += terms[0]
        self.second += terms[1]
        self.covered += terms[2]
        self.pending = [a + b for a, b in zip(self.pending, terms, strict=True)]
        if self.rows % self.stride:
            return
        self.points.append([self.rows, *(total / self.stride for total in self.pending)])
        self.pending = [0.0, 0.0, 0.0]
        if len(self.points) == MAX_POINTS:
            self.points = [
                [b[0], *((x + y) / 2 for x, y in zip(a[1:], b[1:], strict=True))]
                for a, b in zip(self.points[::2], self.points[1::2], strict=True)
            ]
            self.stride *= 2

    @property
    def means(self) -> dict[str, float]:
        """The scores over all rows, by their usual names."""
        return self._named(
            *(total / max(self.rows, 1) for total in (self.first, self.second, self.covered))
        )

    @property
    def curves(self) -> dict[str, list[float]]:
        """The scores of each point, and its row."""
        named = [self._named(*point[1:]) for point in self.points]
        names = self._named(0.0, 0.0, 0.0)
        rows = [point[0] for point in self.points]
        return {"row": rows} | {name: [one[name] for one in named] for name in names}

    def _named(self, first: float, second: float, covered: float) -> dict[str, float]:
        scores = {"accuracy": first}
        if self.numbers:
            scores = {"RMSE": math.sqrt(second), "MAE": first}
        return scores if self.coverage is None else scores | {"coverage": covered}

    def summary(self) -> str:
        """Return the scores as a short text."""
        if not self.rows:
            return "no row learned"
        texts = [f"{name} {value:.4g}" for name, value in self.means.items()]
        if self.coverage is not None:
            texts[-1] += f" (requested: {self.coverage:g})"
        return ", ".join(texts)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for a checkpoint; `Score(**values)` is the score again."""
        return dataclasses.asdict(self)
