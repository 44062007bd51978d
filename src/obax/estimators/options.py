"""The options of the estimators: name, default, check and, for the engine, their translation.

They are the arguments of the constructors, which only store them, as scikit-learn asks; `checked`
is called when the first row comes.
"""

import dataclasses
import functools
import math
from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Any, ClassVar, Self, TypeVar

import numpy as np

from .._support import native
from .._support.checks import Kind, at_least, one_of

LEARNABLE = ("penalty", "forgetting", "inertia", "bandwidth")
MOST_LINEAR = 64
"""A linear model with more features becomes sparse: a diagonal curvature, rows by their keys."""
MOST_DENSE = 1024
"""Features of a model that never becomes sparse, because it has a penalty for each feature, lags,
random Fourier features or products."""

MEMBERS = ("tuned", "start", "short", "long", "sgd")
"""Words for members of the mixture: the tuned model, the same frozen at its start, a short and a
long memory, and gradient steps at the rates of `RATES`."""
AUTO = ("tuned", "start", "sgd")
"""A sparse model has the long memory too, which there is the member with full curvature."""
RATES = (0.01, 0.1, 0.3, 1.0)
FROZEN = {"short": (1e-3, 30.0, 1.0), "long": (1e-3, 3000.0, 1.0)}
"""Penalty, memory and inertia of frozen members that do not depend on the start."""

TREES = {
    "trees 30": (30.0, False),
    "trees 300": (300.0, False),
    "correcting trees 30": (30.0, True),
    "correcting trees 300": (300.0, True),
}
"""Ensembles of gradient trees of `features="auto"`: rows that a leaf remembers, and whether they
correct the linear members or learn from the features alone."""
MOST_TREE_BYTES = 2**25
"""Of what one ensemble counts, where `max_memory` leaves so much."""

T = TypeVar("T")


def option(default: T, kind: Kind, *, live: bool = False) -> T:
    """Return a field of an options class; a `live` one can change in mid-stream."""
    return dataclasses.field(default=default, metadata={"kind": kind, "live": live})


class StartKind(Kind):
    """A number within the engine's bounds of a hyperparameter, whose name is `expected`."""

    def fault(self, value: object) -> str | None:
        """Return what is wrong with a value; the engine is loaded only now."""
        low, high = native.loaded().BOUNDS[self.expected]
        kind = number(f"a number from {low:g} to {high:g}", lambda v: low <= v <= high)
        return kind.fault(value)


def is_number(value: object) -> bool:
    """Return whether a value is a number of Python's or NumPy's; `True` and `False` are none."""
    return isinstance(value, int | float | np.number) and not isinstance(value, bool)


def number(expected: str, accepts: Callable[[Any], bool]) -> Kind:
    """Return the kind of numbers that `accepts` returns True for."""
    return Kind(expected, lambda value: is_number(value) and accepts(value))


def is_class_weight(value: Any) -> bool:
    """Return whether a value is `None`, "balanced" or a dict of weights by class."""
    if isinstance(value, Mapping):
        return all(is_number(weight) and 0 <= weight < math.inf for weight in value.values())
    return value is None or value == "balanced"


def are_members(value: Any) -> bool:
    """Return whether a value is a word, or a tuple of words that has "tuned" in it."""
    if isinstance(value, tuple | list):
        return "tuned" in value and set(value) <= set(MEMBERS) and len(set(value)) == len(value)
    return value in ("auto", "tuned")


POSITIVE = number("a number > 0", lambda value: 0 < value < math.inf)
ROWS = number("a number of rows >= 2", lambda value: 2 <= value < math.inf)
SHARE = number("a number from 0 up to, but not, 1", lambda value: 0 <= value < 1)
# A word such as "no" would count as true.
FLAG = Kind("True or False", lambda value: isinstance(value, bool | np.bool_))
SOME_LEARNABLE = Kind(
    f"a tuple of some of {LEARNABLE}, () for none",
    lambda value: isinstance(value, tuple | list) and set(value) <= {*LEARNABLE, "memory"},
)
SOME_MEMBERS = Kind(f"'auto', 'tuned' or a tuple of 'tuned' and some of {MEMBERS[1:]}", are_members)
CLASS_WEIGHT = Kind("None, 'balanced' or a dict of classes with numbers >= 0", is_class_weight)


