"""Typed settings of an experiment, checked by their annotations (`obax._support.checks`).

@dataclasses.dataclass(frozen=True)
class Config(Settings):
    rounds: Count = 400
    step_sizes: tuple[Positive, ...] = (0.1, 0.3)
    source: Annotated[str, one_of("real", "synthetic")] = "real"
"""

import dataclasses
import types
import typing
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from ..._support.checks import Kind, check_fields
from ..._support.messages import UserError, nearest

C = TypeVar("C")
TRUTHS = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}


def one_of(*allowed: object) -> Kind:
    """Return the kind of settings that have one of these values."""
    return Kind(f"one of {', '.join(map(str, allowed))}", lambda value: value in allowed)


@dataclasses.dataclass(frozen=True)
class Settings:
    """Base class of the configuration of an experiment."""

    def __post_init__(self) -> None:
        check_fields(self)


def with_overrides(config: C, assignments: Iterable[str]) -> C:
    """Return the configuration with `key=value` assignments applied, each checked by its type.

    The items of a tuple are separated by commas: `windows=1,100,T`.
    """
    hints = typing.get_type_hints(type(config))
    changes: dict[str, object] = {}
    for assignment in assignments:
        key, equals, text = assignment.partition("=")
        key = key.strip().replace("-", "_")
        if not equals:
            raise UserError(f"--set takes key=value, but got {assignment!r}.")
        if key not in hints:
            known = ", ".join(sorted(hints))
            raise UserError(f"unknown key {key!r}.{nearest(key, hints)} Known keys: {known}.")
        changes[key] = _parse(text.strip(), hints[key], key)
    return with_changes(config, changes)


def with_studies(
    default: C, paper: str, sizes: Mapping[str, str], studies: Mapping[str, str]
) -> dict[str, C]:
    """Return presets by name: the sizes of the experiment, then each study in these sizes.

    All are written as on the command line, `key=value` separated by spaces. The study in the size
    of the paper has the name of the study alone.
    """
    presets = {size: f"{paper} {changes}" for size, changes in sizes.items()}
    for study, settings in studies.items():
        for size, changes in sizes.items():
            name = study if size == "paper" else f"{study}-{size}"
            presets[name] = f"{paper} {changes} {settings}"
    return {name: with_overrides(default, text.split()) for name, text in presets.items()}


def with_changes(config: C, changes: dict[str, object]) -> C:
    """Return the configuration with other values. Raise a `UserError` if one is not accepted."""
    try:
        return dataclasses.replace(config, **changes)  # type: ignore[type-var]
    except (TypeError, ValueError) as error:
        raise UserError(str(error)) from error


def _parse(text: str, hint: Any, key: str) -> object:
    # A tuple that may be empty is annotated as `tuple[item, ...] | tuple[()]`.
    kind = typing.get_args(hint)[0] if isinstance(hint, types.UnionType) else hint
    if typing.get_origin(kind) is tuple:
        item = typing.get_args(kind)[0]
        return tuple(_parse(part.strip(), item, key) for part in text.split(",") if part.strip())
    try:
        return TRUTHS[text.lower()] if kind is bool else kind(text)
    except (ValueError, KeyError):
        names = {int: "an integer", float: "a number", bool: "true or false"}
        raise UserError(f"{key} must be {names[kind]}, but got {text!r}.") from None


def as_dict(config: object) -> dict[str, object]:
    """Return the configuration as plain values for JSON, with tuples as lists."""
    return {
        key: list(value) if isinstance(value, tuple) else value
        for key, value in dataclasses.asdict(config).items()  # type: ignore[call-overload]
    }


def from_dict(config_class: type[C], values: dict[str, object]) -> C:
    """Return the configuration that `as_dict` wrote."""
    return config_class(
        **{key: tuple(value) if isinstance(value, list) else value for key, value in values.items()}
    )
