"""The options of the estimators, each written once: name, default and what it may be.

They are the arguments of the constructors, which only note them, as scikit-learn wants it;
`checked` is called when the first row comes.
"""

import dataclasses
import math
from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import ClassVar, Self, TypeVar

import numpy as np

from .kernel import BOUNDS, EVERYONE, LEADER, LONG, Plan

LEARNABLE = ("penalty", "forgetting", "inertia", "bandwidth")
LARGE = 64
"""Models with more features are wide: see `kernel.wide`."""
MOST_DENSE = 1024
"""Features of a model with a penalty for each, with lags, waves or products, which no wide model
has."""

MEMBERS = ("tuned", "start", "short", "long", "sgd")
"""Words for members of the mixture: the tuned model, the same frozen where it starts, a short and a
long memory, and steps down the gradient at the rates of `RATES`."""
AUTO = ("tuned", "start", "sgd")
"""A wide model has the long memory too, because there it is the one with full curvature."""
RATES = (0.01, 0.1, 0.3, 1.0)
FROZEN = {"short": (1e-3, 30.0, 1.0), "long": (1e-3, 3000.0, 1.0)}
"""Penalty, memory and inertia, whatever the start."""

T = TypeVar("T")
Expected = str | None
Check = Callable[[object], Expected]
"""What was expected, where a value is not that."""


def option(default: T, check: Check, *, live: bool = False) -> T:
    """A field of an options class; a `live` one can change in mid-stream."""
    return dataclasses.field(default=default, metadata={"check": check, "live": live})


def _is_number(value: object) -> bool:
    return isinstance(value, int | float | np.number) and not isinstance(value, bool)


def within(name: str) -> Check:
    """A start of a hyperparameter, inside its bounds."""
    low, high = BOUNDS[name]

    def check(value: object) -> Expected:
        inside = _is_number(value) and low <= value <= high  # type: ignore[operator]
        return None if inside else f"a number from {low:g} to {high:g}"

    return check


def positive(value: object) -> Expected:
    """A finite number > 0."""
    fine = _is_number(value) and 0 < value < math.inf  # type: ignore[operator]
    return None if fine else "a number > 0"


def rows(value: object) -> Expected:
    """A number of rows to look back."""
    fine = _is_number(value) and 2 <= value < math.inf  # type: ignore[operator]
    return None if fine else "a number of rows >= 2"


def flag(value: object) -> Expected:
    """Yes or no: a word such as "no" would count as yes."""
    return None if isinstance(value, bool | np.bool_) else "True or False"


def integer(value: object) -> Expected:
    """An integer from 1 on."""
    fine = isinstance(value, int | np.integer) and not isinstance(value, bool) and value >= 1
    return None if fine else "an integer >= 1"


def whole(value: object) -> Expected:
    """An integer from 0 on."""
    fine = isinstance(value, int | np.integer) and not isinstance(value, bool) and value >= 0
    return None if fine else "an integer >= 0"


def one_of(*choices: str | None) -> Check:
    """One of a few words."""
    expected = ", ".join(repr(choice) for choice in choices)
    return lambda value: None if value in choices else f"one of {expected}"


def some_of(*choices: str) -> Check:
    """A tuple of some of these words."""

    def check(value: object) -> Expected:
        fine = isinstance(value, tuple | list) and set(value) <= set(choices)
        return None if fine else f"a tuple of some of {choices}, () for none"

    return check


def fraction(value: object) -> Expected:
    """A number from 0 up to, but not, 1."""
    fine = _is_number(value) and 0 <= value < 1  # type: ignore[operator]
    return None if fine else "a number from 0 up to, but not, 1"


def class_weights(value: object) -> Expected:
    """`None`, "balanced" or a weight for each of some classes."""
    fine = value is None or value == "balanced"
    if isinstance(value, Mapping):
        fine = all(_is_number(weight) and 0 <= weight < math.inf for weight in value.values())
    return None if fine else "None, 'balanced' or a dict of classes with numbers >= 0"


def members(value: object) -> Expected:
    """Who predicts: a word, or a tuple of words with "tuned" among them."""
    words = MEMBERS[1:]
    expected = f"'auto', 'tuned' or a tuple of 'tuned' and some of {words}"
    if isinstance(value, tuple | list):
        fine = "tuned" in value and set(value) <= set(MEMBERS) and len(set(value)) == len(value)
    else:
        fine = value in ("auto", "tuned")
    return None if fine else expected


