"""A `Core` as named arrays and plain values, for checkpoints, and back."""

from collections.abc import Hashable
from typing import Any

import jax
import numpy as np

from . import engine
from .core import Core, Options
from .history import Record


def to_plain(core: Core) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Arrays by name, and the rest as JSON can hold it."""
    state = engine.unpack(core.plan, np.asarray(core.vector))
    leaves = jax.tree_util.tree_leaves_with_path(state)
    arrays = {f"state{jax.tree_util.keystr(path)}": np.asarray(leaf) for path, leaf in leaves}
    rows, loss, x = core.record.arrays()
    arrays |= {"record.rows": rows.astype(np.int64), "record.loss": loss, "record.x": x}
    return arrays, {
        "names": [_tagged(name) for name in core.names],
        "classes": [_tagged(label) for label in core.classes],
        "rows": core.rows,
        "record": core.record.to_json(),
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


def from_plain(options: Options, arrays: dict[str, np.ndarray], plain: dict[str, Any]) -> Core:
    """The core again. Arrays that do not fit its names and classes are an error."""
    found = {path.removeprefix("['").removesuffix("']"): array for path, array in arrays.items()}
    core = Core(options)
    core.names = {_untagged(name): i for i, name in enumerate(plain["names"])}
    core.classes = [_untagged(label) for label in plain["classes"]]
    core.index = {label: i for i, label in enumerate(core.classes)}
    core.rows = plain["rows"]
    core.plan = options.plan(len(core.names), len(core.classes))
    like = engine.start(core.plan, {})
    leaves = []
    for path, leaf in jax.tree_util.tree_leaves_with_path(like):
        name = f"state{jax.tree_util.keystr(path)}"
        array = found.get(name)
        if array is None or array.shape != leaf.shape or array.dtype != leaf.dtype:
            came = "missing" if array is None else f"{array.dtype}{list(array.shape)}"
            raise ValueError(
                f"{name} of the checkpoint is {came}, but this estimator needs "
                f"{leaf.dtype}{list(leaf.shape)}."
            )
        leaves.append(array)
    core.vector = engine.pack(jax.tree.unflatten(jax.tree.structure(like), leaves))
    core.record = Record.from_json(
        plain["record"], found["record.rows"], found["record.loss"], found["record.x"]
    )
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
