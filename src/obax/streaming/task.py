"""A guess whether a target is a number or the name of a class."""

import contextlib
import dataclasses
import warnings
from pathlib import Path

from .parquet import ParquetSource
from .source import MAX_BATCH, Input, Source

MANY = 20
"""Targets that are numbers with more different values than this are a regression."""


def guess_task(input: Input) -> tuple[str, str]:
    """Return `"regress"` or `"classify"` by the first rows of a file, and why.

    A target whose values are all numbers is one if there are many different ones, or fractions.
    """
    kind = ParquetSource if input.format == "parquet" else Source
    source = kind(dataclasses.replace(input, continues=False), numeric=True)
    assert isinstance(input.source, Path)
    with contextlib.closing(source), warnings.catch_warnings():
        # The job meets the same rows and warns itself.
        warnings.simplefilter("ignore")
        values = [y for y in source.take(MAX_BATCH).targets if y is not None and y == y]
    different = set(map(str, values))
    numbers = [y for y in values if isinstance(y, int | float) and not isinstance(y, bool)]
    if not values or len(numbers) < len(values):
        return "classify", "its values are words"
    if len(different) > MANY or any(y % 1 for y in numbers):
        return "regress", f"its values are numbers, {len(different)} different ones at first"
    return "classify", f"its values are {len(different)} different numbers"
