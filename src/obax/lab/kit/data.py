"""Data sets of experiments: real where the files are at hand, otherwise generated, or an error that
says what to do."""

import contextlib
from collections.abc import Iterator

from ... import datasets
from ..._support.errors import UserError


def at_hand(name: str) -> bool:
    """Whether the files of a data set are on this machine."""
    entry = next(entry for entry in datasets.DATASETS if entry.name == name)
    return all(path is not None for path in datasets.located(entry).values())


@contextlib.contextmanager
def needed() -> Iterator[None]:
    """Around loading: what is missing becomes a `UserError` that names the way out."""
    try:
        yield
    except datasets.DataError as error:
        raise UserError(
            f"{error} Without the data, --set source=synthetic runs on a generated stand-in."
        ) from error
