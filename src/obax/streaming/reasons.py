"""Why rows were rejected, counted by kind in bounded memory."""

import re

MAX_KINDS = 20
"""Kinds of reasons that are told apart; further ones count together."""
OTHER = "other reasons"
VALUES = re.compile(r"(?<= is )('[^']*'|\"[^\"]*\"|\[.*?\]|\{.*?\}|[^\s,]+)(?=,)|-?\d[\d.,]*\b")
"""Matches values in a reason, which would make each row a kind of its own."""


def kind_of(reason: str) -> str:
    """Return a reason without the values of its row.

    >>> kind_of("feature 'a' is 'x7', not a number as before")
    "feature 'a' is ..., not a number as before"
    """
    return VALUES.sub("...", reason)[:200]


class Reasons:
    """Counts of rejected rows by kind of reason, with the first example of each."""

    def __init__(
        self, counts: dict[str, int] | None = None, examples: dict[str, str] | None = None
    ):
        self.counts, self.examples = dict(counts or {}), dict(examples or {})

    def add(self, reason: str) -> str:
        """Count a reason; return its kind."""
        kind = kind_of(reason)
        if kind not in self.counts and len(self.counts) >= MAX_KINDS:
            kind = OTHER
        self.counts[kind] = self.counts.get(kind, 0) + 1
        self.examples.setdefault(kind, reason if kind != OTHER else OTHER)
        return kind

    def summary(self, most: int = 5) -> list[str]:
        """Return a line for each of the most frequent kinds: its count and its first example."""
        kinds = sorted(self.counts, key=lambda kind: -self.counts[kind])
        lines = [f"{self.counts[kind]:,}: {self.examples[kind]}" for kind in kinds[:most]]
        rest = sum(self.counts[kind] for kind in kinds[most:])
        return lines + ([f"{rest:,}: {OTHER}"] if rest else [])

    def to_dict(self) -> dict[str, dict[str, int] | dict[str, str]]:
        """Return plain values for a checkpoint; `Reasons(**values)` is the same again."""
        return {"counts": self.counts, "examples": self.examples}
