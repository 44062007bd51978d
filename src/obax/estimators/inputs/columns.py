"""Words and dates as columns of numbers, by the same rule for every kind of input:

- a *number* or boolean is a column of its own name;
- a *word* of feature "city" is a column "city=Paris": 1 where the row has that word, 0 where it has
  another. From the word on that would be one more than `max_categories`, words of the feature share
  the columns "city#0" to "city#15", by the CRC-32 of the word modulo 16;
- a *date* of feature "when", with or without a time of day, is "when.days", since 1970-01-01, and
  the time of day and of the week on a circle: "when.day_sin", "when.day_cos", "when.week_sin",
  "when.week_cos". Where it has a time zone, UTC is meant.

The first value of a feature decides what it is; a row in which it is something else is rejected. A
feature for which there is no column left is nothing, and its values are ignored. An empty word is
missing; a word that a prediction meets first is, too; a text of more than 100 characters is not a
word. A missing value is missing in every column of its feature.
"""

import collections
import copy
import math
import zlib
from collections.abc import Container, Hashable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ..rejected import warn_caller
from ..serialise import tagged, untagged
from .table import LONGEST, Category, Features, Table, short, since_epoch

NUMBER, WORD, DATE = "number", "word", "date"
DATE_PARTS = ("days", "day_sin", "day_cos", "week_sin", "week_cos")
BUCKETS = 16
"""Columns that the words beyond `max_categories` of a feature share."""


class Words(NamedTuple):
    """The words of a feature."""

    columns: dict[str, str]
    """By word, the name of its column."""
    shared: list[str]
    """Columns that further words share; empty until there are any."""
    zeros: dict[Hashable, float]
    """All columns, as in a row that has none of the words."""

    def has(self, word: str) -> bool:
        """Return whether there is a column for a word."""
        return word in self.columns or bool(self.shared)

    @classmethod
    def of(cls, name: Hashable, words: list[str], shared: bool) -> "Words":
        """Return the columns of these words."""
        columns = {word: f"{name}={word}" for word in words}
        buckets = [f"{name}#{i}" for i in range(BUCKETS)] if shared else []
        return cls(columns, buckets, dict.fromkeys([*columns.values(), *buckets], 0.0))


