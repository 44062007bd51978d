"""Parts of checkpoints: values in JSON with their types, and checks of what a file holds.

In a checkpoint `True`, 1 and "1" differ. A file is checked before any of it is used: the engine
checks its arrays, with all shapes, counts and values that serve as an index; names, labels, counts,
words and pending rows are checked by the functions here.
"""

import contextlib
import datetime
from collections.abc import Hashable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np

from .._support import files

VERSION = 4
"""Of what an estimator writes into a checkpoint."""
Arrays = dict[str, np.ndarray]
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


def check_version(extra: dict[str, Any]) -> None:
    """Raise an error for a checkpoint that this version cannot read."""
    found = extra.get("version", 1)
    if found != VERSION:
        raise ValueError(
            f"the checkpoint holds an estimator of version {found}, but this obax reads version "
            f"{VERSION} (versions 1 to 3 were written by other engines). Learn the stream again "
            f"from its beginning, or use the obax that wrote it."
        )


def part_of(arrays: Arrays, begin: str) -> Arrays:
    """Return the arrays whose names begin so, by the rest of their names."""
    paths = {path.removeprefix("['").removesuffix("']"): array for path, array in arrays.items()}
    return {
        path.removeprefix(begin): array for path, array in paths.items() if path.startswith(begin)
    }


def require(condition: object, name: str, expected: str) -> None:
    """Raise an error that says what a part of a checkpoint must be, unless it is."""
    if not condition:
        raise ValueError(f"{name} of the checkpoint must be {expected}; the file is damaged.")


def unique(name: str, values: Sequence[Hashable]) -> list[Hashable]:
    """Return values that are all different; raise an error if one is there twice."""
    require(len(set(values)) == len(values), name, "different from each other")
    return list(values)


def whole(name: str, value: Any) -> int:
    """Return a count; raise an error for anything else."""
    require(type(value) is int and 0 <= value < 2**53, name, "a whole number from 0 on")
    return int(value)


@contextlib.contextmanager
def described_by(name: str) -> Iterator[None]:
    """Turn errors that other contents of a file cause into a `ValueError` that says so."""
    try:
        yield
    except (KeyError, TypeError, IndexError, AttributeError, OverflowError) as error:
        raise ValueError(
            f"the checkpoint does not describe a {name} ({type(error).__name__}: {error})."
        ) from error


class Saved:
    """A base of models that can be saved to a file and loaded again."""

    def save(self, path: str | Path) -> None:
        """Write the model to a file, which is replaced as a whole."""
        from ..checkpoint import format

        files.write_bytes(Path(path), format.model_to_bytes(self))

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Return the model that `save` or `obax.save` wrote."""
        from ..checkpoint import format

        model = format.model_from_bytes(format.Checkpoint(format.read_bytes(path), str(path)))
        if not isinstance(model, cls):
            kind = type(model).__name__
            raise format.CheckpointError(f"{path} holds a {kind}, not a {cls.__name__}.")
        return model
