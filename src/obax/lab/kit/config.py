"""Typed settings of an experiment: frozen, complete, and strict about what they are given."""

import dataclasses
import typing
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar

from ..._support.errors import UserError, nearest

C = TypeVar("C")


def with_overrides(config: C, assignments: Iterable[str]) -> C:
    """The config with `key=value` assignments applied, each checked against the field's type.

    Lists are written with commas: `windows=1,100,T`.
    """
    fields = {field.name for field in dataclasses.fields(config)}  # type: ignore[arg-type]
    types = typing.get_type_hints(type(config))
    changes: dict[str, Any] = {}
    for assignment in assignments:
        key, equals, text = assignment.partition("=")
        key = key.strip().replace("-", "_")
        if not equals:
            raise UserError(f"--set takes key=value, but got {assignment!r}.")
        if key not in fields:
            known = ", ".join(sorted(fields))
            raise UserError(f"unknown key {key!r}.{nearest(key, fields)} Known keys: {known}.")
        changes[key] = _parse(text.strip(), types[key], key)
    try:
        return dataclasses.replace(config, **changes)  # type: ignore[type-var]
    except ValueError as error:
        raise UserError(str(error)) from error


def check_counts(config: Any, names: Iterable[str]) -> None:
    """Raise a `ValueError` unless each of these fields is at least 1."""
    for name in names:
        if getattr(config, name) < 1:
            raise ValueError(f"{name} must be at least 1, but got {getattr(config, name)}.")


def check_choices(config: Any, choices: Mapping[str, Sequence[str]]) -> None:
    """Raise a `ValueError` unless each of these fields is one of its words."""
    for name, allowed in choices.items():
        if getattr(config, name) not in allowed:
            raise ValueError(
                f"{name} must be one of {', '.join(allowed)}, but got {getattr(config, name)!r}."
            )


def _parse(text: str, kind: Any, key: str) -> Any:
    if typing.get_origin(kind) is tuple:
        item = typing.get_args(kind)[0]
        return tuple(_parse(part.strip(), item, key) for part in text.split(",") if part.strip())
    try:
        if kind is bool:
            return {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}[
                text.lower()
            ]
        if kind in (int, float, str):
            return kind(text)
    except (ValueError, KeyError):
        names = {int: "an integer", float: "a number", bool: "true or false"}
        raise UserError(f"{key} must be {names[kind]}, but got {text!r}.") from None
    raise TypeError(f"config field {key} has a type that cannot be parsed: {kind}")


def as_dict(config: Any) -> dict[str, Any]:
    """The config as plain values, tuples as lists, for JSON."""
    return {
        key: list(value) if isinstance(value, tuple) else value
        for key, value in dataclasses.asdict(config).items()
    }


def from_dict(kind: type[C], values: dict[str, Any]) -> C:
    """The config again, from what `as_dict` wrote."""
    return kind(
        **{key: tuple(value) if isinstance(value, list) else value for key, value in values.items()}
    )