class Columns:
    """The kinds of the features of a model, and the columns that stand for words and dates."""

    def __init__(self, most: int):
        self.most = most
        self.words: dict[Hashable, Words] = {}
        self.dates: dict[Hashable, None] = {}
        self.busy = False
        """Whether any feature has words or dates."""
        self.ignored = 0
        """Values without a column in the pieces so far."""

    # ---- many rows -------------------------------------------------------------------------

    def known(self, table: Table, names: Container[Hashable]) -> Table:
        """Return the columns that the model knows, for rows that are only predicted."""
        if not (self.busy or table.words or table.days):
            return table
        return self._encoded(table, 0, len(table), self._kinds(table, names))

    def pieces(self, table: Table, names: Container[Hashable], room: int) -> Iterator[Table]:
        """Return the table as tables of numbers, cut before each row with which a column is new, so
        that the rows before are learned without it, as if they had come alone.

        `room` is how many columns there may be beyond `names`; values that would need more are
        ignored, and counted in `ignored`.
        """
        plain = not (self.busy or table.words or table.days)
        if plain and all(name in names for name in table.names):
            yield table
            return
        table, kinds, begin = copy.copy(table), self._kinds(table, names), 0
        table.rejected = dict(table.rejected)
        watched = _watched(table, kinds)
        for row in range(len(table)):
            if not watched or (plain and room <= 0):
                break
            if row in table.rejected:
                continue
            values = {j: found for j in watched if (found := _kind_at(table, row, j)) is not None}
            wrong = next((j for j, (kind, _) in values.items() if kinds.get(j, kind) != kind), None)
            if wrong is not None:
                name = table.names[wrong]
                value = short(table.row(row)[name])
                table.rejected[row] = f"feature {name!r} is {value}, not a {kinds[wrong]} as before"
                continue
            for j, (kind, word) in values.items():
                name = table.names[j]
                if j in kinds and (kind != WORD or self.words[name].has(word)):
                    continue
                needed = self._needed(name, kind)
                if needed > room:
                    self.ignored += not plain
                    continue
                if row > begin:
                    yield self._encoded(table, begin, row, kinds)
                    begin = row
                room -= needed
                self._register(name, kind, word)
                kinds[j] = kind
                watched = _watched(table, kinds)
        if plain:
            self.ignored += table.count({n for j, n in enumerate(table.names) if j not in kinds})
        yield self._encoded(table, begin, len(table), kinds)

    def _kinds(self, table: Table, names: Container[Hashable]) -> dict[int, str]:
        """Return the kinds of those columns of a table that the model knows."""
        kinds = {}
        for j, name in enumerate(table.names):
            if name in self.words:
                kinds[j] = WORD
            elif name in self.dates:
                kinds[j] = DATE
            elif name in names:
                kinds[j] = NUMBER
        return kinds

    def _needed(self, name: Hashable, kind: str) -> int:
        """Return how many columns a new feature or word needs."""
        if kind == DATE:
            return len(DATE_PARTS)
        full = name in self.words and len(self.words[name].columns) >= self.most
        return BUCKETS if full else 1

    def _register(self, name: Hashable, kind: str, word: str) -> None:
        if kind == DATE:
            self.dates[name] = None
        if kind == WORD:
            declared = type(word) is Category
            if name not in self.words and not declared and reads_as_number(word):
                warn_caller(
                    f"feature {name!r} holds texts such as {word!r}: they are taken for the names "
                    f"of categories. Convert them with float() if they are numbers."
                )
            words = list(self.words[name].columns) if name in self.words else []
            full = len(words) >= self.most
            # Replaced as a whole, so that an interrupt leaves the old or the new one.
            self.words[name] = Words.of(name, words if full else [*words, str(word)], full)
        self.busy = bool(self.words or self.dates)

    def siblings(self, new: Sequence[Hashable], names: Mapping[Hashable, int]) -> list[int]:
        """Return, for each new column, the position in `names` of the first column of the same
        feature of words; -1 where there is none.

        A word that is new was absent from the rows that had another word: its column has been 0 as
        often as that one had a value.
        """
        if not self.words:
            return []
        first = {
            name: next(iter(words.zeros)) for words in self.words.values() for name in words.zeros
        }
        return [names.get(first[name], -1) if name in first else -1 for name in new]

    def _encoded(self, table: Table, begin: int, end: int, kinds: dict[int, str]) -> Table:
        """Return some rows in columns of numbers."""
        names: list[Hashable] = []
        parts: list[np.ndarray] = [np.zeros((end - begin, 0))]
        for j, kind in sorted(kinds.items()):
            name = table.names[j]
            if kind == NUMBER:
                names.append(name)
                parts.append(table.values[begin:end, j : j + 1])
            elif kind == DATE:
                names += [f"{name}.{part}" for part in DATE_PARTS]
                missing = np.full(len(table), np.nan)
                parts.append(circles(table.days.get(j, missing)[begin:end]))
            else:
                names += self.words[name].zeros
                words = table.words.get(j, [None] * len(table))[begin:end]
                parts.append(self._indicators(self.words[name], words))
        values = np.concatenate(parts, axis=1)
        rejected = {i - begin: table.rejected[i] for i in table.rejected if begin <= i < end}
        twice = [name for name, times in collections.Counter(names).items() if times > 1]
        if twice:
            keep = [names.index(name) for name in dict.fromkeys(names)]
            names, values = [names[k] for k in keep], values[:, keep]
            reason = f"feature {twice[0]!r} has the name of a column of another feature"
            rejected = dict.fromkeys(range(end - begin), reason) | rejected
        encoded = Table(names, values)
        encoded.rejected |= rejected
        encoded.source = (table, begin)
        return encoded

    def _indicators(self, known: Words, words: list[str | None]) -> np.ndarray:
        index = {word: k for k, word in enumerate(known.columns)}
        found = np.zeros((len(words), len(known.zeros)))
        for i, word in enumerate(words):
            at = None if word is None else index.get(word)
            if at is None and word is not None and known.shared:
                at = len(index) + bucket(word)
            if at is None:
                found[i] = np.nan
            else:
                found[i, at] = 1.0
        return found

    # ---- one row ---------------------------------------------------------------------------

    def plain(self, row: Features) -> dict[Hashable, object] | None:
        """Return a row whose words and dates are known as a row of numbers; `None` for others."""
        found: dict[Hashable, object] = {}
        size = 0
        for name, value in row.items():
            words = self.words.get(name)
            if words is None:
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
                column = words.columns.get(value)
                if column is None:
                    if not words.shared or len(value) > LONGEST:
                        return None
                    column = words.shared[bucket(value)]
                found.update(words.zeros)
                found[column] = 1.0
                size += len(words.zeros)
            elif value is not None:
                return None
        # Fewer where a feature has the name of a column of another one.
        return found if len(found) == size else None

    # ---- checkpoints -----------------------------------------------------------------------

    def to_plain(self) -> dict[str, Any]:
        """Return it as JSON can hold it."""
        return {
            "words": [
                [tagged(name), list(words.columns), bool(words.shared)]
                for name, words in self.words.items()
            ],
            "dates": [tagged(name) for name in self.dates],
        }

    @classmethod
    def from_plain(cls, most: int, plain: dict[str, Any]) -> "Columns":
        """Return what `to_plain` was called on."""
        columns = cls(most)
        for tag, words, shared in plain["words"]:
            fits = all(type(word) is str for word in words) and len(set(words)) == len(words)
            if not fits or type(shared) is not bool or not words:
                raise ValueError(
                    "words of the checkpoint must be texts that differ; the file is damaged."
                )
            name = untagged(tag)
            columns.words[name] = Words.of(name, words, shared)
        columns.dates = {untagged(tag): None for tag in plain["dates"]}
        fits = len(columns.words) == len(plain["words"])
        if not fits or len({*columns.words, *columns.dates}) < sum(map(len, plain.values())):
            raise ValueError(
                "features of words and dates of the checkpoint must differ; the file is damaged."
            )
        columns.busy = bool(columns.words or columns.dates)
        return columns


