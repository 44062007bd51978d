"""What the kernel works on: three flat vectors, and `sizes`, which says how they are cut.

- `vector`: all that the next row needs of the rows before; what a checkpoint keeps;
- `work`: settings, and what can be computed again from `vector`: inverses and centres, which a
  prediction and the learning of the row share;
- `record`: see `history`.

Shared by all members: rows counted, statistics, class frequencies, the members' shares. Members of
the second order, the tuned one first, stand in stacks along the first axis; only the tuned one has
means of the hypergradient, a slope of the curvature and a sensitivity. Members of the first order
have weights alone.
"""

import dataclasses
import functools
import math
from collections.abc import Hashable, Mapping

import numpy as np

from . import columns

SIGMOID, SOFTMAX, SQUARED, HUBER = range(4)
LEADER, EVERYONE = 1, 2
# Positions in `sizes`, first of plain numbers, ...
(
    FEATURES,
    INPUTS,  # of a member of the second order, with the intercept
    OUTPUTS,
    CLASSES,
    LOSS,
    PENALTIES,
    LEARNED,
    BALANCE,
    SECOND_ORDER,  # members
    FIRST_ORDER,  # members
    EXPANSION,  # of the features: see `columns`
    LAGS,
    BANDWIDTH,  # where in x it stands
) = range(13)
# ... then where the parts of `vector` begin, ...
VECTOR_PARTS = (
    "rows",  # learned so far
    "x",  # logarithms of the hyperparameters of the tuned member
    "shares",  # of the members in the prediction; right after x, to be noted with it
    "residuals",  # running mean of twice the loss of each member, for regression
    "sat_out",  # rows that a member could not take part in
    "mean",  # running mean of the hypergradient
    "square",  # ... and of its square
    "weights",
    "curvature",
    "curvature_slope",  # d curvature / d (learned entries of x after the `plain` ones)
    "sensitivity",  # d weights / d (learned entries of x)
    "plain_weights",  # of the members of the first order
    "counts",  # rows in the statistics of each feature
    "averages",
    "variances",
    "target_count",
    "target_average",
    "target_variance",
    "aside",  # values of each feature that are put aside: see `statistics`
    "target_aside",
    "frequency",  # of each class
    "recent",  # targets, the last one first, for lags
)
(
    ROWS,
    X,
    SHARES,
    RESIDUALS,
    SAT_OUT,
    MEAN,
    SQUARE,
    WEIGHTS,
    CURVATURE,
    CURVATURE_SLOPE,
    SENSITIVITY,
    PLAIN_WEIGHTS,
    COUNTS,
    AVERAGES,
    VARIANCES,
    TARGET_COUNT,
    TARGET_AVERAGE,
    TARGET_VARIANCE,
    ASIDES,
    TARGET_ASIDE,
    FREQUENCY,
    RECENT,
    VECTOR_END,
) = range(13, 36)
# ... then the parts of `work`, and last the learned entries of x.
(
    FRESH,  # 1 while what follows PHASES belongs to `vector`
    SETTINGS,
    LOW,
    HIGH,
    HYPER,  # penalty, inertia and forgetting of each member of the second order
    RATES,  # of the members of the first order
    DIRECTIONS,  # of the waves
    PHASES,
    INVERSE,  # of L, or its factors
    CENTRE,
    DRAWN,
    RIDGE,
    ROOM,  # for what a row needs for a moment: see `views`
    WORK_END,
    ENTRIES,
) = range(36, 51)
# Positions in the settings.
STEP_SIZE, FADING, SCALE_MEMORY, DELTA, SHARE = range(5)
DOUBTS = 10
"""So many values the statistics put aside."""
ASIDE = 2 + DOUBTS
"""What they have beside mean and variance: see `statistics.renew`."""

BOUNDS = {
    "penalty": (1e-7, 1e3),
    "inertia": (1e-3, 1e4),
    "memory": (1.0, 1e6),
    "class_weights": (1e-3, 1e3),
    "logit_shifts": (math.exp(-10), math.exp(10)),
    "bandwidth": (0.1, 10.0),
}
"""Of the hyperparameters, of which x holds the logarithms in this order."""