@dataclasses.dataclass(eq=False, repr=False)
class Options:
    """What both estimators have; `StreamingClassifier` says what it means."""

    penalty: float = option(1e-3, within("penalty"))
    memory: float = option(100.0, within("memory"))
    inertia: float = option(1.0, within("inertia"))
    _: dataclasses.KW_ONLY
    learn: tuple[str, ...] = option(LEARNABLE, some_of(*LEARNABLE), live=True)
    members: str | tuple[str, ...] = option("auto", members)
    share: float = option(0.001, fraction, live=True)
    per_feature: bool = option(False, flag)
    features: str = option("linear", one_of("linear", "fourier", "interactions"))
    lags: int = option(0, whole)
    step_size: float = option(0.01, positive, live=True)
    horizon: float = option(500.0, rows, live=True)
    scale_memory: float = option(10_000.0, rows, live=True)
    max_features: int = option(100_000, integer, live=True)
    max_categories: int = option(32, integer, live=True)
    max_pending: int = option(10_000, integer, live=True)
    max_memory: float = option(2**30, positive, live=True)

    # What only one of the two has, as the other one has it.
    loss: ClassVar[str] = "logistic"
    delta: ClassVar[float] = 1.345
    imbalance: ClassVar[str | None] = None
    class_weight: ClassVar[str | Mapping[Hashable, float] | None] = None
    max_classes: ClassVar[int] = 2

    def checked(self) -> Self:
        """A copy that nobody changes, or an error that names the option, what was expected and what
        came. Only the options: none of what a subclass adds to them."""
        kind = next(c for c in type(self).__mro__ if "__dataclass_fields__" in vars(c))
        values = {}
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            expected = field.metadata["check"](value)
            if expected is not None:
                raise ValueError(f"{field.name} must be {expected}, but got {value!r}.")
            if isinstance(value, list | Mapping):
                value = tuple(value) if isinstance(value, list) else dict(value)
            values[field.name] = value
        if self.per_feature and (self.features != "linear" or self.lags):
            raise ValueError(
                f"per_feature must be False with features other than 'linear' and with lags, but "
                f"got True with features={self.features!r}, lags={self.lags}."
            )
        if self.imbalance is not None and set(self.members) > {"tuned"}:
            raise ValueError(
                f"members must be 'auto' or 'tuned' with imbalance={self.imbalance!r}, because "
                f"shares move by likelihood, which knows no balance, but got {self.members!r}."
            )
        return kind(**values)

    def followed_by(self, new: Self, asked: Iterable[str]) -> tuple[Self, dict[str, object]]:
        """The options of a model that has begun, after `new` ones were asked for: those that can
        change in mid-stream as they are there, the others as here; and which of the `asked` ones
        these are."""
        kept = {
            field.name: getattr(self, field.name)
            for field in dataclasses.fields(self)
            if not field.metadata["live"] and getattr(self, field.name) != getattr(new, field.name)
        }
        found = dataclasses.replace(new, **kept)
        if found.member_words != self.member_words:
            # Who "auto" is depends on what is learned; members that there are stay.
            found = dataclasses.replace(found, members=self.member_words)
        return found, {name: kept[name] for name in asked if name in kept}

    @property
    def classify(self) -> bool:
        """Whether targets are classes."""
        return self.loss == "logistic"

    @property
    def starts(self) -> dict[str, float]:
        """Where the hyperparameters begin."""
        return {"penalty": self.penalty, "memory": self.memory, "inertia": self.inertia}

    @property
    def settings(self) -> tuple[float, float, float, float, float]:
        """The numbers of the kernel: how the leader, the statistics and the shares move."""
        fading, share = 1 - 1 / self.horizon, float(self.share)
        return self.step_size, fading, self.scale_memory, self.delta, share

    @property
    def member_words(self) -> tuple[str, ...]:
        """The members, in the order of MEMBERS. Classes that are balanced leave the tuned one
        alone: likelihood, which the others would win by, is not what is asked for there."""
        if self.members == "tuned" or self.imbalance is not None:
            return ("tuned",)
        if self.members == "auto":
            # Where nothing is learned, the tuned one stays at the start; with waves or products the
            # frozen one would cost as much as the tuned one.
            alone = not self.learn or self.features != "linear"
            return tuple(word for word in AUTO if not (alone and word == "start"))
        return tuple(word for word in MEMBERS if word in self.members)

    @property
    def member_names(self) -> list[str]:
        """One for each member, as the kernel has them."""
        return list(self.plan(0, 0).names)

    @property
    def most_features(self) -> int:
        """How many features a model takes in."""
        return min(self.max_features, MOST_DENSE) if self.dense else self.max_features

    @property
    def dense(self) -> bool:
        """Whether a model has full curvature however many features it has."""
        return bool(self.per_feature or self.lags or self.features != "linear")

    def wide(self, features: int) -> bool:
        """Whether a model with so many features is wide."""
        return features > LARGE and not self.dense

    def plan(self, features: int, classes: int, wide: bool = False) -> Plan:
        """The sizes of a model with so many features and classes."""
        learned = tuple("memory" if name == "forgetting" else name for name in self.learn)
        if self.imbalance is not None:
            learned += ("class_weights" if self.imbalance == "weights" else "logit_shifts",)
        start = {"start": (float(self.penalty), float(self.memory), float(self.inertia))}
        words = self.member_words
        if wide and self.members == "auto" and len(words) > 1:
            words += (LONG,)
        frozen = {word: f for word, f in (start | FROZEN).items() if word in words}
        rates = RATES if "sgd" in words else ()
        balanced = isinstance(self.class_weight, str)
        return Plan(
            features=features,
            loss=self.loss,
            classes=classes,
            learned=learned,
            per_feature=bool(self.per_feature),
            expansion=self.features,
            lags=int(self.lags),
            balance=EVERYONE if balanced else LEADER if self.imbalance is not None else 0,
            frozen=tuple(frozen.values()),
            rates=rates,
            names=("tuned", *frozen, *(f"sgd {rate:g}" for rate in rates)),
        )


@dataclasses.dataclass(eq=False, repr=False, kw_only=True)
class ClassifierOptions(Options):
    """Those of `StreamingClassifier`."""

    imbalance: str | None = option(None, one_of(None, "weights", "logits"))  # type: ignore[misc]
    class_weight: str | Mapping[Hashable, float] | None = option(  # type: ignore[misc]
        None, class_weights, live=True
    )
    max_classes: int = option(100, integer, live=True)  # type: ignore[misc]


@dataclasses.dataclass(eq=False, repr=False, kw_only=True)
class RegressorOptions(Options):
    """Those of `StreamingRegressor`."""

    loss: str = option("squared", one_of("squared", "huber"))  # type: ignore[misc]
    delta: float = option(1.345, positive, live=True)  # type: ignore[misc]
