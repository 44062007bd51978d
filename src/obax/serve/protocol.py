"""Requests and answers: tensors of the Open Inference Protocol v2, and plain rows.

A request has `inputs`, a tensor for each feature, or `row`, or `rows`. Beside them it may have `id`
(or `ids`), under which rows wait for their labels, `key` (or `keys`) for a pool, and to learn
`target` (or `targets`). `{"id": ..., "target": ...}` learns a row that was predicted under its id.
"""

import dataclasses
import math
from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import numpy as np
import orjson

from ..estimators import Table

FLOATS = {"FP16", "FP32", "FP64"}
INTEGERS = {f"{sign}INT{bits}" for sign in ("", "U") for bits in (8, 16, 32, 64)}
DATATYPES = {"BOOL", "BYTES"} | FLOATS | INTEGERS
OPTIONS = orjson.OPT_NON_STR_KEYS | orjson.OPT_SERIALIZE_NUMPY
Rows = Table | list[dict[Any, Any]]


class RequestError(ValueError):
    """A request that cannot be answered, with the HTTP status that says so."""

    def __init__(self, text: str, status: int = 400):
        super().__init__(text)
        self.status = status


@dataclasses.dataclass(frozen=True)
class Request:
    """Rows of a request, and what came with them."""

    rows: Rows | None
    """`None` to learn rows that wait under their ids."""
    size: int
    id: str | None
    """The id of the request, which its answer repeats."""
    ids: list[Hashable] | None
    keys: list[Any] | None
    targets: list[Any] | None
    coverage: float | None
    plain: str
    """How the rows came: `"inputs"`, `"row"` or `"rows"`."""


def parse(body: bytes) -> Request:
    """Return the request that some JSON is; raise a `RequestError` if it is none."""
    try:
        values = orjson.loads(body)
    except ValueError as error:
        raise RequestError(f"the request is not JSON: {error}.") from None
    if not isinstance(values, dict):
        raise RequestError(f"the request must be an object, but is a {type(values).__name__}.")
    form = next((name for name in ("inputs", "row", "rows") if name in values), "")
    targets = _one_or_many(values, "target")
    rows, size = _rows(values, form)
    id, parameters = values.get("id"), values.get("parameters") or {}
    if not isinstance(parameters, dict):
        raise RequestError("parameters must be an object.")
    ids = values.get("ids", parameters.get("ids"))
    if rows is None:
        size = len(ids) if isinstance(ids, list) else len(targets or [])
    if ids is None and id is not None:
        ids = [id] if size == 1 else [f"{id}/{i}" for i in range(size)]
    keys = _one_or_many(values, "key")
    for name, given in {"ids": ids, "targets": targets, "keys": keys}.items():
        if given is not None and (not isinstance(given, list) or len(given) != size):
            raise RequestError(f"{name} must be a list with an entry for each of {size} rows.")
    coverage = values.get("coverage", parameters.get("coverage"))
    return Request(rows, size, id, ids, keys, targets, coverage, form or "rows")


def _rows(values: Mapping[str, Any], form: str) -> tuple[Rows | None, int]:
    if form == "":
        return None, 0
    if form == "inputs":
        return _from_tensors(values["inputs"])
    rows = [values["row"]] if form == "row" else values["rows"]
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise RequestError(f"{form} must be {'an object' if form == 'row' else 'objects'}.")
    return rows, len(rows)


def _one_or_many(values: Mapping[str, Any], name: str) -> Any:
    """Return the list that a request has under a name or its plural, or `None`."""
    return [values[name]] if name in values else values.get(f"{name}s")


def _from_tensors(inputs: Any) -> tuple[Rows, int]:
    """Return the rows of tensors, one for each feature; one with two dimensions is several."""
    if not isinstance(inputs, list) or not inputs:
        raise RequestError("inputs must be a list of tensors, one for each feature.")
    columns: dict[str, list[Any]] = {}
    words = False
    for tensor in inputs:
        name, shape, values = _checked_tensor(tensor)
        words |= tensor["datatype"] == "BYTES"
        if len(shape) == 2:
            width = shape[1]
            columns |= {f"{name}_{j}": values[j::width] for j in range(width)}
        else:
            columns[name] = values
    sizes = {len(values) for values in columns.values()}
    if len(sizes) != 1:
        raise RequestError(f"inputs must all have as many rows, but they have {sorted(sizes)}.")
    (size,) = sizes
    if words:
        names, lines = list(columns), zip(*columns.values(), strict=True)
        return [dict(zip(names, line, strict=True)) for line in lines], size
    try:
        array = np.array(list(columns.values()), np.float64).T
    except (TypeError, ValueError, OverflowError):
        raise RequestError("data must be numbers where the datatype is not BYTES.") from None
    return Table(list(columns), array), size


def _checked_tensor(tensor: Any) -> tuple[str, list[int], list[Any]]:
    if not isinstance(tensor, dict) or not tensor.keys() >= {"name", "shape", "datatype", "data"}:
        raise RequestError("an input must have name, shape, datatype and data.")
    name, shape, datatype, data = (tensor[key] for key in ("name", "shape", "datatype", "data"))
    if not isinstance(name, str):
        raise RequestError(f"the name of an input must be a text, but is {name!r}.")
    if datatype not in DATATYPES:
        raise RequestError(f"the datatype of {name} is {datatype!r}, not one of the protocol.")
    sizes = isinstance(shape, list) and all(type(size) is int and size >= 0 for size in shape)
    if not sizes or len(shape) not in (1, 2):
        raise RequestError(f"the shape of {name} must be [rows] or [rows, columns].")
    if isinstance(data, list) and data and isinstance(data[0], list):
        # The protocol allows nested data as well as flat.
        data = [value for line in data for value in (line if isinstance(line, list) else [line])]
    if not isinstance(data, list) or len(data) != math.prod(shape):
        raise RequestError(f"the data of {name} must have {math.prod(shape)} values, as its shape.")
    return name, shape, data


def tensor(name: str, values: Sequence[Any], shape: Sequence[int] | None = None) -> dict[str, Any]:
    """Return an output tensor; its datatype is that of the values, or BYTES."""
    kinds = {type(value) for value in values}
    datatypes = {bool: "BOOL", int: "INT64", float: "FP64"}
    datatype = datatypes.get(kinds.pop(), "BYTES") if len(kinds) == 1 else "BYTES"
    if datatype == "BYTES":
        values = [value if value is None else str(value) for value in values]
    size = [len(values)] if shape is None else list(shape)
    return {"name": name, "datatype": datatype, "shape": size, "data": list(values)}


def to_json(value: Any) -> bytes:
    """Return standard JSON, in which NaN and infinite numbers are null."""
    return orjson.dumps(value, default=_plain, option=OPTIONS)


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else str(value)
