"""UCI Adult: census rows, and whether the income is over 50K."""

from pathlib import Path

import numpy as np

from .._support.checks import NonNegativeInt, checked
from . import registry
from .containers import Tabular, tabular
from .downloads import DataError

HEADER = (
    "age,workclass,fnlwgt,education,education-num,marital-status,occupation,relationship,race,sex,"
    "capital-gain,capital-loss,hours-per-week,native-country,income"
)
COLUMNS = tuple(HEADER.split(","))
NUMBERS = ("age", "fnlwgt", "hours-per-week")
DROPPED = ("education-num", "capital-gain", "capital-loss")
FEATURES = tuple(column for column in COLUMNS[:-1] if column not in DROPPED)
CLASSES = {"<=50K": 0, ">50K": 1}


@checked
def adult(*, seed: NonNegativeInt = 0, verify: bool = True) -> Tabular:
    """Load UCI Adult as in the paper: 45,175 rows of 11 features; class 1 earns over 50K.

    The rows are those of both files, without rows that have a "?" and without exact duplicates;
    education-num, capital-gain and capital-loss are left out, and categories become integers in
    sorted order. A tenth is for the test, the rest is halved for training and validation (20,328,
    20,329 and 4,518 rows), stratified and drawn by `seed`. Features are standardised by the
    training rows.
    """
    paths = registry.fetch("adult", verify=verify)
    rows = [row for path in paths.values() for row in _rows(path)]
    rows = list(dict.fromkeys(row for row in rows if "?" not in row))
    if not rows:
        raise DataError(f"{', '.join(map(str, paths.values()))} have no row without '?'.")
    columns = dict(zip(COLUMNS, zip(*rows, strict=True), strict=True))
    values = np.empty((len(rows), len(FEATURES)))
    for j, feature in enumerate(FEATURES):
        if feature in NUMBERS:
            values[:, j] = np.array(columns[feature], dtype=np.float64)
        else:
            values[:, j] = np.unique(columns[feature], return_inverse=True)[1]
    labels = np.array([CLASSES[income] for income in columns["income"]])
    return tabular(values, labels, features=FEATURES, classes=2, name="Adult", seed=seed)


def _rows(path: Path) -> list[tuple[str, ...]]:
    """Return the rows of a file as tuples of words, without the dot after labels of the test."""
    rows = []
    for number, line in enumerate(registry.text(path).splitlines(), 1):
        # adult.test begins with a comment; both files end with an empty line.
        if not line.strip() or line.startswith("|"):
            continue
        row = tuple(word.strip() for word in line.split(","))
        row = (*row[:-1], row[-1].removesuffix("."))
        expected = ""
        if len(row) != len(COLUMNS) or row[-1] not in CLASSES:
            expected = f"{len(COLUMNS)} values, the last <=50K or >50K"
        elif not all(row[COLUMNS.index(name)].isdigit() for name in NUMBERS):
            expected = f"whole numbers for {', '.join(NUMBERS)}"
        if expected:
            raise DataError(f"line {number} of {path} must have {expected}, but is {line[:80]!r}.")
        rows.append(row)
    return rows
