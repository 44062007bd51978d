"""A stream in memory, and the scores of what was said of it."""

import dataclasses
import functools
import hashlib
import json

import numpy as np

LEAST = 1e-15
"""Probabilities are clipped here before the logarithm."""
Row = dict[str, float]


@dataclasses.dataclass(frozen=True)
class Stream:
    """Rows and targets in their order; labels are 0, 1, ... in the order of their appearance."""

    name: str
    kind: str
    """`"classes"` or `"regression"`."""
    rows: list[Row]
    y: np.ndarray

    @property
    def classes(self) -> int:
        """How many there are; 0 for regression."""
        return int(self.y.max()) + 1 if self.kind == "classes" else 0

    @functools.cached_property
    def sparse(self) -> bool:
        """Whether rows have different names, as bags of words do."""
        first = self.rows[0].keys()
        return any(row.keys() != first for row in self.rows)

    @functools.cached_property
    def X(self) -> np.ndarray:
        """The rows as an array, for streams that are not sparse."""
        return np.array([list(row.values()) for row in self.rows])

    @functools.cached_property
    def digest(self) -> str:
        """Eight letters that change with the stream."""
        text = json.dumps([self.rows, self.y.tolist()])
        return hashlib.sha256(text.encode()).hexdigest()[:8]

    @property
    def data(self) -> list[Row] | np.ndarray:
        """What a model takes in bulk."""
        return self.rows if self.sparse else self.X

    def score(self, said: np.ndarray) -> dict[str, float]:
        """Mean loss of what was said of each row before it was learned. Classes: log loss of
        probabilities (rows, classes), and accuracy; the first row of each class, which nobody can
        foresee, does not count. Regression: mean squared error, its root, and in units of the
        variance of the target."""
        said = np.asarray(said, float)
        if self.kind == "regression":
            with np.errstate(over="ignore"):
                error = np.where(np.isfinite(said), (self.y - said) ** 2, np.inf).mean()
            return {
                "loss": float(error),
                "rmse": float(np.sqrt(error)),
                "unexplained": float(error / self.y.var()),
            }
        count = np.arange(len(self.y))
        seen = np.ones(len(self.y), bool)
        seen[np.unique(self.y, return_index=True)[1]] = False
        given = np.nan_to_num(said[count, self.y], nan=0.0)
        loss = -np.log(np.clip(given, LEAST, 1))
        right = np.nan_to_num(said, nan=0.0).argmax(axis=1) == self.y
        return {"loss": float(loss[seen].mean()), "accuracy": float(right[seen].mean())}
