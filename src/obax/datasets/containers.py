"""What the loaders give, and how rows are split and standardised."""

import dataclasses
from typing import Any

import numpy as np

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

    `synthetic` says that the rows were generated; then `name` says so too.
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
    """`total` divided in proportion to `counts`, in whole numbers, by largest remainder."""
    exact = total * counts / counts.sum()
    whole = np.floor(exact).astype(np.int64)
    # A stable sort breaks ties by the class number.
    order = np.argsort(-(exact - whole), kind="stable")
    whole[order[: total - int(whole.sum())]] += 1
    return whole


def split_rows(labels: Array, classes: int, seed: int) -> tuple[Array, Array, Array]:
    """Indices of training, validation and test rows: a tenth for the test, the rest in halves.

    Stratified: every part has the classes in the proportions of the whole. A row that cannot be
    divided goes to the test, then to validation.
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
    """Split, fill what is missing, standardise.

    Medians, means and deviations are those of the training rows: the other rows stay unseen.
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
