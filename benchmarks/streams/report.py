"""Tables as they are found, on screen and for --json; limits, and whether they were met."""

import dataclasses
import math
from collections.abc import Sequence

MET, MISSED, NOT_JUDGED = "met", "missed", "-"
Cell = str | float | int | None


def verdict(value: float | None, limit: float | None) -> str:
    """Whether a value that must not be above its limit is; NaN is a miss, `None` is no value."""
    if value is None or limit is None:
        return NOT_JUDGED
    return MET if value <= limit else MISSED


def judged(*pairs: tuple[float | None, float | None]) -> str:
    """The verdict on several values with their limits: one miss is a miss."""
    found = {verdict(value, limit) for value, limit in pairs}
    return next((word for word in (MISSED, MET) if word in found), NOT_JUDGED)


def shown(value: Cell) -> str:
    """A cell as people read it."""
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:.4g}" if abs(value) < 1e6 or not math.isfinite(value) else "diverged"
    return f"{value:,}" if isinstance(value, int) else value


@dataclasses.dataclass
class Table:
    """One table; its last column, where it is called so, has the verdicts."""

    title: str
    columns: Sequence[str]
    rows: list[Sequence[Cell]]
    note: str = ""
    """A sentence that answers before the table does."""

    @property
    def missed(self) -> list[str]:
        """The rows whose limit was missed, by their first cell."""
        if self.columns[-1] != "verdict":
            return []
        return [str(row[0]) for row in self.rows if row[-1] == MISSED]

    def markdown(self) -> str:
        """As on a page."""
        lines = [self.columns, ["---"] * len(self.columns)]
        lines += [[shown(cell) for cell in row] for row in self.rows]
        return "\n".join(f"| {' | '.join(line)} |" for line in lines)

    def __str__(self) -> str:
        note = f"{self.note}\n\n" if self.note else ""
        return f"\n**{self.title}**\n\n{note}{self.markdown()}"
