"""Parts of messages to people. This module imports nothing that takes time to load."""

import difflib
from collections.abc import Iterable


class UserError(Exception):
    """Something a person can mend. The command line prints the message and exits with code 2."""


def nearest(word: str, choices: Iterable[str], cutoff: float = 0.6) -> str:
    """` Did you mean ...?` for a word that is none of the choices, or nothing."""
    close = difflib.get_close_matches(word, list(choices), n=1, cutoff=cutoff)
    return f" Did you mean {close[0]!r}?" if close else ""


def counted(number: int, noun: str, plural: str = "") -> str:
    """So many of them, as one writes it.

    >>> counted(1, "round"), counted(12000, "round"), counted(0, "class", "classes")
    ('1 round', '12,000 rounds', '0 classes')
    """
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"
