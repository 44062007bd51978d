"""Typed settings of an experiment: frozen, complete, and strict about what they are given.

A field declares its range where it stands, and `Settings` checks all of them:

    @dataclasses.dataclass(frozen=True)
    class Config(Settings):
        rounds: int = count(400)
        step_sizes: tuple[float, ...] = positive((0.1, 0.3))
        source: str = choice("real", ("real", "synthetic"))

The range of a tuple is that of each item; a tuple may be empty only where its field says so.
"""

import dataclasses
import typing
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from ..._support.errors import UserError, nearest
from .table import Value

C = TypeVar("C")
T = TypeVar("T")
TRUTHS = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}


def ranged(
    default: T, holds: Callable[[Any], bool], words: str, plural: str = "", empty: bool = False
) -> T:
    """A field whose value, or each of whose values, `holds`; the error says "must be `words`", or
    `plural` of several."""
    limits = {"holds": holds, "words": words, "plural": plural or words, "empty": empty}
    return dataclasses.field(default=default, metadata=limits)


def count(default: T) -> T:
    """A field of whole numbers from 1 on."""
    return ranged(default, lambda value: value >= 1, "at least 1")


def positive(default: T) -> T:
    """A field of finite numbers above 0."""
    within = lambda value: 0 < value < float("inf")  # noqa: E731
    return ranged(default, within, "a number > 0", "numbers > 0")


def not_negative(default: T) -> T:
    """A field of numbers from 0 on."""
    return ranged(default, lambda value: value >= 0, "a number >= 0", "numbers >= 0")


def fraction(default: T, empty: bool = False) -> T:
    """A field of numbers in (0, 1]: decays, shares; a tuple of them may be `empty`."""
    return ranged(default, lambda value: 0 < value <= 1, "in (0, 1]", empty=empty)


def below_one(default: T) -> T:
    """A field of numbers in [0, 1): momentum, dropout."""
    return ranged(default, lambda value: 0 <= value < 1, "in [0, 1)")


def choice(default: T, allowed: Iterable[Value]) -> T:
    """A field that takes one of these words, or several of them."""
    known = tuple(allowed)
    listed = ", ".join(map(str, known))
    return ranged(default, lambda value: value in known, f"one of {listed}", f"among {listed}")


@dataclasses.dataclass(frozen=True)
class Settings:
    """What the config of an experiment derives from: it checks the ranges of its fields."""

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value, limits = getattr(self, field.name), field.metadata
            several = isinstance(value, tuple)
            if value == () and not limits.get("empty"):
                raise ValueError(f"{field.name} must not be empty.")
            for one in value if several else (value,):
                if limits and not limits["holds"](one):
                    words = limits["plural" if several else "words"]
                    raise ValueError(f"{field.name} must be {words}, but got {one!r}.")


def with_overrides(config: C, assignments: Iterable[str]) -> C:
    """The config with `key=value` assignments applied, each checked against the field's type.

    Lists are written with commas: `windows=1,100,T`.
    """
    fields = {field.name for field in dataclasses.fields(config)}  # type: ignore[arg-type]
    types = typing.get_type_hints(type(config))
    changes: dict[str, object] = {}
    for assignment in assignments:
        key, equals, text = assignment.partition("=")
        key = key.strip().replace("-", "_")
        if not equals:
            raise UserError(f"--set takes key=value, but got {assignment!r}.")
        if key not in fields:
            known = ", ".join(sorted(fields))
            raise UserError(f"unknown key {key!r}.{nearest(key, fields)} Known keys: {known}.")
        changes[key] = _parse(text.strip(), types[key], key)
    return with_changes(config, changes)


def with_changes(config: C, changes: dict[str, object]) -> C:
    """The config with other values; a `UserError` says which of them it does not take."""
    try:
        return dataclasses.replace(config, **changes)  # type: ignore[type-var]
    except (TypeError, ValueError) as error:
        raise UserError(str(error)) from error


def _parse(text: str, kind: type, key: str) -> object:
    if typing.get_origin(kind) is tuple:
        item = typing.get_args(kind)[0]
        return tuple(_parse(part.strip(), item, key) for part in text.split(",") if part.strip())
    try:
        if kind is bool:
            return TRUTHS[text.lower()]
        if kind in (int, float, str):
            return kind(text)
    except (ValueError, KeyError):
        names = {int: "an integer", float: "a number", bool: "true or false"}
        raise UserError(f"{key} must be {names[kind]}, but got {text!r}.") from None
    raise TypeError(f"config field {key} has a type that cannot be parsed: {kind}")


def as_dict(config: object) -> dict[str, object]:
    """The config as plain values, tuples as lists, for JSON."""
    return {
        key: list(value) if isinstance(value, tuple) else value
        for key, value in dataclasses.asdict(config).items()  # type: ignore[call-overload]
    }


def from_dict(kind: type[C], values: dict[str, object]) -> C:
    """The config again, from what `as_dict` wrote."""
    return kind(
        **{key: tuple(value) if isinstance(value, list) else value for key, value in values.items()}
    )
