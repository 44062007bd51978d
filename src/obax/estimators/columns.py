"""Words and dates as columns of numbers, by the same rule for every face:

- a *number* or boolean is a column of its own name;
- a *word* of feature "city" is a column "city=Paris": 1 where the row has that word, 0 where it has
  another. From the word on that would be one more than `max_categories`, words of the feature share
  the columns "city#0" to "city#15", by the CRC-32 of the word modulo 16;
- a *date* of feature "when", with or without a time of day, is "when.days", since 1970-01-01, and
  the time of day and of the week on a circle: "when.day_sin", "when.day_cos", "when.week_sin",
  "when.week_cos". Where it has a time zone, UTC is meant.

What a feature is, its first value decides; a row in which it is something else is rejected. An
empty word is missing; a word that a prediction meets first is, too; a text of more than 100
characters is not a word. A missing value is missing in every column of its feature.
"""

import collections
import warnings
from collections.abc import Container, Hashable, Iterator
from typing import Any

import numpy as np

from .kinds import (
    BUCKETS,
    DATE,
    NUMBER,
    WORD,
    bucket,
    circles,
    first,
    learned,
    present,
    reads_as_number,
    settle,
)
from .table import LONGEST, Features, Table, since_epoch
from .tags import tagged, untagged

DATE_PARTS = ("days", "day_sin", "day_cos", "week_sin", "week_cos")
New = tuple[int, int, str]
"""Row, column and word with which something new comes; an empty word where it is not a word."""


