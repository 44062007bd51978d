"""The arguments of algorithms: fields that check what they are given when an algorithm is made.

A message names the argument, what was expected and what came.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax

from .._support import trees, validation
from .._support.functions import shared
from ..hypergradient import Hypergradient, Unrolled
from ..window import Window
from .descent import Number, Optimiser, Steps, When

# Where a schedule is tried when an algorithm is made: one that is wrong late is wrong. Numbers of
# steps only up to 10^4, beyond which the int32 of a K_t = t^2 that no one can play overflows.
TRIED = (1, 2, 3, 10, 100, 10_000, 1_000_000)


def checked(
    check: Callable[..., object], name: str, default: object = dataclasses.MISSING, **options: bool
) -> Any:
    """A field that holds `check(value, name)`; options as in `equinox.field`."""
    return eqx.field(converter=lambda value: check(value, name), default=default, **options)


def positive(name: str, default: float, **options: bool) -> Any:
    """A number > 0."""
    return checked(validation.positive_number, name, default, **options)


def step_size(level: str, default: object = dataclasses.MISSING) -> Any:
    """A number > 0, or a schedule of numbers >= 0 (0 holds the level still); with the default
    `None`, an optimiser may stand in for it."""

    def check(value: Number | None, name: str) -> Number | None:
        if value is None and default is None:
            return None
        if value is None:
            raise ValueError(f"{name} must be a number > 0 or a schedule t -> number; got None.")
        if not callable(value):
            return validation.positive_number(value, name)
        for t in TRIED:
            came = validation.schedule(value, name, t)
            array = validation.as_number(came, f"{name}({t})")
            if array.shape != () or (trees.is_concrete(array) and float(array) < 0):
                raise ValueError(
                    f"{name}(t) must be one number >= 0, but at t = {t} it is {came!r}."
                )
        return shared(value)

    return checked(check, f"{level}_step_size", default)


def optimiser(level: str) -> Any:
    """An optax transformation in place of plain gradient steps."""

    def check(value: Optimiser | None, name: str) -> Optimiser | None:
        if value is not None:
            example = "an optax.GradientTransformation such as optax.adam(1e-3)"
            validation.instance(value, optax.GradientTransformation, name, example)
        return value

    return checked(check, f"{level}_optimiser", None, kw_only=True)


def number_of_steps() -> Any:
    """K_t."""
    return checked(lambda value, _: Steps(value).checked(TRIED[:-1]), "inner_steps", 1)


def leader_when() -> Any:
    """The rule that says in which rounds the leader moves: one bool for a t."""

    def check(value: When | None, name: str) -> When | None:
        if value is None:
            return None
        validation.function(value, name, "t -> bool")
        came = jax.eval_shape(value, jnp.asarray(1, jnp.int32))
        if getattr(came, "shape", None) != () or came.dtype != jnp.bool_:
            raise ValueError(
                f"{name}(t) must return one bool, such as t >= 80, but returns {came}."
            )
        return value

    return checked(check, "outer_when", None, kw_only=True)


def rounds_kept() -> Any:
    """How many rounds are kept, the current one included."""

    def check(value: int, name: str) -> int:
        if validation.count(value, name) < 2:
            raise ValueError(f"{name} must be at least 2 rounds, but got {value!r}.")
        return int(value)

    return checked(check, "capacity", static=True, kw_only=True)


def any_window(stored_by: str | None = None, *, replays: bool = True) -> Any:
    """A window; by default w = 1. Terms that are stored by an algorithm are not computed again: of
    their window only the weights are asked for; and what the follower trains on, where it
    `replays` rounds of the past."""

    def check(value: Window | None, name: str) -> Window:
        found = Window() if value is None else value
        validation.instance(found, Window, name, "an obax.Window such as Window(100)")
        if found.replay is not None and not replays:
            raise ValueError(
                f"window.replay must be left out for {stored_by}, which looks at no round again, "
                f"but is {found.replay!r}; use obax.OAGD, or obax.SOBOW for its follower."
            )
        if stored_by and found.replay is not None:
            if (found.follower in ("window", "average"), found.curvature) != (True, "own"):
                raise ValueError(
                    f"window.follower must be 'window' or 'average' and window.curvature 'own' for "
                    f"{stored_by} with replay, whose follower alone looks at rounds again, but are "
                    f"{found.follower!r} and {found.curvature!r}."
                )
        elif stored_by and (found.follower, found.curvature) != ("current", "own"):
            raise ValueError(
                f"window.follower and window.curvature must be left at 'current' and 'own' for "
                f"{stored_by}, which stores hypergradients as they were, but are "
                f"{found.follower!r} and {found.curvature!r}; use obax.OAGD to choose."
            )
        return found

    return checked(check, "window", None)


def any_estimator(default: Hypergradient, solves_for: str | None = None, **options: bool) -> Any:
    """An estimator of the hypergradient; where it solves for an algorithm, one that needs nothing
    but the point that it is asked at."""

    def check(value: Hypergradient | None, name: str) -> Hypergradient:
        if solves_for and isinstance(value, Unrolled):
            raise ValueError(
                f"{name} must be one that solves H v = grad_y f for {solves_for}, such as CG(), "
                f"but got Unrolled()."
            )
        found = default if value is None else value
        validation.instance(found, Hypergradient, name, "an estimator such as CG()")
        return found

    return checked(check, "hypergradient", None, **options)
