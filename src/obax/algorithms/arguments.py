"""Fields of algorithms whose checks are more than a type: step sizes, windows, estimators.

A field with a number, a count or a flag needs none of these: its annotation is the check, see
`_support.checks`.
"""

import dataclasses
from collections.abc import Callable
from typing import Annotated, Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax

from .._support import trees
from .._support.checks import Kind, Positive, check, function_of, instance_of, is_integer
from .._support.function_identity import interned
from ..hypergradient import Hypergradient, Unrolled
from ..window import Window
from .descent import Number, Optimiser, Steps, When

# The rounds at which a schedule is tried when an algorithm is made, so that one that goes wrong
# late is an error at once. Numbers of steps are tried up to 10^4 only: beyond that the int32 of
# K_t = t^2, which nobody can play, overflows.
TRIED = (1, 2, 3, 10, 100, 10_000, 1_000_000)

Capacity = Annotated[
    int, Kind("at least 2 rounds", lambda value: is_integer(value) and value >= 2, int)
]
"""The number of rounds kept, the current one included."""


def checked(
    convert: Callable[..., object],
    name: str,
    default: object = dataclasses.MISSING,
    **options: bool,
) -> Any:
    """Return a field that holds `convert(value, name)`; options as in `equinox.field`."""
    return eqx.field(converter=lambda value: convert(value, name), default=default, **options)


def step_size(level: str, default: object = dataclasses.MISSING) -> Any:
    """Return a field for a number > 0, or a schedule of numbers >= 0 (at 0 the level does not
    move). With the default `None`, an optimiser may stand in for it."""

    def convert(value: Number | None, name: str) -> Number | None:
        if value is None and default is None:
            return None
        if value is None:
            raise ValueError(f"{name} must be a number > 0 or a schedule t -> number; got None.")
        if not callable(value):
            return trees.float_array(check(value, name, Positive), name)
        for t in TRIED:
            rate = _at(value, name, t)
            array = trees.float_array(rate, f"{name}({t})")
            if array.shape != () or (trees.is_concrete(array) and float(array) < 0):
                raise ValueError(
                    f"{name}(t) must be one number >= 0, but at t = {t} it is {rate!r}."
                )
        return interned(value)

    return checked(convert, f"{level}_step_size", default)


def _at(schedule: Callable[..., Any], name: str, t: int) -> Any:
    """Return the value of a schedule in round t."""
    try:
        return schedule(jnp.asarray(t, jnp.int32))
    except TypeError as error:
        raise ValueError(f"{name} must take one number, the round t, but: {error}.") from error


def optimiser(level: str) -> Any:
    """Return a field for an optax transformation in place of plain gradient steps."""
    example = "an optax.GradientTransformation such as optax.adam(1e-3)"
    hint = Annotated[Any, instance_of(optax.GradientTransformation, example)] | None

    def convert(value: Optimiser | None, name: str) -> Optimiser | None:
        return check(value, name, hint)

    return checked(convert, f"{level}_optimiser", None, kw_only=True)


def number_of_steps() -> Any:
    """Return a field for K_t."""
    return checked(lambda value, _: Steps(value).checked(TRIED[:-1]), "inner_steps", 1)


def leader_when() -> Any:
    """Return a field for the rounds in which the leader moves: a function t -> bool."""

    def convert(value: When | None, name: str) -> When | None:
        check(value, name, Annotated[Any, function_of("t -> bool")] | None)
        if value is None:
            return None
        result = jax.eval_shape(value, jnp.asarray(1, jnp.int32))
        if getattr(result, "shape", None) != () or result.dtype != jnp.bool_:
            raise ValueError(
                f"{name}(t) must return one bool, such as t >= 80, but returns {result}."
            )
        return value

    return checked(convert, "outer_when", None, kw_only=True)


def any_window(stored_by: str | None = None) -> Any:
    """Return a field for a window; by default w = 1. An algorithm that stores terms and does not
    compute them again uses the size and the weights only."""

    def convert(value: Window | None, name: str) -> Window:
        window = Window() if value is None else value
        check(
            window, name, Annotated[Any, instance_of(Window, "an obax.Window such as Window(100)")]
        )
        if stored_by and window.replay is not None:
            raise ValueError(
                f"window.replay must be left out for {stored_by}, which stores hypergradients and "
                f"looks at no round again, but is {window.replay!r}; use obax.OAGD."
            )
        if stored_by and (window.follower, window.curvature) != ("current", "own"):
            raise ValueError(
                f"window.follower and window.curvature must be left at 'current' and 'own' for "
                f"{stored_by}, which stores hypergradients as they were, but are "
                f"{window.follower!r} and {window.curvature!r}; use obax.OAGD to choose."
            )
        return window

    return checked(convert, "window", None)


def any_estimator(default: Hypergradient, solves_for: str | None = None, **options: bool) -> Any:
    """Return a field for an estimator of the hypergradient. For an algorithm that solves at a point
    it must not be `Unrolled`."""

    def convert(value: Hypergradient | None, name: str) -> Hypergradient:
        if solves_for and isinstance(value, Unrolled):
            raise ValueError(
                f"{name} must be one that solves H v = grad_y f for {solves_for}, such as CG(), "
                f"but got Unrolled()."
            )
        estimator = default if value is None else value
        kind = instance_of(Hypergradient, "an estimator such as CG()")
        return check(estimator, name, Annotated[Any, kind])

    return checked(convert, "hypergradient", None, **options)
