"""Rows on their way into a shard, and what was said of them on their way out."""

import dataclasses

import numpy as np

from ..kernel import Plan
from ..options import Options


@dataclasses.dataclass
class Lines:
    """Some rows of the keys of a shard."""

    keys: np.ndarray
    values: np.ndarray
    """The pool's features, a column each, NaN where one is missing."""
    targets: np.ndarray
    """Numbers, or the pool's numbers of classes."""
    labelled: np.ndarray
    """Whether there is a target."""
    weights: np.ndarray
    """0 for rows that are not to be learned."""
    rejected: np.ndarray
    """Whether a row was rejected before it came here; it is predicted and not learned."""
    classes: int
    """That the pool knows; 0 for regression."""

    def __len__(self) -> int:
        return len(self.keys)

    def __getitem__(self, rows: slice) -> "Lines":
        return Lines(
            self.keys[rows],
            self.values[rows],
            self.targets[rows],
            self.labelled[rows],
            self.weights[rows],
            self.rejected[rows],
            self.classes,
        )

    @property
    def features(self) -> int:
        """That the pool knew when these rows were read."""
        return self.values.shape[1]


@dataclasses.dataclass
class Said:
    """What came of rows; written by one shard after the other."""

    predictions: np.ndarray
    """Regression: a number for each. Classes: probabilities, a column for each that the pool
    knows; 0 for one that the model of the row does not know."""
    loss: np.ndarray
    lost: np.ndarray
    """Whether the kernel rejected a row."""
    plan: Plan
    """What stands where in x."""
    x: np.ndarray | None
    """And the members' shares behind it, after each row; `None` where nobody asked."""

    @classmethod
    def empty(cls, options: Options, size: int, features: int, classes: int, trace: bool) -> "Said":
        """Before anything was said of so many rows."""
        plan = options.plan(features, classes)
        shape = (size, classes) if options.classify else (size,)
        x = np.full((size, plan.trail), np.nan) if trace else None
        return cls(np.zeros(shape), np.zeros(size), np.zeros(size, bool), plan, x)

    def __getitem__(self, rows: slice) -> "Said":
        """A view."""
        x = None if self.x is None else self.x[rows]
        return Said(self.predictions[rows], self.loss[rows], self.lost[rows], self.plan, x)

    def fill(self, rows: np.ndarray, other: "Said") -> None:
        """What a shard said of these rows."""
        self.predictions[rows], self.loss[rows] = other.predictions, other.loss
        self.lost[rows] = other.lost
        if self.x is not None:
            self.x[rows] = other.x

    def trace(
        self, at: np.ndarray, trail: np.ndarray, plan: Plan, order: np.ndarray, known: np.ndarray
    ) -> None:
        """x and shares of some rows, from a smaller plan with classes, as many as are known, in an
        order of its own."""
        assert self.x is not None
        for name, (begin, end) in plan.spans.items():
            first, last = self.plan.spans[name]
            if name in ("class_weights", "logit_shifts"):
                for own in range(int(known.max(initial=0))):
                    # One that another thread has brought since has no place.
                    who = (known > own) & (order[:, own] < last - first)
                    self.x[at[who], first + order[who, own]] = trail[who, begin + own]
            else:
                width = min(end - begin, last - first)
                self.x[at[:, None], first + np.arange(width)] = trail[:, begin : begin + width]
        shares = self.plan.width + np.arange(plan.members)
        self.x[at[:, None], shares] = trail[:, plan.width :]
