"""What the kernel works on: three flat vectors, and `sizes`, which says how they are cut.

- `vector`: all that the next row needs of the rows before; what a checkpoint keeps;
- `work`: settings, and what can be computed again from `vector`: factors and centres, which a
  prediction and the learning of the row share;
- `record`: see `history`.
"""

import dataclasses
import functools
import math
from collections.abc import Mapping

import numpy as np

SIGMOID, SOFTMAX, SQUARED, HUBER = range(4)
# Positions in `sizes`, first of plain numbers, ...
FEATURES, OUTPUTS, CLASSES, LOSS, PENALTIES, LEARNED, BALANCE, STEPS = range(8)
# ... then where the parts of `vector` begin, ...
VECTOR_PARTS = (
    "rows",  # learned so far
    "x",  # logarithms of the hyperparameters
    "mean",  # running mean of the hypergradient
    "square",  # ... and of its square
    "weights",
    "curvature",
    "curvature_slope",  # d curvature / d (learned entries of x), but penalties of single features
    "sensitivity",  # d weights / d (learned entries of x)
    "counts",  # rows in the statistics of each feature
    "averages",
    "variances",
    "target_count",
    "target_average",
    "target_variance",
    "doubtful",  # values of each feature that are put aside: see `statistics`
    "target_doubtful",
    "frequency",  # of each class
)
(
    ROWS,
    X,
    MEAN,
    SQUARE,
    WEIGHTS,
    CURVATURE,
    CURVATURE_SLOPE,
    SENSITIVITY,
    COUNTS,
    AVERAGES,
    VARIANCES,
    TARGET_COUNT,
    TARGET_AVERAGE,
    TARGET_VARIANCE,
    DOUBTFUL,
    TARGET_DOUBTFUL,
    FREQUENCY,
    VECTOR_END,
) = range(8, 26)
# ... then the parts of `work`, and last the learned entries of x.
(
    FRESH,  # 1 while what follows HIGH belongs to `vector`
    SETTINGS,
    LOW,
    HIGH,
    FIRST,  # a Cholesky factor; L itself for conjugate gradients
    SECOND,  # the other factor
    CENTRE,
    DRAWN,
    RIDGE,
    WORK_END,
    ENTRIES,
) = range(26, 37)
# Positions in the settings.
STEP_SIZE, FADING, SCALE_MEMORY, DELTA = range(4)
DOUBTS = 10
"""So many values the statistics put aside."""

BOUNDS = {
    "penalty": (1e-7, 1e3),
    "inertia": (1e-3, 1e4),
    "memory": (1.0, 1e6),
    "class_weights": (1e-3, 1e3),
    "logit_shifts": (math.exp(-10), math.exp(10)),
}
"""Of the hyperparameters, of which x holds the logarithms in this order."""