@dataclasses.dataclass(eq=False, repr=False)
class Options:
    """The options that both estimators have; `StreamingClassifier` documents them."""

    penalty: float = option(1e-3, StartKind("penalty", bool))
    memory: float = option(100.0, StartKind("memory", bool))
    inertia: float = option(1.0, StartKind("inertia", bool))
    _: dataclasses.KW_ONLY
    learn: tuple[str, ...] = option(LEARNABLE, SOME_LEARNABLE, live=True)
    members: str | tuple[str, ...] = option("auto", SOME_MEMBERS)
    share: float = option(0.001, SHARE, live=True)
    per_feature: bool = option(False, FLAG)
    features: str = option("linear", one_of("linear", "fourier", "interactions", "auto"))
    lags: int = option(0, at_least(0))
    effort: str = option("auto", one_of("low", "auto", "high"))
    seed: int = option(0, at_least(0))
    step_size: float = option(0.01, POSITIVE, live=True)
    horizon: float = option(500.0, ROWS, live=True)
    scale_memory: float = option(10_000.0, ROWS, live=True)
    max_features: int = option(100_000, at_least(1), live=True)
    max_categories: int = option(64, at_least(1), live=True)
    max_pending: int = option(10_000, at_least(1), live=True)
    max_memory: float = option(2**30, POSITIVE, live=True)
    shuffle: bool = option(False, FLAG, live=True)
    passes: int = option(1, at_least(1), live=True)

    # Options of one of the two estimators, with the values that hold for the other.
    loss: ClassVar[str] = "logistic"
    delta: ClassVar[float] = 1.345
    imbalance: ClassVar[str | None] = None
    class_weight: ClassVar[str | Mapping[Hashable, float] | None] = None
    max_classes: ClassVar[int] = 2

    def checked(self) -> Self:
        """Return a copy of the options alone, or raise an error that names the option, what was
        expected and what came."""
        kind = next(c for c in type(self).__mro__ if "__dataclass_fields__" in vars(c))
        values = {}
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            fault = field.metadata["kind"].fault(value)
            if fault is not None:
                raise ValueError(f"{field.name} {fault}.")
            if isinstance(value, list | Mapping):
                value = tuple(value) if isinstance(value, list) else dict(value)
            values[field.name] = value
        # The memory is learned as a forgetting factor: both words mean the same.
        learned = ("forgetting" if name == "memory" else name for name in self.learn)
        values["learn"] = tuple(dict.fromkeys(learned))
        if self.per_feature and (self.features not in ("linear", "auto") or self.lags):
            raise ValueError(
                f"per_feature must be False with features other than 'linear' and with lags, but "
                f"got True with features={self.features!r}, lags={self.lags}."
            )
        if self.imbalance is not None and set(self.members) > {"tuned"}:
            raise ValueError(
                f"members must be 'auto' or 'tuned' with imbalance={self.imbalance!r}, because "
                f"shares move by likelihood, which ignores class balance, but got {self.members!r}."
            )
        return kind(**values)

    def followed_by(self, new: Self, asked: Iterable[str]) -> tuple[Self, dict[str, object]]:
        """Return the options of a model that has begun after `new` ones were asked for, and those
        of the `asked` ones that have to wait, with the values that they keep: only live options
        change in mid-stream."""
        kept = {
            field.name: getattr(self, field.name)
            for field in dataclasses.fields(self)
            if not field.metadata["live"] and getattr(self, field.name) != getattr(new, field.name)
        }
        found = dataclasses.replace(new, **kept)
        if found.member_words != self.member_words:
            # The members that "auto" stands for depend on what is learned; existing ones stay.
            found = dataclasses.replace(found, members=self.member_words)
        return found, {name: kept[name] for name in asked if name in kept}

    @property
    def classify(self) -> bool:
        """Whether targets are classes."""
        return self.loss == "logistic"

    @property
    def member_words(self) -> tuple[str, ...]:
        """The members, in the order of MEMBERS.

        With balanced classes there is only the tuned one: the likelihood, by which the others would
        win, ignores class balance.
        """
        if self.members == "tuned" or self.imbalance is not None:
            return ("tuned",)
        if self.members == "auto":
            # If nothing is learned, the tuned member stays at the start; with waves or products the
            # frozen one would cost as much as the tuned one.
            alone = not self.learn or self.features not in ("auto", "linear")
            return tuple(word for word in AUTO if not (alone and word == "start"))
        return tuple(word for word in MEMBERS if word in self.members)

    @property
    def automatic(self) -> bool:
        """Whether there are members beside the linear ones, while the model is dense."""
        return self.features == "auto" and not self.per_feature and self.imbalance is None

    @property
    def most_features(self) -> int:
        """The number of features that a model takes in."""
        return min(self.max_features, MOST_DENSE) if self.dense else self.max_features

    @property
    def dense(self) -> bool:
        """Whether a model has full curvature however many features it has."""
        return bool(self.per_feature or self.lags or self.features in ("fourier", "interactions"))

    def sparse(self, features: int) -> bool:
        """Return whether a model with so many features is sparse."""
        return features > MOST_LINEAR and not self.dense

    def spec(
        self, features: int, classes: int, sparse: bool = False, history_points: int = 1024
    ) -> Any:
        """Return the engine's description of a model with so many features and classes."""
        learned = ["memory" if name == "forgetting" else name for name in self.learn]
        if self.imbalance is not None:
            learned.append("class_weights" if self.imbalance == "weights" else "logit_shifts")
        words = self.member_words
        if sparse and self.members == "auto" and len(words) > 1:
            words += ("long",)
        frozen = {"start": (float(self.penalty), float(self.memory), float(self.inertia))} | FROZEN
        rates = RATES if "sgd" in words else ()
        balance = "leader" if self.imbalance is not None else "none"
        return native.loaded().Spec(
            loss=self.loss,
            features=features,
            classes=classes if self.classify else 0,
            sparse=sparse,
            learned=learned,
            per_feature=bool(self.per_feature),
            balance="all" if isinstance(self.class_weight, str) else balance,
            frozen=[(word, *values) for word, values in frozen.items() if word in words],
            rates=[(f"sgd {rate:g}", rate) for rate in rates],
            expansion="linear" if self.features == "auto" else self.features,
            lags=int(self.lags),
            starts=frozen["start"],
            step_size=float(self.step_size),
            fading=1 - 1 / self.horizon,
            scale_memory=float(self.scale_memory),
            delta=float(self.delta),
            share=float(self.share),
            history_points=history_points,
            **({"waves": _waves()} if self.features in ("fourier", "auto") else {}),
            **(self._beside() if self.automatic and not sparse else {}),
        )

    def _beside(self) -> dict[str, Any]:
        """Return the fields of the members beside the linear ones."""
        if self.effort == "low":
            return {"blocks": ["lags"]}
        return {
            "blocks": ["lags", "interactions"],
            "restless": self.effort == "high",
            "trees": [(name, *values) for name, values in TREES.items()],
            "tree_bytes": min(MOST_TREE_BYTES, self.max_memory / 16),
            "seed": int(self.seed),
        }


