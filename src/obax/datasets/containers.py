"""The classes that loaders return, and how rows are split and standardised."""

import dataclasses
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

Array = np.ndarray[Any, Any]


@dataclasses.dataclass(frozen=True)
class Images:
    """Images in bytes with their labels, as the publisher split them."""

    train_inputs: Array
    train_labels: Array
    test_inputs: Array
    test_labels: Array
    classes: int
    name: str


@dataclasses.dataclass(frozen=True)
class Split:
    """Training, validation and test rows: `float32` inputs and `int32` labels 0..classes-1.

    `synthetic` is true where the rows were generated; `name` then ends in "(synthetic)".
    """

    train_inputs: Array
    train_labels: Array
    valid_inputs: Array
    valid_labels: Array
    test_inputs: Array
    test_labels: Array
    classes: int
    name: str
    synthetic: bool = False


@dataclasses.dataclass(frozen=True, kw_only=True)
class Tabular(Split):
    """A `Split` whose inputs are rows of named features."""

    features: tuple[str, ...]


def shares(total: int, counts: Array) -> Array:
    """Divide `total` in proportion to `counts`, in integers, by largest remainder."""
    exact = total * counts / counts.sum()
    rounded = np.floor(exact).astype(np.int64)
    # A stable sort breaks ties by the class number.
    order = np.argsort(-(exact - rounded), kind="stable")
    rounded[order[: total - int(rounded.sum())]] += 1
    return rounded


def split_rows(labels: Array, classes: int, seed: int) -> tuple[Array, Array, Array]:
    """Return indices of training, validation and test rows: a tenth for the test, the rest halved.

    Stratified: every part has the classes in the same proportions. A row that is left over goes to
    the test, then to validation.
    """
    rng = np.random.default_rng([seed, 0])
    shuffled = [rng.permutation(np.flatnonzero(labels == label)) for label in range(classes)]
    sizes = np.array([len(rows) for rows in shuffled])
    for_test = shares(-(-len(labels) // 10), sizes)
    rest = sizes - for_test
    for_training = shares(int(rest.sum()) // 2, rest)
    parts = [
        np.split(rows, [k, k + m])
        for rows, k, m in zip(shuffled, for_test, for_training, strict=True)
    ]
    test, train, valid = (np.concatenate(part) for part in zip(*parts, strict=True))
    return rng.permutation(train), rng.permutation(valid), rng.permutation(test)


def tabular(
    values: Array,
    labels: Array,
    *,
    features: tuple[str, ...],
    classes: int,
    name: str,
    seed: int,
    synthetic: bool = False,
) -> Tabular:
    """Split the rows, replace missing values by medians, and standardise.

    Medians, means and deviations are those of the training rows alone.
    """
    parts = split_rows(labels, classes, seed)
    seen = values[parts[0]]
    if empty := [f for f, column in zip(features, seen.T, strict=True) if np.isnan(column).all()]:
        raise ValueError(f"{name}: no training row has a value of {', '.join(empty)}.")
    medians = np.nanmedian(seen, axis=0)
    filled = [np.where(np.isnan(values[rows]), medians, values[rows]) for rows in parts]
    mean, deviation = filled[0].mean(axis=0), filled[0].std(axis=0)
    deviation[deviation == 0] = 1.0
    train, valid, test = (
        (((part - mean) / deviation).astype(np.float32), labels[rows].astype(np.int32))
        for part, rows in zip(filled, parts, strict=True)
    )
    return Tabular(*train, *valid, *test, classes, name, synthetic, features=features)


def checked_labels(values: ArrayLike, classes: int, name: str) -> Array:
    """Return a vector of integer labels, checked to be in 0..classes-1."""
    array = np.asarray(values)
    if array.ndim != 1 or not np.issubdtype(array.dtype, np.integer):
        raise ValueError(
            f"{name} must be a vector of integers, but is {array.dtype}{list(array.shape)}."
        )
    outside = np.unique(array[(array < 0) | (array >= classes)])
    if len(outside):
        raise ValueError(
            f"{name} must be in 0..{classes - 1}, but holds {', '.join(map(str, outside[:5]))}."
        )
    return array


def checked_proportions(values: ArrayLike, name: str) -> Array:
    """Return numbers >= 0, not all 0, scaled to sum to 1."""
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != 1 or not np.isfinite(array).all() or (array < 0).any() or not array.sum() > 0:
        raise ValueError(f"{name} must be a vector of numbers >= 0, not all 0, but got {values!r}.")
    return array / array.sum()
