"""What the values of columns are: numbers, dates or categories, as told or as they look."""

import dataclasses
import warnings
from collections.abc import Iterable
from typing import Any

from ..estimators.inputs.table import Category, number, short, since_epoch

MISSING = {"", "na", "nan", "null", "none", "?"}
IDENTIFIER_WORDS = 100
"""So many words of a column that are all different make it look like an identifier."""


class ValueRejected(ValueError):
    """A value that is not what its column was said to be."""


@dataclasses.dataclass(frozen=True)
class Kinds:
    """Columns whose kind the user has said; the first value decides for others."""

    numeric: frozenset[str] = frozenset()
    dates: frozenset[str] = frozenset()
    categories: frozenset[str] = frozenset()

    def convert(self, name: str, value: Any) -> Any:
        """Return a value as the models take it; texts that read as numbers are numbers."""
        if name in self.categories:
            value = parse_word(value) if isinstance(value, str) else value
            return None if value is None else Category(value)
        if isinstance(value, str):
            value = parse_number(value)
        if value is None or value != value:
            return value
        if name in self.numeric and number(value) is None:
            raise ValueRejected(f"feature {name!r} is {short(value)}, not a number")
        if name in self.dates and since_epoch(value) is None:
            raise ValueRejected(
                f"feature {name!r} is {short(value)}, not a date such as 2024-12-31"
            )
        return value

    def to_dict(self) -> dict[str, list[str]]:
        """Return what was said, as plain values; nothing where nothing was."""
        fields = dataclasses.asdict(self).items()
        return {name: sorted(columns) for name, columns in fields if columns}

    def of(self, name: str) -> bool:
        """Return whether the kind of a column was said."""
        return name in self.numeric | self.dates | self.categories


AS_THEY_LOOK = Kinds()
"""Kinds when nothing was said."""


class Identifiers:
    """Warnings about columns whose words are all different."""

    def __init__(self) -> None:
        self._words: dict[str, set[str] | None] = {}

    def look(self, name: str, values: Iterable[Any]) -> None:
        """Look at some values of a column; warn once if it looks like an identifier."""
        words = self._words.setdefault(name, set())
        if words is None:
            return
        for value in values:
            if type(value) is not str or since_epoch(value) is not None:
                continue
            if value in words:
                self._words[name] = None
                return
            words.add(value)
            if len(words) == IDENTIFIER_WORDS:
                self._words[name] = None
                warnings.warn(
                    f"column {name!r} looks like an identifier: its first {IDENTIFIER_WORDS} words "
                    f"are all different, such as {short(value)}. Leave it out with --drop {name}.",
                    stacklevel=2,
                )
                return


def parse_word(text: str) -> str | None:
    """Return a text without blanks around it; `None` for one that stands for a missing value."""
    return None if (text := text.strip()).lower() in MISSING else text


def parse_number(text: str) -> float | str | None:
    """Return a text as a number if it is one."""
    word = parse_word(text)
    try:
        return word if word is None else float(word)
    except ValueError:
        return word
