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
import heapq
import warnings
import zlib
from collections.abc import Container, Hashable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ..json_codec import tagged, untagged
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

    @classmethod
    def of(cls, name: Hashable, words: list[str], shared: bool) -> "Words":
        """Return the columns of these words."""
        columns = {word: f"{name}={word}" for word in words}
        buckets = [f"{name}#{i}" for i in range(BUCKETS)] if shared else []
        return cls(columns, buckets, dict.fromkeys([*columns.values(), *buckets], 0.0))


class Columns:
    """What the features of a model are, and the columns that stand for words and dates."""

    def __init__(self, most: int):
        self.most = most
        self.words: dict[Hashable, Words] = {}
        self.dates: dict[Hashable, None] = {}
        self.busy = False
        """Whether any feature is more than a number."""
        self.ignored = 0
        """Values without a column in the pieces so far."""

    def copy(self) -> "Columns":
        """Return a copy that shares nothing that changes."""
        other = copy.copy(self)
        other.words, other.dates = dict(self.words), dict(self.dates)
        return other

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
        table, begin = table.copy(), 0
        kinds = self._kinds(table, names)
        wrong: dict[int, int] = {}  # the rows rejected here and the feature that each is wrong in
        for j, kind in kinds.items():
            self._reject_others(table, j, kind, 0, wrong)
        news = News(table)
        for j in range(len(table.names)):
            if kinds.get(j) == WORD:
                known = self.words[table.names[j]]
                if not known.shared:
                    news.add_words(j, 0, known.columns)
            elif j not in kinds:
                news.add(j, 0)
        while room > 0 and (event := news.next(table.rejected)):
            row, j, word = event
            name, is_new = table.names[j], j not in kinds
            kind = news.kind(row, j) if is_new else WORD
            word = table.words[j][row] or "" if kind == WORD else word
            needed = self._needed(name, kind)
            if needed == 0 or needed > room:
                if is_new:
                    news.add(j, row + 1)
                continue
            if row > begin:
                yield self._encoded(table, begin, row, kinds, learn=True)
                begin = row
            room -= needed
            self._register(name, kind, word)
            if is_new:
                kinds[j] = kind
                self._reject_others(table, j, kind, row + 1, wrong)
                if kind == WORD:
                    news.add_words(j, row, self.words[name].columns)
        yield self._encoded(table, begin, len(table), kinds, learn=True)

    def _kinds(self, table: Table, names: Container[Hashable]) -> dict[int, str]:
        """Return what the columns of a table are, of those that the model knows."""
        found = {}
        for j, name in enumerate(table.names):
            if name in self.words:
                found[j] = WORD
            elif name in self.dates:
                found[j] = DATE
            elif name in names:
                found[j] = NUMBER
        return found

    def _reject_others(
        self, table: Table, j: int, kind: str, begin: int, wrong: dict[int, int]
    ) -> None:
        """Reject the rows from `begin` on in which column j is something else. A row that is wrong
        in several features gets the reason of the first of them."""
        for other, there in present(table, j).items():
            if other == kind:
                continue
            for i in (begin + np.flatnonzero(there[begin:])).tolist():
                if i not in table.rejected or j < wrong.get(i, -1):
                    name = table.names[j]
                    value = short(table.row(i)[name])
                    table.rejected[i] = f"feature {name!r} is {value}, not a {kind} as before"
                    wrong[i] = j

    def _needed(self, name: Hashable, kind: str) -> int:
        """Return how many columns something new needs."""
        if kind == DATE:
            return len(DATE_PARTS)
        words = self.words.get(name)
        if words is not None and words.shared:
            return 0
        full = words is not None and len(words.columns) >= self.most
        return BUCKETS if full else 1

    def _register(self, name: Hashable, kind: str, word: str) -> None:
        if kind == DATE:
            self.dates[name] = None
        if kind == WORD:
            declared = type(word) is Category
            if name not in self.words and not declared and reads_as_number(word):
                warnings.warn(
                    f"feature {name!r} holds texts such as {word!r}: they are taken for the names "
                    f"of categories. Convert them with float() if they are numbers.",
                    stacklevel=2,
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

    def _encoded(
        self, table: Table, begin: int, end: int, kinds: dict[int, str], *, learn: bool = False
    ) -> Table:
        """Return some rows in columns of numbers; to `learn`, count values without a column."""
        names: list[Hashable] = []
        parts: list[np.ndarray] = []
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
        values = np.concatenate([np.zeros((end - begin, 0)), *parts], axis=1)
        rejected = {i - begin: table.rejected[i] for i in table.rejected if begin <= i < end}
        if learn:
            self.ignored += self._without(table, begin, end, kinds, rejected)
        twice = [name for name, times in collections.Counter(names).items() if times > 1]
        if twice:
            keep = [names.index(name) for name in dict.fromkeys(names)]
            names, values = [names[k] for k in keep], values[:, keep]
            reason = f"feature {twice[0]!r} has the name of a column of another feature"
            rejected = dict.fromkeys(range(end - begin), reason) | rejected
        return Table.of(names, values, rejected, table, begin)

    def _without(
        self, table: Table, begin: int, end: int, kinds: dict[int, str], rejected: dict[int, str]
    ) -> int:
        """Count the values without a column in rows that are not rejected."""
        taken, count = np.ones(end - begin, bool), 0
        taken[list(rejected)] = False
        for j, name in enumerate(table.names):
            lost = np.zeros(end - begin, bool)
            if j not in kinds:
                for there in present(table, j).values():
                    lost |= there[begin:end]
            elif kinds[j] == WORD and j in table.words and not self.words[name].shared:
                known = {*self.words[name].columns, None}
                lost |= [word not in known for word in table.words[j][begin:end]]
            count += int(np.sum(lost & taken))
        return count

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


class News:
    """The rows of a table in which a feature or a word may come for the first time, in order."""

    def __init__(self, table: Table):
        self._table = table
        self._events: list[tuple[int, int, str]] = []

    def add(self, j: int, begin: int) -> None:
        """Note the first value of a column from row `begin` on, if there is any."""
        there = np.zeros(len(self._table) - begin, bool)
        for mask in present(self._table, j).values():
            there |= mask[begin:]
        if there.any():
            heapq.heappush(self._events, (begin + int(np.argmax(there)), j, ""))

    def add_words(self, j: int, begin: int, known: Container[str]) -> None:
        """Note the first row from `begin` on of each word of a column that is not known."""
        first: dict[str, int] = {}
        for row, word in enumerate(self._table.words.get(j, ())[begin:], begin):
            if word is not None and word not in known:
                first.setdefault(word, row)
        for word, row in first.items():
            heapq.heappush(self._events, (row, j, word))

    def next(self, rejected: Container[int]) -> tuple[int, int, str] | None:
        """Return row, column and word of what comes next in a row that is not rejected."""
        while self._events:
            row, j, word = heapq.heappop(self._events)
            if row not in rejected:
                return row, j, word
            if not word:
                self.add(j, row + 1)
            elif word in (later := self._table.words[j][row + 1 :]):
                heapq.heappush(self._events, (row + 1 + later.index(word), j, word))
        return None

    def kind(self, row: int, j: int) -> str:
        """Return what a value is that is there."""
        return next(kind for kind, there in present(self._table, j).items() if there[row])


def present(table: Table, j: int) -> dict[str, np.ndarray]:
    """Return in which rows a column has a number, a word, a date."""
    found = {NUMBER: ~np.isnan(table.values[:, j])}
    if j in table.words:
        found[WORD] = np.array([word is not None for word in table.words[j]], bool)
    if j in table.days:
        found[DATE] = ~np.isnan(table.days[j])
    return found


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
