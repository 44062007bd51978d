"""Errors that are a person's to mend, and the word they may have meant."""

import difflib
from collections.abc import Iterable


class UserError(Exception):
    """Something a person can mend. The command line prints the message and exits with code 2."""


def nearest(word: str, choices: Iterable[str], cutoff: float = 0.6) -> str:
    """` Did you mean ...?` for a word that is none of the choices, or nothing."""
    close = difflib.get_close_matches(word, list(choices), n=1, cutoff=cutoff)
    return f" Did you mean {close[0]!r}?" if close else ""
