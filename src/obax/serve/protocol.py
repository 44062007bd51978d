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
from starlette.exceptions import HTTPException
from starlette.responses import Response

from ..estimators import Table
from ..streaming.columns import parse_number

FLOATS = {"FP16", "FP32", "FP64"}
INTEGERS = {f"{sign}INT{bits}" for sign in ("", "U") for bits in (8, 16, 32, 64)}
DATATYPES = {"BOOL", "BYTES"} | FLOATS | INTEGERS
JSON_OPTIONS = orjson.OPT_NON_STR_KEYS | orjson.OPT_SERIALIZE_NUMPY
Rows = Table | list[dict[Any, Any]]


class RequestError(HTTPException):
    """A request that cannot be answered, with the HTTP status that says so."""

    def __init__(self, text: str, status: int = 400):
        headers = {"Retry-After": "1"} if status == 503 else None
        super().__init__(status, text, headers)


class Json(Response):
    """An answer in standard JSON, in which NaN and infinite numbers are null."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        """Return the bytes of plain values."""
        return to_json(content)


def to_json(value: Any) -> bytes:
    """Return standard JSON."""
    return orjson.dumps(value, default=_plain, option=JSON_OPTIONS)


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else str(value)


def error_response(error: HTTPException) -> Json:
    """Return the answer to a request that cannot be answered, in the form of the protocol."""
    return Json({"error": error.detail}, error.status_code, error.headers)


@dataclasses.dataclass(frozen=True)
class ModelRequest:
    """Rows of a request to a model, and what came with them."""

    form: str
    """How the rows came: `"inputs"`, `"row"` or `"rows"`."""
    rows: Rows | None
    """`None` to learn rows that wait under their ids."""
    size: int
    id: str | None
    """The id of the request, which its answer repeats."""
    ids: list[Hashable] | None
    keys: list[Any] | None
    targets: list[Any] | None
    coverage: float | None


def parse(body: bytes, key: str | None = None) -> ModelRequest:
    """Return the request in a body of JSON; raise a `RequestError` if there is none.

    In plain rows, texts that read as numbers are numbers, but for the column of the `key`.
    """
    try:
        values = orjson.loads(body)
    except ValueError as error:
        raise RequestError(f"the request is not JSON: {error}.") from None
    if not isinstance(values, dict):
        raise RequestError(f"the request must be an object, but is a {type(values).__name__}.")
    parameters = values.get("parameters") or {}
    if not isinstance(parameters, dict):
        raise RequestError("parameters must be an object.")
    # Clients of the protocol can send what it does not have in `parameters` only.
    values = parameters | values
    form = next((name for name in ("inputs", "row", "rows") if name in values), None)
    rows = None if form is None else _rows(values[form], form, key)
    id, ids = values.get("id"), values.get("ids")
    keys, targets = _one_or_many(values, "key"), _one_or_many(values, "target")
    if rows is None:
        size = len(ids) if isinstance(ids, list) else len(targets or [])
    else:
        size = len(rows)
    if ids is None and id is not None:
        ids = [id] if size == 1 else [f"{id}/{i}" for i in range(size)]
    for name, entries in {"ids": ids, "targets": targets, "keys": keys}.items():
        if entries is not None and (not isinstance(entries, list) or len(entries) != size):
            raise RequestError(f"{name} must be a list with an entry for each of {size} rows.")
    coverage = values.get("coverage")
    return ModelRequest(form or "rows", rows, size, id, ids, keys, targets, coverage)


def _one_or_many(values: Mapping[str, Any], name: str) -> Any:
    """Return the list that a request has under a name or its plural, or `None`."""
    return [values[name]] if name in values else values.get(f"{name}s")


def _rows(value: Any, form: str, key: str | None) -> Rows:
    if form == "inputs":
        return _from_tensors(value)
    rows = [value] if form == "row" else value
    if not isinstance(rows, list) or not rows or not all(isinstance(row, dict) for row in rows):
        expected = "an object" if form == "row" else "a list of at least one object"
        raise RequestError(f"{form} must be {expected}.")
    for row in rows:
        for name, value in row.items():
            if isinstance(value, str) and name != key:
                row[name] = parse_number(value)
    return rows


def _from_tensors(inputs: Any) -> Rows:
    """Return the rows of tensors, one for each feature; one with two dimensions is several."""
    if not isinstance(inputs, list) or not inputs:
        raise RequestError("inputs must be a list of tensors, one for each feature.")
    columns: dict[str, list[Any]] = {}
    for tensor in inputs:
        name, shape, data = _checked_tensor(tensor)
        if len(shape) == 2:
            columns |= {f"{name}_{j}": data[j :: shape[1]] for j in range(shape[1])}
        else:
            columns[name] = data
    sizes = {len(data) for data in columns.values()}
    if len(sizes) != 1:
        raise RequestError(f"inputs must all have as many rows, but they have {sorted(sizes)}.")
    if any(tensor["datatype"] == "BYTES" for tensor in inputs):
        lines = zip(*columns.values(), strict=True)
        return [dict(zip(columns, line, strict=True)) for line in lines]
    try:
        return Table(list(columns), np.array(list(columns.values()), np.float64).T)
    except (TypeError, ValueError, OverflowError):
        raise RequestError("data must be numbers where the datatype is not BYTES.") from None


def _checked_tensor(tensor: Any) -> tuple[str, list[int], list[Any]]:
    try:
        name, shape, datatype, data = (tensor[k] for k in ("name", "shape", "datatype", "data"))
    except (KeyError, TypeError):
        raise RequestError("an input must have name, shape, datatype and data.") from None
    if not isinstance(name, str):
        raise RequestError(f"the name of an input must be a text, but is {name!r}.")
    if not isinstance(datatype, str) or datatype not in DATATYPES:
        raise RequestError(f"the datatype of {name} is {datatype!r}, not one of the protocol.")
    if isinstance(data, list) and data and shape == [len(data)] and not isinstance(data[0], list):
        return name, shape, data
    sizes = isinstance(shape, list) and all(type(size) is int and size >= 0 for size in shape)
    if not sizes or len(shape) not in (1, 2):
        raise RequestError(f"the shape of {name} must be [rows] or [rows, columns].")
    if isinstance(data, list) and data and isinstance(data[0], list):
        # The protocol allows nested data as well as flat.
        data = [value for line in data for value in (line if isinstance(line, list) else [line])]
    if not isinstance(data, list) or len(data) != math.prod(shape):
        raise RequestError(f"the data of {name} must have {math.prod(shape)} values, as its shape.")
    return name, shape, data


def tensor(name: str, values: np.ndarray | Sequence[Any]) -> dict[str, Any]:
    """Return an output tensor; its datatype is that of the values, or BYTES."""
    if isinstance(values, np.ndarray):
        datatype, shape = "BOOL" if values.dtype == bool else "FP64", values.shape
        return {"name": name, "datatype": datatype, "shape": shape, "data": values.ravel()}
    kinds = {type(value) for value in values}
    datatypes = {bool: "BOOL", int: "INT64", float: "FP64"}
    datatype = datatypes.get(kinds.pop(), "BYTES") if len(kinds) == 1 else "BYTES"
    if datatype == "BYTES":
        values = [value if value is None else str(value) for value in values]
    return {"name": name, "datatype": datatype, "shape": [len(values)], "data": values}
