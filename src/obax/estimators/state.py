"""A `Core` as named arrays and plain values, for checkpoints, and back."""

from typing import Any

import numpy as np

from .columns import Columns
from .core import Core
from .history import Record
from .late import Pending
from .options import Options
from .tags import tagged, untagged
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
        "names": [tagged(name) for name in core.names],
        "classes": [tagged(label) for label in core.classes],
        "rows": core.rows,
        "wide": core.wide is not None,
        "ignored": core.ignored,
        "rejected": {
            "count": core.rejected.count,
            "kept": [
                {
                    "row": one["row"],
                    "reason": one["reason"],
                    "names": [tagged(name) for name in one["values"]],
                    "values": list(one["values"].values()),
                }
                for one in core.rejected
            ],
        },
        "columns": core.columns.to_plain(),
        "pending": core.pending.to_plain(),
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
    core.names = {untagged(name): i for i, name in enumerate(plain["names"])}
    core.classes = [untagged(label) for label in plain["classes"]]
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
    core.columns = Columns.from_plain(options.max_categories, plain["columns"])
    core.pending = Pending.from_plain(options.max_pending, plain["pending"])
    core.ready()
    for one in plain["rejected"]["kept"]:
        names = [untagged(name) for name in one["names"]]
        values = dict(zip(names, one["values"], strict=True))
        core.rejected.add(one["row"], one["reason"], values)
    core.rejected.count = plain["rejected"]["count"]
    return core
