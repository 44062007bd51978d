"""Types of the fields of algorithms: the annotation of a field is the check of its value.

Counts, flags and numbers that do not vary with t have their types in `_support.checks`.
"""

from typing import Annotated, Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array

from .._support import trees
from .._support.checks import (
    Kind,
    NumberKind,
    at_least,
    check,
    instance_of,
    is_integer,
    within,
)
from .._support.function_identity import interned
from ..hypergradient import Hypergradient, Unrolled
from ..steps import CurvatureStep, NormalisedStep
from ..window import Window
from .descent import Schedule

# The rounds at which a schedule is tried when an algorithm is made, so that one that goes wrong
# late is an error at once. Numbers of steps are tried up to 10^4 only: beyond that the int32 of
# K_t = t^2, which nobody can play, overflows.
TRIED = (1, 2, 3, 10, 100, 10_000, 1_000_000)
RATE = within("a number >= 0", lambda value: value >= 0)


class _StepSizeKind(NumberKind):
    rule: ClassVar[type | tuple[()]] = ()

    def fault(self, value: Any) -> str | None:
        if isinstance(value, self.rule):
            return None
        if value is None:
            return "must be a number > 0 or a schedule t -> number, but got None"
        if not callable(value):
            return super().fault(value)
        for t in TRIED:
            try:
                fault = RATE.fault(value(jnp.asarray(t, jnp.int32)))
            except TypeError as error:
                return f"must take one number, the round t, but: {error}"
            if fault is not None:
                return f"{fault} at t = {t}"
        return None


class _LeaderSizeKind(_StepSizeKind):
    rule = NormalisedStep


class _FollowerSizeKind(_StepSizeKind):
    rule = CurvatureStep


class _StepsKind(Kind):
    def fault(self, value: Any) -> str | None:
        if not callable(value) and not isinstance(value, jax.Array):
            return super().fault(value)
        expected = f"must be {self.expected}, but"
        for t in TRIED[:-1] if callable(value) else TRIED[:1]:
            steps = jnp.asarray(value(jnp.asarray(t, jnp.int32)) if callable(value) else value)
            when = f" at t = {t}" if callable(value) else ""
            if not jnp.issubdtype(steps.dtype, jnp.integer) or steps.shape != ():
                came = f"its dtype is {steps.dtype} and its shape {steps.shape}"
                return f"{expected} {came}{when}; jnp.ceil(...).astype(int) makes integers"
            if trees.is_concrete(steps) and int(steps) < 1:
                return f"{expected} got {int(steps)}{when}"
        return None


class _WhenKind(Kind):
    def fault(self, value: Any) -> str | None:
        if not callable(value):
            return super().fault(value)
        result = jax.eval_shape(value, jnp.asarray(1, jnp.int32))
        if getattr(result, "shape", None) == () and result.dtype == jnp.bool_:
            return None
        return f"must return one bool, such as t >= 80, but returns {result}"


STEP_SIZE = (
    "a number > 0",
    lambda value: value > 0,
    lambda value: interned(value) if callable(value) else value,
)
StepSize = Annotated[float | Array | Schedule, _StepSizeKind(*STEP_SIZE)]
"""A number > 0, or a schedule of numbers >= 0 (at 0 the level does not move)."""
LeaderSize = (
    Annotated[float | Array | Schedule | NormalisedStep, _LeaderSizeKind(*STEP_SIZE)] | None
)
"""A step size of the leader; `None` for `obax.steps.dowg`."""
AdaptiveSize = (
    Annotated[float | Array | Schedule | CurvatureStep, _FollowerSizeKind(*STEP_SIZE)] | None
)
"""A step size of the follower; `None` for one that follows from the curvature of its loss."""
COUNT = at_least(1)
StepCount = Annotated[
    int | Array | Schedule,
    _StepsKind(COUNT.expected, COUNT.accepts, lambda v: int(v) if is_integer(v) else v),
]
"""K_t: an integer, an integer array or a schedule of t."""
When = Annotated[Schedule, _WhenKind("a function t -> bool", callable)]
"""The rounds in which the leader moves."""
Optimiser = Annotated[
    optax.GradientTransformation,
    instance_of(
        optax.GradientTransformation, "an optax.GradientTransformation such as optax.adam(1e-3)"
    ),
]
Capacity = Annotated[
    int, Kind("at least 2 rounds", lambda value: is_integer(value) and value >= 2, int)
]
"""The number of rounds kept, the current one included."""
AnyWindow = Annotated[
    Window,
    Kind(
        "an obax.Window such as Window(100)",
        lambda value: value is None or isinstance(value, Window),
        lambda value: Window() if value is None else value,
    ),
]
"""A window; `None` for w = 1."""
ESTIMATOR = instance_of(Hypergradient, "an estimator such as CG()")
SOLVER = Kind(
    "one that solves H v = grad_y f, such as CG()",
    lambda value: isinstance(value, Hypergradient) and not isinstance(value, Unrolled),
)


def any_estimator(default: Hypergradient, kind: Kind = SOLVER, **options: bool) -> Any:
    """Return a field for an estimator of the hypergradient, by default one that solves at a
    point."""

    def convert(value: object) -> Hypergradient:
        estimator = default if value is None else value
        return check(estimator, "hypergradient", Annotated[Any, kind])

    return eqx.field(converter=convert, default=None, **options)


def check_stored(window: Window, who: str) -> None:
    """Raise a `ValueError` if a window asks for more than its size and weights, of an algorithm
    that stores hypergradients and does not compute them again."""
    if window.replay is not None:
        raise ValueError(
            f"window.replay must be left out for {who}, which stores hypergradients and looks at "
            f"no round again, but is {window.replay!r}; use obax.OAGD."
        )
    if (window.follower, window.curvature) != ("current", "own"):
        raise ValueError(
            f"window.follower and window.curvature must be left at 'current' and 'own' for {who}, "
            f"which stores hypergradients as they were, but are {window.follower!r} and "
            f"{window.curvature!r}; use obax.OAGD to choose."
        )
