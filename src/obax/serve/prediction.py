"""What is predicted for the rows of a request, and how it is answered."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..estimators import Pool, StreamingRegressor
from .protocol import ModelRequest, tensor


@dataclasses.dataclass(frozen=True)
class Prediction:
    """The predictions of some rows."""

    values: list[Any]
    classes: Sequence[Any] = ()
    details: dict[str, np.ndarray] = dataclasses.field(default_factory=dict)
    """`"probabilities"` and `"set"`, with a column for each class, and `"interval"`, with two."""

    def answer(self, request: ModelRequest) -> dict[str, Any]:
        """Return tensors, or plain values, as the rows came."""
        if request.form == "inputs":
            return {"outputs": self._tensors()}
        lines = [self._plain(row) for row in range(len(self.values))]
        return lines[0] if request.form == "row" else {"predictions": lines}

    def _tensors(self) -> list[dict[str, Any]]:
        outputs = [tensor("prediction", self.values)]
        for name, array in self.details.items():
            outputs.append(tensor(name, array))
            if name != "interval":
                outputs[-1]["parameters"] = {"classes": list(self.classes)}
        return outputs

    def _plain(self, row: int) -> dict[str, Any]:
        line: dict[str, Any] = {"prediction": self.values[row]}
        for name, array in self.details.items():
            cells = array[row].tolist()
            if name == "probabilities":
                line[name] = dict(zip(map(str, self.classes), cells, strict=True))
            elif name == "set":
                pairs = zip(self.classes, cells, strict=True)
                line[name] = [label for label, inside in pairs if inside]
            else:
                line[name] = cells
        return line


def predict(model: Any, arguments: tuple[Any, ...], coverage: float | None) -> Prediction:
    """Return what a model predicts; `arguments` are rows, and for a pool the keys before them."""
    pool = isinstance(model, Pool)
    if pool and coverage is not None:
        raise ValueError("coverage is for one model, not for a pool.")
    rows = arguments[-1]
    if isinstance(model.model if pool else model, StreamingRegressor):
        values = [float(value) for value in model.predict_many(*arguments)]
        if coverage is None:
            return Prediction(values)
        intervals = model.predict_interval_many(rows, coverage).to_numpy()
        return Prediction(values, details={"interval": intervals})
    if not pool and isinstance(rows, list) and len(rows) == 1:
        chances = model.predict_proba_one(rows[0])
        chances.pop(None, None)
        classes, table = list(chances), np.array([list(chances.values())])
    else:
        frame = model.predict_proba_many(*arguments)
        classes, table = list(frame.columns), frame.to_numpy()
    best: list[Any] = [None] * len(table)
    if classes:
        # A key that has learned nothing has no chance of any class.
        learned: list[bool] = np.any(table, axis=1).tolist()
        columns = zip(table.argmax(axis=1).tolist(), learned, strict=True)
        best = [classes[i] if known else None for i, known in columns]
    details = {"probabilities": table}
    if coverage is not None:
        sets = model.predict_set_many(rows, coverage)
        details["set"] = np.array([[label in one for label in classes] for one in sets], bool)
    return Prediction(best, classes, details)
