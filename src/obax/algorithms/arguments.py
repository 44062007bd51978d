"""The arguments of algorithms: fields that check what they are given when an algorithm is made.

A message names the argument, what was expected and what came.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import equinox as eqx

from .._support import validation
from ..hypergradient import CG, Hypergradient, Unrolled
from ..problem import Problem
from ..window import Window
from .descent import Number, Steps, checked_optimiser, checked_step_size, checked_when


def checked(
    check: Callable[..., object], name: str, default: object = dataclasses.MISSING, **options: bool
) -> Any:
    """A field that holds `check(value, name)`; options as in `equinox.field`."""
    return eqx.field(converter=lambda value: check(value, name), default=default, **options)


def any_problem() -> Any:
    """A problem, with a follower or without one."""

    def check(value: Problem, name: str) -> Problem:
        validation.instance(value, Problem, name, "an obax.Problem")
        return value

    return checked(check, "problem")


def positive(name: str, default: float, **options: bool) -> Any:
    """A number > 0."""
    return checked(validation.positive_number, name, default, **options)


def step_size(level: str, default: object = dataclasses.MISSING) -> Any:
    """A number > 0 or a schedule; with the default `None`, an optimiser may stand in for it."""

    def check(value: Number | None, name: str) -> Number | None:
        if value is None and default is dataclasses.MISSING:
            raise ValueError(f"{name} must be a number > 0 or a schedule t -> number; got None.")
        return checked_step_size(value, name)

    return checked(check, f"{level}_step_size", default)


def optimiser(level: str) -> Any:
    """An optax transformation in place of plain gradient steps."""
    return checked(checked_optimiser, f"{level}_optimiser", None, kw_only=True)


def number_of_steps() -> Any:
    """K_t."""
    return checked(lambda value, _: Steps(value).checked(), "inner_steps", 1)


def leader_when() -> Any:
    """The rounds in which the leader moves."""
    return checked(checked_when, "outer_when", None, kw_only=True)


def rounds_kept() -> Any:
    """How many rounds are kept, the current one included."""

    def check(value: int, name: str) -> int:
        if validation.count(value, name) < 2:
            raise ValueError(f"{name} must be at least 2 rounds, but got {value!r}.")
        return int(value)

    return checked(check, "capacity", static=True, kw_only=True)


def any_window() -> Any:
    """A window in any of its modes; by default w = 1."""
    return checked(_window, "window", None)


def stored_window(algorithm: str) -> Any:
    """A window of which only the weights are asked for: stored terms are not computed again."""

    def check(value: Window | None, name: str) -> Window:
        window = _window(value, name)
        if (window.follower, window.curvature) != ("current", "own"):
            raise ValueError(
                f"window.follower and window.curvature must be left at 'current' and 'own' for "
                f"{algorithm}, which stores hypergradients as they were, but are "
                f"{window.follower!r} and {window.curvature!r}; use obax.OAGD to choose."
            )
        return window

    return checked(check, "window", None)


def any_estimator() -> Any:
    """Any estimator of the hypergradient; by default CG."""
    return checked(lambda value, name: _estimator(value, name, CG()), "hypergradient", None)


def pointwise_estimator(algorithm: str, default: Hypergradient, **options: bool) -> Any:
    """An estimator that needs nothing but the point that it is asked at."""

    def check(value: Hypergradient | None, name: str) -> Hypergradient:
        if isinstance(value, Unrolled):
            raise ValueError(
                f"{name} must be one that solves H v = grad_y f for {algorithm}, such as CG(), but "
                f"got Unrolled()."
            )
        return _estimator(value, name, default)

    return checked(check, "hypergradient", None, **options)


def _window(value: Window | None, name: str) -> Window:
    window = Window() if value is None else value
    validation.instance(window, Window, name, "an obax.Window such as Window(100)")
    return window


def _estimator(value: Hypergradient | None, name: str, default: Hypergradient) -> Hypergradient:
    estimator = default if value is None else value
    validation.instance(estimator, Hypergradient, name, "an estimator such as CG()")
    return estimator
