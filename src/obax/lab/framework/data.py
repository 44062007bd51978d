"""Data sets of experiments: real if the files are on this machine, otherwise generated."""

import contextlib
from collections.abc import Iterator

from ... import datasets
from ..._support.messages import UserError


def is_on_this_machine(name: str) -> bool:
    """Return whether the files of a data set are on this machine."""
    entry = next(entry for entry in datasets.DATASETS if entry.name == name)
    return all(path is not None for path in datasets.located(entry).values())


@contextlib.contextmanager
def missing_data_as_user_error() -> Iterator[None]:
    """Turn an error about missing data into a `UserError` that names the generated stand-in."""
    try:
        yield
    except datasets.DataError as error:
        raise UserError(
            f"{error} Without the data, --set source=synthetic runs on a generated stand-in."
        ) from error
