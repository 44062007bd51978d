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

T = TypeVar("T")
Expected = str | None
Check = Callable[[object], Expected]
"""Return what is expected of a value that is wrong, or `None`."""


def option(default: T, check: Check, *, live: bool = False) -> T:
    """Return a field of an options class; a `live` one can change in mid-stream."""
    return dataclasses.field(default=default, metadata={"check": check, "live": live})


def _is_number(value: object) -> bool:
    return isinstance(value, int | float | np.number) and not isinstance(value, bool)


def within_bounds(name: str) -> Check:
    """Return a check for the start of a hyperparameter."""

    def check(value: object) -> Expected:
        low, high = native.loaded().BOUNDS[name]
        inside = _is_number(value) and low <= value <= high
        return None if inside else f"a number from {low:g} to {high:g}"

    return check


def one_of(*choices: str | None) -> Check:
    """Return a check for one of a few words."""
    expected = ", ".join(repr(choice) for choice in choices)
    return lambda value: None if value in choices else f"one of {expected}"


def some_of(*choices: str) -> Check:
    """Return a check for a tuple of some of these words."""

    def check(value: object) -> Expected:
        fine = isinstance(value, tuple | list) and set(value) <= set(choices)
        return None if fine else f"a tuple of some of {choices}, () for none"

    return check


def _numbers(expected: str, fits: Callable[[Any], bool]) -> Check:
    return lambda value: None if _is_number(value) and fits(value) else expected


def _integers(low: int) -> Check:
    def check(value: object) -> Expected:
        fine = isinstance(value, int | np.integer) and not isinstance(value, bool) and value >= low
        return None if fine else f"an integer >= {low}"

    return check


positive = _numbers("a number > 0", lambda value: 0 < value < math.inf)
at_least_two = _numbers("a number of rows >= 2", lambda value: 2 <= value < math.inf)
fraction = _numbers("a number from 0 up to, but not, 1", lambda value: 0 <= value < 1)
integer, integer_from_zero = _integers(1), _integers(0)


def boolean(value: object) -> Expected:
    """Check for True or False: a word such as "no" would count as true."""
    return None if isinstance(value, bool | np.bool_) else "True or False"


def class_weights(value: object) -> Expected:
    """Check for `None`, "balanced" or a dict of weights by class."""
    fine = value is None or value == "balanced"
    if isinstance(value, Mapping):
        fine = all(_is_number(weight) and 0 <= weight < math.inf for weight in value.values())
    return None if fine else "None, 'balanced' or a dict of classes with numbers >= 0"


def members(value: object) -> Expected:
    """Check for a word, or a tuple of words that has "tuned" in it."""
    words = MEMBERS[1:]
    expected = f"'auto', 'tuned' or a tuple of 'tuned' and some of {words}"
    if isinstance(value, tuple | list):
        fine = "tuned" in value and set(value) <= set(MEMBERS) and len(set(value)) == len(value)
    else:
        fine = value in ("auto", "tuned")
    return None if fine else expected


@dataclasses.dataclass(eq=False, repr=False)
class Options:
    """The options that both estimators have; `StreamingClassifier` documents them."""

    penalty: float = option(1e-3, within_bounds("penalty"))
    memory: float = option(100.0, within_bounds("memory"))
    inertia: float = option(1.0, within_bounds("inertia"))
    _: dataclasses.KW_ONLY
    learn: tuple[str, ...] = option(LEARNABLE, some_of(*LEARNABLE), live=True)
    members: str | tuple[str, ...] = option("auto", members)
    share: float = option(0.001, fraction, live=True)
    per_feature: bool = option(False, boolean)
    features: str = option("linear", one_of("linear", "fourier", "interactions"))
    lags: int = option(0, integer_from_zero)
    step_size: float = option(0.01, positive, live=True)
    horizon: float = option(500.0, at_least_two, live=True)
    scale_memory: float = option(10_000.0, at_least_two, live=True)
    max_features: int = option(100_000, integer, live=True)
    max_categories: int = option(64, integer, live=True)
    max_pending: int = option(10_000, integer, live=True)
    max_memory: float = option(2**30, positive, live=True)

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
            alone = not self.learn or self.features != "linear"
            return tuple(word for word in AUTO if not (alone and word == "start"))
        return tuple(word for word in MEMBERS if word in self.members)

    @property
    def member_names(self) -> list[str]:
        """One name for each member, as the engine has them."""
        return list(self.spec(0, 0).members)

    @property
    def most_features(self) -> int:
        """The number of features that a model takes in."""
        return min(self.max_features, MOST_DENSE) if self.dense else self.max_features

    @property
    def dense(self) -> bool:
        """Whether a model has full curvature however many features it has."""
        return bool(self.per_feature or self.lags or self.features != "linear")

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
            expansion=self.features,
            lags=int(self.lags),
            starts=frozen["start"],
            step_size=float(self.step_size),
            fading=1 - 1 / self.horizon,
            scale_memory=float(self.scale_memory),
            delta=float(self.delta),
            share=float(self.share),
            history_points=history_points,
            **({"waves": _waves()} if self.features == "fourier" else {}),
        )


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

    imbalance: str | None = option(None, one_of(None, "weights", "logits"))  # type: ignore[misc]
    class_weight: str | Mapping[Hashable, float] | None = option(  # type: ignore[misc]
        None, class_weights, live=True
    )
    max_classes: int = option(100, integer, live=True)  # type: ignore[misc]


@dataclasses.dataclass(eq=False, repr=False, kw_only=True)
class RegressorOptions(Options):
    """The options of `StreamingRegressor`."""

    loss: str = option("squared", one_of("squared", "huber"))  # type: ignore[misc]
    delta: float = option(1.345, positive, live=True)  # type: ignore[misc]
