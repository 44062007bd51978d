"""What is written of each row, as plain values for JSON."""

import json
import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from ..estimators import Played
from .score import Score
from .source import Batch

if TYPE_CHECKING:
    import pandas as pd

Result = dict[str, object]
"""What is written of a row, beside its number."""


def results(played: Played, batch: Batch, score: Score) -> Iterator[Result]:
    """Of each row in turn; those that were learned go into the score."""
    lines = zip(played.rejected, batch.targets, batch.ids, batch.keys, strict=True)
    for i, (reason, target, id, key) in enumerate(lines):
        known = {"id": id, "key": key}
        named: Result = {name: value for name, value in known.items() if value is not None}
        if reason is not None:
            yield named | {"rejected": reason}
            continue
        said = _prediction(played, i, score.numbers) | _range(played, i, score.numbers)
        if target is not None:
            said["loss"] = rounded(played.loss[i])
            _note(said["prediction"], target, played, i, score)
        yield named | said | {"hyperparameters": rounded(at(played.hyperparameters, i))}


def _prediction(played: Played, row: int, numbers: bool) -> Result:
    found = played.predictions[row]
    if numbers:
        return {"prediction": rounded(found)}
    if not len(found) or not found.sum():
        return {"prediction": None, "probability": None}
    best = int(np.argmax(found))
    return {"prediction": played.classes[best], "probability": rounded(found[best])}


def _range(played: Played, row: int, numbers: bool) -> Result:
    """The interval, or the set of classes, if one was asked for."""
    if played.intervals is None:
        return {}
    found = played.intervals[row]
    if numbers:
        return {"low": rounded(found[0]), "high": rounded(found[1])}
    return {"set": [label for label in played.classes if label in found]}


def _note(said: object, target: Any, played: Played, row: int, score: Score) -> None:
    """The row into the score."""
    error = float(said != target)
    if score.numbers:
        error = float(played.predictions[row]) - float(target)
    covered = False
    if played.intervals is not None:
        found = played.intervals[row]
        covered = bool(found[0] <= target <= found[1]) if score.numbers else target in found
    score.add(error, covered)


def tenants(table: "pd.DataFrame", count: int) -> dict[str, Any]:
    """The worst keys of a pool, for `obax watch`: a head, and a list of cells for each."""
    cells = [
        [str(line["key"]), int(line["rows"]), *(rounded(line[name]) for name in table.columns[2:])]
        for line in table.to_dict("records")
    ]
    return {"count": count, "head": list(table.columns), "cells": cells}


def at(values: Any, index: int | slice) -> Any:
    """These entries of an array, or of each array of a dict of them."""
    if isinstance(values, dict):
        return {name: at(item, index) for name, item in values.items()}
    return values[index]


def rounded(value: Any) -> Any:
    """Six figures: enough to read, and the same text everywhere."""
    if isinstance(value, dict):
        return {str(name): rounded(item) for name, item in value.items()}
    if isinstance(value, np.ndarray | list):
        return [rounded(item) for item in value]
    return float(f"{float(value):.6g}") if math.isfinite(value) else None


def as_json(result: Result) -> str:
    """A line that every reader of JSON takes: labels and ids may hold NaN, which JSON has not."""
    try:
        return json.dumps(result, allow_nan=False)
    except ValueError:
        return json.dumps(_finite(result))


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _finite(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