@dataclasses.dataclass(frozen=True)
class Plan:
    """The sizes of a model: how many features and classes, what is learned, who its
    members are. `loss` is `"logistic"`, `"squared"` or `"huber"`; `classes` is 0
    for regression."""

    features: int
    loss: str
    classes: int = 0
    learned: tuple[str, ...] = ("penalty", "inertia", "memory")
    per_feature: bool = False
    balance: int = 0
    """What the frequency of a row's class divides: nothing, the leader's loss (LEADER) or every
    loss that is learned from (EVERYONE)."""
    frozen: tuple[tuple[float, float, float], ...] = ()
    """Penalty, memory and inertia of each frozen member."""
    rates: tuple[float, ...] = ()
    """Step sizes of the members of the first order."""
    expansion: str = "linear"
    """What is made of the features: see `columns`."""
    lags: int = 0
    names: tuple[str, ...] = ()
    """Of the members."""

    @property
    def slots(self) -> int:
        """For classes: two at least."""
        return max(2, self.classes) if self.loss == "logistic" else 0

    @property
    def outputs(self) -> int:
        """One for two classes and for regression, otherwise one for each class."""
        return self.slots if self.slots > 2 else 1

    @property
    def inputs(self) -> int:
        """What the weights of a member of the second order meet."""
        return len(self.columns)

    @functools.cached_property
    def columns(self) -> list[Hashable]:
        """The names of that."""
        return columns.names(self.features, self.lags, self.slots, self.expansion)

    @property
    def members(self) -> int:
        """The tuned one, the frozen ones, those of the first order."""
        return 1 + len(self.frozen) + len(self.rates)

    @property
    def width(self) -> int:
        """The entries of x."""
        return next(reversed(self.spans.values()))[1]

    @property
    def trail(self) -> int:
        """What is noted of a row: x and the members' shares."""
        return self.width + self.members

    @functools.cached_property
    def spans(self) -> dict[str, tuple[int, int]]:
        """Where in x each hyperparameter stands."""
        penalties = self.features if self.per_feature else 1
        waves = 1 if self.expansion == "fourier" else 0
        sizes = dict(zip(BOUNDS, (penalties, 1, 1, self.slots, self.slots, waves), strict=True))
        ends = np.cumsum(list(sizes.values())).tolist()
        return {n: (end - size, end) for (n, size), end in zip(sizes.items(), ends, strict=True)}

    @functools.cached_property
    def entries(self) -> np.ndarray:
        """Indices into x of what is learned."""
        spans = [np.arange(*span) for name, span in self.spans.items() if name in self.learned]
        return np.concatenate([np.zeros(0, np.int64), *spans])

    @property
    def plain(self) -> int:
        """Learned entries of x, the first ones, without a slope of the curvature.

        Where the curvature does not depend on the weights, it moves with memory and bandwidth
        alone. With waves or products, and for penalties of single features, the rest is neglected:
        for these it would be d^3 numbers.
        """
        if self.loss != "logistic" or self.expansion != "linear":
            return int(np.sum(self.entries < self.spans["memory"][0]))
        return int(np.sum(self.entries < self.spans["penalty"][1])) if self.per_feature else 0

    @functools.cached_property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Of the parts of a vector."""
        f, n, lines = self.features, len(self.entries), (self.outputs, self.inputs)
        m, d, everyone = 1 + len(self.frozen), self.inputs, (self.members,)
        tilts = (n - self.plain, d, d)
        residuals = everyone if self.loss != "logistic" else (0,)
        shapes: tuple[tuple[int, ...], ...] = (
            *((), (self.width,), everyone, residuals, everyone, (n,), (n,)),
            *((m, *lines), (m, d, d), tilts, (n, *lines), (len(self.rates), self.outputs, f + 1)),
            *((f,), (f,), (f,), (), (), (), (f, ASIDE), (ASIDE,), (self.slots,), (self.lags,)),
        )
        return dict(zip(VECTOR_PARTS, shapes, strict=True))

    @functools.cached_property
    def sizes(self) -> np.ndarray:
        """All of it, as the kernel reads it."""
        kind = {"logistic": SIGMOID, "squared": SQUARED, "huber": HUBER}[self.loss]
        kind = SOFTMAX if self.outputs > 1 else kind
        penalties = self.spans["penalty"][1]
        n, k, d, m = len(self.entries), self.outputs, self.inputs, 1 + len(self.frozen)
        lengths = [math.prod(shape) for shape in self.shapes.values()]
        square, lines = m * d * d, m * k * d
        waves = columns.WAVES if self.expansion == "fourier" else 0
        work = [1, 5, self.width, self.width, 3 * m, len(self.rates), waves * self.features, waves]
        work += [square, lines, lines, m * d]
        by_member = m * (k + 1 + d) + self.members * (max(1, self.slots) + 4 + k)
        work += [3 * d + by_member + (7 + n) * k + n + n + (3 + 3 * k + n + 2 * n * k) * d]
        numbers = (self.features, d, k, self.slots, kind, penalties, n, self.balance)
        offsets = [np.cumsum([0, *lengths]), np.cumsum([0, *work]), self.entries]
        more = (columns.FEATURES[self.expansion], self.lags, self.spans["bandwidth"][0])
        everything = np.array([*numbers, m, len(self.rates), *more], np.int64)
        return np.concatenate([everything, *offsets])

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
        part = self.parts(vector)
        for name, value in hyperparameters.items():
            part["x"][slice(*self.spans[name])] = math.log(value)
        part["recent"][:] = np.nan
        part["shares"][:] = 1 / self.members
        part["residuals"][:] = 1.0
        return vector

    def work(self, settings: tuple[float, float, float, float, float]) -> np.ndarray:
        """Room for the kernel: step size, fading, memory of the statistics, delta, share."""
        work = np.zeros(self.sizes[WORK_END])
        work[self.sizes[SETTINGS] : self.sizes[LOW]] = settings
        for name, span in self.spans.items():
            for at, bound in zip((LOW, HIGH), BOUNDS[name], strict=True):
                work[self.sizes[at] + span[0] : self.sizes[at] + span[1]] = math.log(bound)
        fixed = [(penalty, inertia, m / (1 + m)) for penalty, m, inertia in self.frozen]
        # The first three are the tuned member's, which move.
        work[self.sizes[HYPER] + 3 : self.sizes[RATES]] = np.ravel(fixed)
        work[self.sizes[RATES] : self.sizes[DIRECTIONS]] = self.rates
        if self.expansion == "fourier":
            directions, phases = columns.waves(self.features)
            work[self.sizes[DIRECTIONS] : self.sizes[PHASES]] = directions.ravel()
            work[self.sizes[PHASES] : self.sizes[INVERSE]] = phases
        return work
