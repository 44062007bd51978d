"""A `Core` as named arrays and plain values, for checkpoints, and back."""

from collections.abc import Hashable
from typing import Any

import numpy as np

from .core import Core
from .history import Record
from .options import Options
from .wide import Wide

VERSION = 3
"""Of what an estimator writes into a checkpoint."""


def check_version(extra: dict[str, Any]) -> None:
    """An error for a checkpoint that this version cannot read."""
    found = extra.get("version", 1)
    if found != VERSION:
        raise ValueError(
            f"the checkpoint holds an estimator of version {found}, but this obax reads version "
            f"{VERSION} (version 1 was in single precision, for another kernel; version 2 had one "
            f"member, and a curvature for each class). Learn the stream again from its beginning, "
            f"or use the obax that wrote it."
        )


def to_plain(core: Core) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Arrays by name, and the rest as JSON can hold it."""
    arrays = {f"state.{name}": array.copy() for name, array in _parts(core).items()}
    record = zip(("rows", "loss", "x"), core.record.arrays(), strict=True)
    arrays |= {f"record.{name}": array for name, array in record}
    arrays["record.head"] = core.record.head
    return arrays, {
        "names": [_tagged(name) for name in core.names],
        "classes": [_tagged(label) for label in core.classes],
        "rows": core.rows,
        "wide": core.wide is not None,
        "ignored": core.ignored,
        "rejected": {
            "count": core.rejected.count,
            "kept": [
                {
                    "row": one["row"],
                    "reason": one["reason"],
                    "names": [_tagged(name) for name in one["values"]],
                    "values": list(one["values"].values()),
                }
                for one in core.rejected
            ],
        },
    }


def _parts(core: Core) -> dict[str, np.ndarray]:
    """What the next row needs of the rows before, by name, as views."""
    if core.wide is not None:
        wide, size = core.wide, len(core.names) + 1
        return {"head": wide.head, "cells": wide.cells[:size], "square": wide.square}
    return core.plan.parts(core.vector)


def from_plain(options: Options, arrays: dict[str, np.ndarray], plain: dict[str, Any]) -> Core:
    """The core again. Arrays that do not fit its names and classes are an error."""
    found = {path.removeprefix("['").removesuffix("']"): array for path, array in arrays.items()}
    core = Core(options)
    core.names = {_untagged(name): i for i, name in enumerate(plain["names"])}
    core.classes = [_untagged(label) for label in plain["classes"]]
    core.index = {label: i for i, label in enumerate(core.classes)}
    core.rows = plain["rows"]
    core.ignored = plain["ignored"]
    wide = plain["wide"]
    core.plan = options.plan(0 if wide else len(core.names), len(core.classes), wide)
    if wide:
        core.wide = Wide.at_start(core.plan, options.starts, len(core.names))
    else:
        core.vector = core.plan.start({})
    for name, part in _parts(core).items():
        array = found.get(f"state.{name}")
        if array is None or array.shape != part.shape or array.dtype != part.dtype:
            came = "missing" if array is None else f"{array.dtype}{list(array.shape)}"
            raise ValueError(
                f"state.{name} of the checkpoint is {came}, but this estimator needs "
                f"{part.dtype}{list(part.shape)}."
            )
        part[...] = array
    core.record = Record.of(*(found[f"record.{name}"] for name in ("head", "rows", "loss", "x")))
    core.ready()
    for one in plain["rejected"]["kept"]:
        names = [_untagged(name) for name in one["names"]]
        values = dict(zip(names, one["values"], strict=True))
        core.rejected.add(one["row"], one["reason"], values)
    core.rejected.count = plain["rejected"]["count"]
    return core


def _tagged(value: object) -> list[Any]:
    """Names and labels keep their type: True, 1, 1.0 and "1" are four things in JSON too."""
    if isinstance(value, np.generic):
        value = value.item()
    for kind in (bool, int, float, str):
        if type(value) is kind:
            return [kind.__name__, value]
    if isinstance(value, tuple):
        return ["tuple", [_tagged(item) for item in value]]
    raise ValueError(
        f"a checkpoint can hold names and classes that are words, numbers, booleans or tuples of "
        f"them, but one is {value!r} of type {type(value).__name__}."
    )


def _untagged(pair: list[Any]) -> Hashable:
    kind, value = pair
    if kind == "tuple":
        return tuple(_untagged(item) for item in value)
    return {"bool": bool, "int": int, "float": float, "str": str}[kind](value)
