"""How well a stream is predicted: each row before it is learned, all of them and lately."""

import dataclasses
import math
from typing import Any

MOST_POINTS = 256
"""Of the curves; when there are as many, every two become one."""


@dataclasses.dataclass
class Score:
    """Running means over the rows that were learned; plain values, as a checkpoint holds them."""

    numbers: bool
    """Whether targets are numbers; otherwise they are classes."""
    coverage: float | None = None
    """What was asked of intervals or sets, if anything."""
    rows: int = 0
    first: float = 0.0
    """The sum of hits, or of absolute errors."""
    second: float = 0.0
    """The sum of squared errors."""
    covered: float = 0.0
    stride: int = 1
    pending: list[float] = dataclasses.field(default_factory=lambda: [0.0, 0.0, 0.0])
    """The same three sums over the rows since the last point."""
    points: list[list[float]] = dataclasses.field(default_factory=list)
    """The row, and the three means over `stride` rows up to it."""

    def add(self, error: float, covered: bool) -> None:
        """One more row: its error, or 0 for the right class and 1 for a wrong one."""
        found = (abs(error) if self.numbers else 1.0 - error, error * error, float(covered))
        self.rows += 1
        self.first += found[0]
        self.second += found[1]
        self.covered += found[2]
        self.pending = [a + b for a, b in zip(self.pending, found, strict=True)]
        if self.rows % self.stride:
            return
        self.points.append([self.rows, *(total / self.stride for total in self.pending)])
        self.pending = [0.0, 0.0, 0.0]
        if len(self.points) == MOST_POINTS:
            pairs = zip(self.points[::2], self.points[1::2], strict=True)
            self.points = [[b[0], *_halfway(a[1:], b[1:])] for a, b in pairs]
            self.stride *= 2

    @property
    def means(self) -> dict[str, float]:
        """By the words that people use, over all rows."""
        return self._named(
            *(total / max(self.rows, 1) for total in (self.first, self.second, self.covered))
        )

    @property
    def curves(self) -> dict[str, list[float]]:
        """The same for each point, and the row of it."""
        named = [self._named(*point[1:]) for point in self.points]
        names = self._named(0.0, 0.0, 0.0)
        rows = [point[0] for point in self.points]
        return {"row": rows} | {name: [one[name] for one in named] for name in names}

    def _named(self, first: float, second: float, covered: float) -> dict[str, float]:
        found = {"accuracy": first}
        if self.numbers:
            found = {"RMSE": math.sqrt(second), "MAE": first}
        return found if self.coverage is None else found | {"coverage": covered}

    def words(self) -> str:
        """In a few words."""
        if not self.rows:
            return "no row learned"
        named = [f"{name} {value:.4g}" for name, value in self.means.items()]
        if self.coverage is not None:
            named[-1] += f" (asked: {self.coverage:g})"
        return ", ".join(named)

    def plain(self) -> dict[str, Any]:
        """For a checkpoint; `Score(**plain)` is the score again."""
        return dataclasses.asdict(self)


def _halfway(one: list[float], other: list[float]) -> list[float]:
    return [(a + b) / 2 for a, b in zip(one, other, strict=True)]
