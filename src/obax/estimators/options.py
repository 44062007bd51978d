"""The options of the estimators, each written once: name, default and what it may be.

They are the arguments of the constructors, which only note them, as scikit-learn wants it;
`checked` is called when the first row comes.
"""

import dataclasses
import math
from collections.abc import Callable
from typing import ClassVar, Self, TypeVar

import numpy as np

from .kernel import BOUNDS, LONG, Plan

LEARNABLE = ("penalty", "forgetting", "inertia")
LARGE = 64
"""Models with more features are wide: see `kernel.wide`."""
MOST_PENALTIES = 1024
"""Features that can have a penalty each; a wide model has one for all of them."""

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


def option(default: T, check: Check | None = None) -> T:
    """A field of an options class."""
    return dataclasses.field(default=default, metadata={"check": check})


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
    fine = _is_number(value) and value >= 2  # type: ignore[operator]
    return None if fine else "a number of rows >= 2"


def integer(value: object) -> Expected:
    """An integer from 1 on."""
    fine = isinstance(value, int | np.integer) and not isinstance(value, bool) and value >= 1
    return None if fine else "an integer >= 1"


def one_of(*choices: str | None) -> Check:
    """One of a few words."""
    expected = ", ".join(repr(choice) for choice in choices)
    return lambda value: None if value in choices else f"one of {expected}"


def some_of(*choices: str) -> Check:
    """A tuple of some of these words."""

    def check(value: object) -> Expected:
        fine = isinstance(value, tuple | list) and set(value) <= set(choices)
        return None if fine else f"a tuple of some of {choices}"

    return check


def fraction(value: object) -> Expected:
    """A number from 0 up to, but not, 1."""
    fine = _is_number(value) and 0 <= value < 1  # type: ignore[operator]
    return None if fine else "a number from 0 up to, but not, 1"


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
    learn: tuple[str, ...] = option(LEARNABLE, some_of(*LEARNABLE))
    members: str | tuple[str, ...] = option("auto", members)
    share: float = option(0.001, fraction)
    per_feature: bool = option(False)
    step_size: float = option(0.01, positive)
    horizon: float = option(500.0, rows)
    scale_memory: float = option(10_000.0, rows)
    max_features: int = option(100_000, integer)

    # What only one of the two has, as the other one has it.
    loss: ClassVar[str] = "logistic"
    delta: ClassVar[float] = 1.345
    imbalance: ClassVar[str | None] = None
    max_classes: ClassVar[int] = 2

    def checked(self) -> Self:
        """A copy that nobody changes, or an error that names the option, what was expected and what
        came. Only the options: none of what a subclass adds to them."""
        kind = next(c for c in type(self).__mro__ if "__dataclass_fields__" in vars(c))
        values = {}
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            check = field.metadata["check"]
            expected = None if check is None else check(value)
            if expected is not None:
                raise ValueError(f"{field.name} must be {expected}, but got {value!r}.")
            values[field.name] = tuple(value) if isinstance(value, list) else value
        if self.imbalance is not None and set(self.members) > {"tuned"}:
            raise ValueError(
                f"members must be 'auto' or 'tuned' with imbalance={self.imbalance!r}, because "
                f"shares move by likelihood, which knows no balance, but got {self.members!r}."
            )
        return kind(**values)

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
            # Where nothing is learned, the tuned one stays at the start.
            return AUTO if self.learn else tuple(word for word in AUTO if word != "start")
        return tuple(word for word in MEMBERS if word in self.members)

    @property
    def member_names(self) -> list[str]:
        """One for each member, as the kernel has them."""
        return list(self.plan(0, 0).names)

    @property
    def most_features(self) -> int:
        """How many features a model takes in."""
        return min(self.max_features, MOST_PENALTIES) if self.per_feature else self.max_features

    def wide(self, features: int) -> bool:
        """Whether a model with so many features is wide."""
        return features > LARGE and not self.per_feature

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
        return Plan(
            features=features,
            loss=self.loss,
            classes=classes,
            learned=learned,
            per_feature=bool(self.per_feature),
            balance=self.imbalance is not None,
            frozen=tuple(frozen.values()),
            rates=rates,
            names=("tuned", *frozen, *(f"sgd {rate:g}" for rate in rates)),
        )


@dataclasses.dataclass(eq=False, repr=False, kw_only=True)
class ClassifierOptions(Options):
    """Those of `StreamingClassifier`."""

    imbalance: str | None = option(None, one_of(None, "weights", "logits"))  # type: ignore[misc]
    max_classes: int = option(100, integer)  # type: ignore[misc]


@dataclasses.dataclass(eq=False, repr=False, kw_only=True)
class RegressorOptions(Options):
    """Those of `StreamingRegressor`."""

    loss: str = option("squared", one_of("squared", "huber"))  # type: ignore[misc]
    delta: float = option(1.345, positive)  # type: ignore[misc]
