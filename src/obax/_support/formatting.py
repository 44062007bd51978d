"""Numbers and objects as a person writes them down: for reprs, notebooks and summaries.

Everything here must also work on what is being traced, where there are shapes but no numbers.
"""

import dataclasses
import html
from collections.abc import Iterable
from typing import Any

import jax
import numpy as np

# Longer arrays are format_value by their shape and range.
FEW = 6


def format_value(value: Any) -> str:
    """A number, an array, a function or a tree of them in few words.

    >>> format_value(np.float32(0.1)), format_value(np.arange(3.0)), format_value(max)
    ('0.1', '[0.0, 1.0, 2.0]', 'max')
    >>> format_value({"a": np.array(2.0)})
    "{'a': 2.0}"
    >>> format_value(np.linspace(-1, 1, 1000).reshape(10, 100))
    'float64[10,100] from -1.0 to 1.0'
    """
    if isinstance(value, dict):
        return (
            "{" + ", ".join(f"{key!r}: {format_value(part)}" for key, part in value.items()) + "}"
        )
    if isinstance(value, tuple | list) and not hasattr(value, "_fields"):
        inside = ", ".join(map(format_value, value))
        return f"[{inside}]" if isinstance(value, list) else f"({inside}{',' * (len(value) == 1)})"
    if isinstance(value, bool | str | type(None)) or not hasattr(value, "dtype"):
        name = getattr(value, "__name__", None)
        if name is not None:
            return "a function" if name == "<lambda>" else name
        return (
            f"{value:.6g}" if isinstance(value, float) and value != int_of(value) else repr(value)
        )
    return _array(value)


def int_of(value: float) -> float | None:
    """A whole number that is short to write, or `None`."""
    return value if abs(value) < 1e6 and value == round(value) else None


def format_number(value: float) -> str:
    """Six digits, and a point where it is a whole number: `-8.0`, `0.1`, `1e-06`."""
    value = float(value)
    if not np.isfinite(value):
        return str(value)
    return f"{value:.1f}" if int_of(value) is not None else f"{value:.6g}"


def _array(value: Any) -> str:
    shape = ",".join(map(str, value.shape))
    words = f"{value.dtype}[{shape}]"
    # Keys of random numbers have no value to show, and what is traced has none yet.
    if isinstance(value, jax.core.Tracer | jax.ShapeDtypeStruct):
        return words
    if jax.dtypes.issubdtype(value.dtype, jax.dtypes.extended):
        return words
    array = np.asarray(value)
    if not array.size:
        return words
    floating = jax.numpy.issubdtype(array.dtype, jax.numpy.floating)
    if array.size <= FEW and array.ndim <= 1:
        numbers = [format_number(one) if floating else str(one) for one in array.ravel().tolist()]
        return f"[{', '.join(numbers)}]" if array.ndim else numbers[0]
    if not floating:
        return words
    low, high = float(np.min(array.astype(float))), float(np.max(array.astype(float)))
    return (
        f"{words} all {format_number(low)}"
        if low == high
        else f"{words} from {format_number(low)} to {format_number(high)}"
    )


def format_short(value: Any) -> str:
    """Four digits of a number that was measured; its shape while it is traced."""
    if isinstance(value, jax.core.Tracer):
        return format_value(value)
    return f"{float(value):.4g}"


def changed_fields(module: Any) -> list[tuple[str, Any]]:
    """The fields of a module that are set and not at their defaults, with their names."""
    found = []
    for field in dataclasses.fields(module):
        value, default = getattr(module, field.name), field.default
        if value is None or value is default:
            continue
        if isinstance(default, bool | int | float | str) and _is(value, default):
            continue
        found.append((field.name, value))
    return found


def _is(value: Any, default: bool | int | float | str) -> bool:
    """Whether a field still has its default, which may have become an array."""
    if not hasattr(value, "dtype"):
        return type(value) is type(default) and value == default
    if isinstance(default, str) or isinstance(value, jax.core.Tracer) or value.shape != ():
        return False
    return bool(np.isclose(float(value), default, rtol=1e-6, atol=0.0))


def table(title: str, rows: Iterable[tuple[str, str]]) -> str:
    """A small HTML table for a notebook."""
    cells = "".join(
        f"<tr><th style='text-align:left'>{html.escape(name)}</th>"
        f"<td style='text-align:left'>{html.escape(value)}</td></tr>"
        for name, value in rows
    )
    return f"<table><caption>{html.escape(title)}</caption>{cells}</table>"
