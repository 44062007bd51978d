"""Names, labels, ids and values in JSON, each with its type: there `True`, 1 and "1" differ."""

import datetime
from collections.abc import Hashable, Mapping
from typing import Any

import numpy as np

PLAIN = {"bool": bool, "int": int, "float": float, "str": str}


def tagged(value: object, what: str = "a name or a class") -> list[Any]:
    """Return a name, a label or an id with its type; raise an error for other types."""
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
    """Return the value that `tagged` was called with."""
    kind, value = pair
    if kind == "tuple":
        return tuple(untagged(item) for item in value)
    if type(value) is not PLAIN[kind]:
        raise TypeError(f"{value!r} is not a {kind}")
    return PLAIN[kind](value)


class Foreign:
    """A value of a type that no feature has, as it looked: the row that has it is rejected."""

    def __init__(self, text: str):
        self.text = text

    def __repr__(self) -> str:
        return self.text


def tagged_value(value: object) -> list[Any]:
    """Return the value of a feature, of any type, with its type."""
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
    """Return the value that `tagged_value` was called with."""
    kind, value = pair
    if kind == "none":
        return None
    if kind == "other":
        return type(str(value[0]), (Foreign,), {})(str(value[1]))
    if kind in ("datetime", "date"):
        return getattr(datetime, kind).fromisoformat(value)
    return untagged(pair)


def plain_option(value: Any) -> Any:
    """Return the value of an option as JSON can hold it."""
    if isinstance(value, Mapping):
        return {"pairs": [[tagged(key), plain_option(item)] for key, item in value.items()]}
    return value.item() if isinstance(value, np.generic) else value


def untagged_option(value: Any) -> Any:
    """Return the option that `plain_option` was called with, from JSON."""
    if isinstance(value, dict):
        return {untagged(key): item for key, item in value["pairs"]}
    return tuple(value) if isinstance(value, list) else value