def _watched(table: Table, kinds: dict[int, str]) -> list[int]:
    """Return the columns of a table that have more than numbers, or are new."""
    more = {*table.words, *table.days}
    return [j for j in range(len(table.names)) if kinds.get(j) != NUMBER or j in more]


def _kind_at(table: Table, row: int, j: int) -> tuple[str, str] | None:
    """Return the kind of a value, and the word; `None` for a missing value."""
    if j in table.words and (word := table.words[j][row]) is not None:
        return WORD, word
    if j in table.days and not math.isnan(table.days[j][row]):
        return DATE, ""
    return None if math.isnan(table.values[row, j]) else (NUMBER, "")


def bucket(word: str) -> int:
    """Return the column that a word shares, the same in every process."""
    return zlib.crc32(word.encode("utf-8", "surrogatepass")) % BUCKETS


def reads_as_number(word: str) -> bool:
    """Return whether a text could be meant as a number."""
    try:
        float(word)
    except ValueError:
        return False
    return True


def circles(days: np.ndarray) -> np.ndarray:
    """Return days since 1970-01-01, a Thursday, and day and week as angles."""
    day, week = 2 * np.pi * (days % 1), 2 * np.pi * ((days + 3) % 7) / 7
    return np.stack([days, np.sin(day), np.cos(day), np.sin(week), np.cos(week)], axis=1)
