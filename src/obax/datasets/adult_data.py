"""UCI Adult: census rows, and whether the income is over 50K."""

from pathlib import Path

import numpy as np

from . import argument_checks, registry
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


def adult(*, seed: int = 0, verify: bool = True) -> Tabular:
    """UCI Adult as in the paper: 45,175 rows of 11 features; class 1 earns over 50K.

    Both files together, without rows that hold "?" and then without exact duplicates;
    education-num, capital-gain and capital-loss are left out, categories become integers in sorted
    order. A tenth is for the test, of the rest one half for training, the other for validation
    (20,328, 20,329 and 4,518 rows), stratified and drawn by `seed`. All features are standardised
    by the training rows.
    """
    argument_checks.at_least(seed, 0, "seed")
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
    """The rows of a file, each a tuple of words; the dot after test labels taken away."""
    rows = []
    for number, line in enumerate(registry.text(path).splitlines(), 1):
        # adult.test begins with a line that is no row; both files end with an empty one.
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