class Columns:
    """What the features of a model are, and the columns that stand for their words."""

    def __init__(self, most: int):
        self.most = most
        self.words: dict[Hashable, dict[str, str]] = {}
        """By feature and word, the name of the column."""
        self.hashed: set[Hashable] = set()
        self.dates: dict[Hashable, None] = {}
        self._zeros: dict[Hashable, dict[Hashable, float]] = {}
        """By feature, all columns of its words, as in a row that has none of them."""
        self.ignored = 0
        """Values without a column, until somebody takes note of them."""

    @property
    def busy(self) -> bool:
        """Whether any feature is more than a number."""
        return bool(self.words or self.dates)

    # ---- many rows -------------------------------------------------------------------------

    def known(self, table: Table, names: Container[Hashable]) -> Table:
        """The columns that the model knows, for rows that are only predicted."""
        if not (self.busy or table.words or table.days):
            return table
        return self._encoded(table, 0, len(table), self._places(table, names))

    def pieces(self, table: Table, names: Container[Hashable], room: int) -> Iterator[Table]:
        """The table as tables of numbers, cut before each row with which a column is new, so that
        the rows before are learned without it, as if they had come alone. `room` is how many
        columns there may be beyond `names`; values that would need more are ignored, and counted in
        `ignored`."""
        plain = not (self.busy or table.words or table.days)
        if plain and all(name in names for name in table.names):
            yield table
            return
        table = table.copy()
        places = self._places(table, names)
        kinds = settle(table, places)
        begin = 0
        for row, j, word in self._news(table, kinds, places):
            needed = self._needed(table.names[j], kinds[j])
            if needed > room:
                continue
            room -= needed
            if row > begin:
                yield self._encoded(table, begin, row, places, learn=True)
                begin = row
            places[j] = kinds[j]
            self._register(table.names[j], kinds[j], word)
        yield self._encoded(table, begin, len(table), places, learn=True)

    def _places(self, table: Table, names: Container[Hashable]) -> dict[int, str]:
        """The columns of a table that the model knows, and what they are."""
        found = {}
        for j, name in enumerate(table.names):
            if name in self.words:
                found[j] = WORD
            elif name in self.dates:
                found[j] = DATE
            elif name in names:
                found[j] = NUMBER
        return found

    def _news(self, table: Table, kinds: dict[int, str], places: dict[int, str]) -> list[New]:
        """In the order of the rows."""
        found: list[New] = []
        still = learned(table)
        for j, kind in kinds.items():
            name = table.names[j]
            if kind == WORD and name not in self.hashed:
                index = self.words.get(name, {})
                words = [
                    word if there else None
                    for word, there in zip(table.words.get(j, ()), still.tolist(), strict=False)
                ]
                new = [word for word in dict.fromkeys(words) if word and word not in index]
                found += [(words.index(w), j, w) for w in new[: max(self.most - len(index), 0) + 1]]
            elif kind != WORD and j not in places:
                found.append((first(present(table, j)[kind] & still), j, ""))
        return sorted(found)

    def _needed(self, name: Hashable, kind: str) -> int:
        """How many columns something new needs."""
        if kind == DATE:
            return len(DATE_PARTS)
        full = kind == WORD and len(self.words.get(name, {})) >= self.most
        return BUCKETS if full else 1

    def _register(self, name: Hashable, kind: str, word: str) -> None:
        if kind == DATE:
            self.dates[name] = None
        if kind != WORD:
            return
        if name not in self.words:
            if reads_as_number(word):
                warnings.warn(
                    f"feature {name!r} holds texts such as {word!r}: they are taken for the names "
                    f"of categories. Convert them with float() if they are numbers.",
                    stacklevel=2,
                )
            self.words[name] = {}
        if len(self.words[name]) < self.most:
            self.words[name][word] = f"{name}={word}"
        else:
            self.hashed.add(name)
        self._zeros[name] = dict.fromkeys(self._own(name), 0.0)

    def _encoded(
        self, table: Table, begin: int, end: int, places: dict[int, str], *, learn: bool = False
    ) -> Table:
        """Some rows, in columns of numbers. To `learn`, values without a column are counted."""
        names: list[Hashable] = []
        parts: list[np.ndarray] = []
        for j, kind in sorted(places.items()):
            name = table.names[j]
            if kind == NUMBER:
                names.append(name)
                parts.append(table.values[begin:end, j : j + 1])
            elif kind == DATE:
                names += [f"{name}.{part}" for part in DATE_PARTS]
                missing = np.full(len(table), np.nan)
                parts.append(circles(table.days.get(j, missing)[begin:end]))
            else:
                own = self._own(name)
                names += own
                words = table.words.get(j, [None] * len(table))[begin:end]
                parts.append(self._indicators(name, words, len(own)))
        values = np.concatenate([np.zeros((end - begin, 0)), *parts], axis=1)
        rejected = {i - begin: table.rejected[i] for i in table.rejected if begin <= i < end}
        if learn:
            self.ignored += self._without(table, begin, end, places, rejected)
        twice = [name for name, times in collections.Counter(names).items() if times > 1]
        if twice:
            keep = [names.index(name) for name in dict.fromkeys(names)]
            names, values = [names[k] for k in keep], values[:, keep]
            reason = f"feature {twice[0]!r} has the name of a column of another feature"
            rejected = dict.fromkeys(range(end - begin), reason) | rejected
        return Table.of(names, values, rejected, table, begin)

    def _without(
        self, table: Table, begin: int, end: int, places: dict[int, str], rejected: dict[int, str]
    ) -> int:
        """How many values of rows that are learned have no column."""
        found = 0
        learned = np.ones(end - begin, bool)
        learned[list(rejected)] = False
        for j, name in enumerate(table.names):
            lost = np.zeros(end - begin, bool)
            if j not in places:
                for rows in present(table, j).values():
                    lost |= rows[begin:end]
            elif places[j] == WORD and name not in self.hashed and j in table.words:
                known = {*self.words[name], None}
                lost |= [word not in known for word in table.words[j][begin:end]]
            found += int(np.sum(lost & learned))
        return found

    def _own(self, name: Hashable) -> list[str]:
        """The columns of a feature of words."""
        hashed = [f"{name}#{i}" for i in range(BUCKETS)] if name in self.hashed else []
        return [*self.words[name].values(), *hashed]

    def _indicators(self, name: Hashable, words: list[str | None], width: int) -> np.ndarray:
        index = {word: k for k, word in enumerate(self.words[name])}
        found = np.zeros((len(words), width))
        for i, word in enumerate(words):
            at = None if word is None else index.get(word)
            if at is None and word is not None and name in self.hashed:
                at = len(index) + bucket(word)
            if at is None:
                found[i] = np.nan
            else:
                found[i, at] = 1.0
        return found

    # ---- one row ---------------------------------------------------------------------------

    def plain(self, row: Features) -> dict[Hashable, object] | None:
        """A row whose words and dates are known, as a row of numbers; `None` for any other."""
        found: dict[Hashable, object] = {}
        size = 0
        for name, value in row.items():
            if name not in self.words:
                if name not in self.dates:
                    found[name] = value
                    size += 1
                elif value is not None:
                    days = since_epoch(value)
                    if days is None:
                        return None
                    for part, angle in zip(DATE_PARTS, circles(np.array([days]))[0], strict=True):
                        found[f"{name}.{part}"] = angle
                    size += len(DATE_PARTS)
            elif isinstance(value, str) and value:
                column = self.words[name].get(value)
                if column is None:
                    if name not in self.hashed or len(value) > LONGEST:
                        return None
                    column = f"{name}#{bucket(value)}"
                found.update(self._zeros[name])
                found[column] = 1.0
                size += len(self._zeros[name])
            elif value is not None:
                return None
        # Fewer where a feature has the name of a column of another one.
        return found if len(found) == size else None

    # ---- checkpoints -----------------------------------------------------------------------

    def to_plain(self) -> dict[str, Any]:
        """As JSON can hold it."""
        return {
            "words": [[tagged(name), list(words)] for name, words in self.words.items()],
            "hashed": [tagged(name) for name in self.words if name in self.hashed],
            "dates": [tagged(name) for name in self.dates],
        }

    @classmethod
    def from_plain(cls, most: int, plain: dict[str, Any]) -> "Columns":
        """What `to_plain` was called on."""
        columns = cls(most)
        for tag, words in plain["words"]:
            name = untagged(tag)
            columns.words[name] = {word: f"{name}={word}" for word in words}
        columns.hashed = {untagged(tag) for tag in plain["hashed"]}
        columns.dates = {untagged(tag): None for tag in plain["dates"]}
        for name in columns.words:
            columns._zeros[name] = dict.fromkeys(columns._own(name), 0.0)
        return columns
