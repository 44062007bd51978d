"""What a column of a table is: numbers, words or dates. Its first value decides."""

import zlib

import numpy as np

from .table import Table, short

NUMBER, WORD, DATE = "number", "word", "date"
BUCKETS = 16
"""Columns that the words beyond `max_categories` of a feature share."""


def settle(table: Table, known: dict[int, str]) -> dict[int, str]:
    """What every column is, as `known` or by its first value; rows in which one is something else
    are rejected. A column in which all is missing is nothing yet."""
    values = {j: present(table, j) for j in range(len(table.names))}
    while True:
        kinds, still = dict(known), learned(table)
        for j, by_kind in values.items():
            firsts = {kind: first(rows & still) for kind, rows in by_kind.items()}
            if j not in known and min(firsts.values()) < len(table):
                kinds[j] = min(firsts, key=firsts.__getitem__)
        wrong = [
            (i, j)
            for j, kind in kinds.items()
            for other, rows in values[j].items()
            if other != kind
            for i in np.flatnonzero(rows & still).tolist()
        ]
        for i, j in wrong:
            name = table.names[j]
            value = short(table.row(i)[name])
            reason = f"feature {name!r} is {value}, not a {kinds[j]} as before"
            table.rejected.setdefault(i, reason)
        # A row that is rejected decides nothing: look again at what it may have decided.
        if not wrong:
            return kinds


def learned(table: Table) -> np.ndarray:
    """Which rows are not rejected."""
    found = np.ones(len(table), bool)
    found[list(table.rejected)] = False
    return found


def present(table: Table, j: int) -> dict[str, np.ndarray]:
    """In which rows a column has a number, a word, a date."""
    absent = np.zeros(len(table), bool)
    words, days = table.words.get(j), table.days.get(j)
    return {
        NUMBER: ~np.isnan(table.values[:, j]),
        WORD: absent if words is None else np.array([word is not None for word in words], bool),
        DATE: absent if days is None else ~np.isnan(days),
    }


def first(rows: np.ndarray) -> int:
    """The first that holds; their number where none does."""
    return int(np.argmax(rows)) if rows.any() else len(rows)


def bucket(word: str) -> int:
    """The column that a word shares, the same in every process."""
    return zlib.crc32(word.encode("utf-8", "surrogatepass")) % BUCKETS


def reads_as_number(word: str) -> bool:
    """Whether a text could be meant as a number."""
    try:
        float(word)
    except ValueError:
        return False
    return True


def circles(days: np.ndarray) -> np.ndarray:
    """Days since 1970-01-01, a Thursday, and day and week as angles."""
    day, week = 2 * np.pi * (days % 1), 2 * np.pi * ((days + 3) % 7) / 7
    return np.stack([days, np.sin(day), np.cos(day), np.sin(week), np.cos(week)], axis=1)
