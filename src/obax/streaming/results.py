"""The lines that a stream writes, one for each row."""

import json
import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from ..estimators import Played
from .score import Score
from .source import Batch

Result = dict[str, object]
"""What is written about a row, beside its number."""


def results(played: Played, batch: Batch, score: Score) -> Iterator[Result]:
    """Yield the result of each row, and add the rows that were learned to the score."""
    lines = zip(played.rejected, batch.targets, batch.ids, batch.keys, strict=True)
    for i, (reason, target, id, key) in enumerate(lines):
        result: Result = {n: v for n, v in (("id", id), ("key", key)) if v is not None}
        if reason is not None:
            yield result | {"rejected": reason}
            continue
        result |= _prediction(played, i, score.numbers) | _interval(played, i, score.numbers)
        if target is not None:
            result["loss"] = rounded(played.loss[i])
            _add_to_score(result["prediction"], target, played, i, score)
        yield result | {"hyperparameters": rounded(select(played.hyperparameters, i))}


def _prediction(played: Played, row: int, numbers: bool) -> Result:
    prediction = played.predictions[row]
    if numbers:
        return {"prediction": rounded(prediction)}
    if not len(prediction) or not prediction.sum():
        return {"prediction": None, "probability": None}
    best = int(np.argmax(prediction))
    return {"prediction": played.classes[best], "probability": rounded(prediction[best])}


def _interval(played: Played, row: int, numbers: bool) -> Result:
    """Return the interval or the set of classes, if a coverage was requested."""
    if played.intervals is None:
        return {}
    interval = played.intervals[row]
    if numbers:
        return {"low": rounded(interval[0]), "high": rounded(interval[1])}
    return {"set": [label for label in played.classes if label in interval]}


def _add_to_score(prediction: object, target: Any, played: Played, row: int, score: Score) -> None:
    error = float(prediction != target)
    if score.numbers:
        error = float(played.predictions[row]) - float(target)
    covered = False
    if played.intervals is not None:
        interval = played.intervals[row]
        inside = interval[0] <= target <= interval[1] if score.numbers else target in interval
        covered = bool(inside)
    score.add(error, covered)


def select(values: Any, index: int | slice) -> Any:
    """Index an array, or each array of a dict of them."""
    if isinstance(values, dict):
        return {name: select(item, index) for name, item in values.items()}
    return values[index]


def rounded(value: Any) -> Any:
    """Round numbers to six digits: enough to read, and the same text on every machine."""
    if isinstance(value, dict):
        return {str(name): rounded(item) for name, item in value.items()}
    if isinstance(value, np.ndarray | list):
        return [rounded(item) for item in value]
    return float(f"{float(value):.6g}") if math.isfinite(value) else None


def to_json(result: Result) -> str:
    """Return a line of standard JSON, which has no NaN: labels and ids may hold one."""
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