def random_waves() -> tuple[np.ndarray, np.ndarray]:
    """Draw the random Fourier features: directions by feature, of which a model uses as many as it
    has features, and phases."""
    seed, waves = 1729, native.loaded().WAVES
    draws = [np.random.default_rng((seed, i)).standard_normal(waves) for i in range(MOST_DENSE)]
    return np.array(draws), np.random.default_rng(seed).uniform(0.0, 2.0 * np.pi, waves)


@functools.cache
def _waves() -> Any:
    return native.loaded().Waves(*random_waves())


@dataclasses.dataclass(eq=False, repr=False, kw_only=True)
class ClassifierOptions(Options):
    """The options of `StreamingClassifier`."""

    imbalance: str | None = option(  # type: ignore[misc]
        None,
        one_of(None, "weights", "logits"),
    )
    class_weight: str | Mapping[Hashable, float] | None = option(  # type: ignore[misc]
        None, CLASS_WEIGHT, live=True
    )
    max_classes: int = option(100, at_least(1), live=True)  # type: ignore[misc]


@dataclasses.dataclass(eq=False, repr=False, kw_only=True)
class RegressorOptions(Options):
    """The options of `StreamingRegressor`."""

    loss: str = option("squared", one_of("squared", "huber"))  # type: ignore[misc]
    delta: float = option(1.345, POSITIVE, live=True)  # type: ignore[misc]