@dataclasses.dataclass(frozen=True)
class Plan:
    """The sizes of a model: how many features and classes, what is learned, how systems are
    solved. `loss` is `"logistic"`, `"squared"` or `"huber"`; `classes` is 0 for regression."""

    features: int
    loss: str
    classes: int = 0
    learned: tuple[str, ...] = ("penalty", "inertia", "memory")
    per_feature: bool = False
    balance: bool = False
    steps: int = 0
    """Of conjugate gradients; 0 for Cholesky factors."""

    @property
    def slots(self) -> int:
        """For classes: two at least."""
        return max(2, self.classes) if self.loss == "logistic" else 0

    @property
    def outputs(self) -> int:
        """One for two classes and for regression, otherwise one for each class."""
        return self.slots if self.slots > 2 else 1

    @property
    def width(self) -> int:
        """The entries of x."""
        return next(reversed(self.spans.values()))[1]

    @functools.cached_property
    def spans(self) -> dict[str, tuple[int, int]]:
        """Where in x each hyperparameter stands."""
        penalties = self.features if self.per_feature else 1
        sizes = dict(zip(BOUNDS, (penalties, 1, 1, self.slots, self.slots), strict=True))
        ends = np.cumsum(list(sizes.values())).tolist()
        return {n: (end - size, end) for (n, size), end in zip(sizes.items(), ends, strict=True)}

    @functools.cached_property
    def entries(self) -> np.ndarray:
        """Indices into x of what is learned."""
        spans = [np.arange(*span) for name, span in self.spans.items() if name in self.learned]
        return np.concatenate([np.zeros(0, np.int64), *spans])

    @property
    def plain(self) -> int:
        """Learned entries of x, the first ones, of which it is neglected that they move the
        curvature: penalties of single features, for which that would be d^3 numbers."""
        return int(np.sum(self.entries < self.spans["penalty"][1])) if self.per_feature else 0

    @functools.cached_property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Of the parts of a vector."""
        f, n, lines = self.features, len(self.entries), (self.outputs, self.features + 1)
        square = (*lines, self.features + 1)
        shapes: tuple[tuple[int, ...], ...] = (
            *((), (self.width,), (n,), (n,), lines, square, (n - self.plain, *square), (n, *lines)),
            *((f,), (f,), (f,), (), (), (), (f, 1 + DOUBTS), (1 + DOUBTS,), (self.slots,)),
        )
        return dict(zip(VECTOR_PARTS, shapes, strict=True))

    @functools.cached_property
    def sizes(self) -> np.ndarray:
        """All of it, as the kernel reads it."""
        kind = {"logistic": SIGMOID, "squared": SQUARED, "huber": HUBER}[self.loss]
        kind = SOFTMAX if self.outputs > 1 else kind
        penalties = self.spans["penalty"][1]
        n, k, d = len(self.entries), self.outputs, self.features + 1
        lengths = [math.prod(shape) for shape in self.shapes.values()]
        square = k * d * d
        second = 0 if self.steps else square
        work = [1, 4, self.width, self.width, square, second, k * d, k * d, d]
        numbers = (self.features, k, self.slots, kind, penalties, n, self.balance, self.steps)
        offsets = [np.cumsum([0, *lengths]), np.cumsum([0, *work]), self.entries]
        return np.concatenate([np.array(numbers, np.int64), *offsets])

    def parts(self, vector: np.ndarray) -> dict[str, np.ndarray]:
        """The vector's parts by name, as views of it."""
        found = {}
        for at, (name, shape) in enumerate(self.shapes.items(), ROWS):
            begin, end = self.sizes[at], self.sizes[at + 1]
            found[name] = vector[begin:end].reshape(shape)
        return found

    def start(self, hyperparameters: Mapping[str, float]) -> np.ndarray:
        """The vector before the first row."""
        vector = np.zeros(self.sizes[VECTOR_END])
        x = self.parts(vector)["x"]
        for name, value in hyperparameters.items():
            x[slice(*self.spans[name])] = math.log(value)
        return vector

    def work(self, settings: tuple[float, float, float, float]) -> np.ndarray:
        """Room for the kernel: step size, fading, memory of the statistics, delta."""
        work = np.zeros(self.sizes[WORK_END])
        work[self.sizes[SETTINGS] : self.sizes[LOW]] = settings
        for name, span in self.spans.items():
            for at, bound in zip((LOW, HIGH), BOUNDS[name], strict=True):
                work[self.sizes[at] + span[0] : self.sizes[at] + span[1]] = math.log(bound)
        return work

    def places(self, old: "Plan") -> np.ndarray:
        """Where in x the entries of a smaller plan went."""
        return np.concatenate(
            [
                self.spans[name][0] + np.arange(stop - start)
                for name, (start, stop) in old.spans.items()
            ]
        )

    def grown(
        self, old: "Plan", vector: np.ndarray, hyperparameters: Mapping[str, float]
    ) -> np.ndarray:
        """The vector of a smaller plan with room for more features or classes.

        The weights of new features are 0. Two classes with one logit z become logits (-z/2, z/2).
        """
        found = self.start(hyperparameters)
        new, before = self.parts(found), old.parts(vector)
        places = self.places(old)
        new["x"][places] = before["x"]
        learned = np.searchsorted(self.entries, places[old.entries])
        for name in ("mean", "square"):
            new[name][learned] = before[name]
        columns = np.append(np.arange(old.features), self.features)
        share = np.array([-0.5, 0.5]) if self.outputs > old.outputs == 1 else np.ones(old.outputs)
        lines = np.arange(len(share))
        new["weights"][np.ix_(lines, columns)] = share[:, None] * before["weights"]
        new["curvature"][np.ix_(lines, columns, columns)] = before["curvature"]
        tilts = learned[old.plain :] - self.plain
        new["curvature_slope"][np.ix_(tilts, lines, columns, columns)] = before["curvature_slope"]
        moved = share[:, None] * before["sensitivity"]
        new["sensitivity"][np.ix_(learned, lines, columns)] = moved
        for name in ("counts", "averages", "variances", "doubtful", "frequency"):
            new[name][: len(before[name])] = before[name]
        for name in ("rows", *(name for name in VECTOR_PARTS if name.startswith("target_"))):
            new[name][...] = before[name]
        return found
