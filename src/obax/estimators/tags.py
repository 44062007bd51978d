"""Names, labels, ids and values as JSON can hold them, each with its type, and back."""

import datetime
from collections.abc import Hashable, Mapping
from typing import Any

import numpy as np

PLAIN = {"bool": bool, "int": int, "float": float, "str": str}


def tagged(value: object, what: str = "a name or a class") -> list[Any]:
    """With its type: True, 1, 1.0 and "1" are four things in JSON too."""
    if isinstance(value, np.generic):
        value = value.item()
    if type(value) in PLAIN.values():
        return [type(value).__name__, value]
    if isinstance(value, tuple):
        return ["tuple", [tagged(item, what) for item in value]]
    raise ValueError(
        f"{what} must be a word, a number, a boolean or a tuple of them, as checkpoints hold them, "
        f"but is {value!r} of type {type(value).__name__}."
    )


def untagged(pair: list[Any]) -> Hashable:
    """What `tagged` was given."""
    kind, value = pair
    if kind == "tuple":
        return tuple(untagged(item) for item in value)
    return PLAIN[kind](value)


class Foreign:
    """A value of a type that no feature has, as it looked: the row that has it is rejected."""

    def __init__(self, text: str):
        self.text = text

    def __repr__(self) -> str:
        return self.text


def tagged_value(value: object) -> list[Any]:
    """A value of a feature, of any type."""
    if isinstance(value, np.datetime64):
        value = value.astype("M8[us]").item()
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return ["none", None]
    if isinstance(value, datetime.date):
        kind = "datetime" if isinstance(value, datetime.datetime) else "date"
        return [kind, value.isoformat()]
    try:
        return tagged(value)
    except ValueError:
        return ["other", [type(value).__name__, repr(value)]]


def untagged_value(pair: list[Any]) -> object:
    """What `tagged_value` was given."""
    kind, value = pair
    if kind == "none":
        return None
    if kind == "other":
        return type(value[0], (Foreign,), {})(value[1])
    if kind in ("datetime", "date"):
        return getattr(datetime, kind).fromisoformat(value)
    return untagged(pair)


def plain_option(value: Any) -> Any:
    """A value of an option."""
    if isinstance(value, Mapping):
        return {"pairs": [[tagged(key), plain_option(item)] for key, item in value.items()]}
    return value.item() if isinstance(value, np.generic) else value


def untagged_option(value: Any) -> Any:
    """What `plain_option` was given, from JSON."""
    if isinstance(value, dict):
        return {untagged(key): item for key, item in value["pairs"]}
    return tuple(value) if isinstance(value, list) else value
