"""Messages to people, and numbers and objects in them. What takes time to load is loaded late.

The functions for numbers must also work on what is being traced, where there are shapes but no
numbers.
"""

import dataclasses
import difflib
import math
import sys
from collections.abc import Iterable
from typing import Any

# Longer arrays are described by their shape and range.
FEW = 6


class UserError(Exception):
    """An error that a person can correct. The command line prints it and exits with code 2."""


def nearest(word: str, choices: Iterable[str], cutoff: float = 0.6) -> str:
    """Return ` Did you mean ...?` for a word that is none of the choices, or nothing."""
    close = difflib.get_close_matches(word, list(choices), n=1, cutoff=cutoff)
    return f" Did you mean {close[0]!r}?" if close else ""


def counted(number: int, noun: str, plural: str = "") -> str:
    """Return a number of things in words.

    >>> counted(1, "round"), counted(12000, "round"), counted(0, "class", "classes")
    ('1 round', '12,000 rounds', '0 classes')
    """
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def format_value(value: Any) -> str:
    """Return a number, an array, a function or a tree of them in few words.

    >>> import numpy as np
    >>> format_value(np.float32(0.1)), format_value(np.arange(3.0)), format_value(max)
    ('0.1', '[0.0, 1.0, 2.0]', 'max')
    >>> format_value({"a": np.array(2.0)})
    "{'a': 2.0}"
    >>> format_value(np.linspace(-1, 1, 1000).reshape(10, 100))
    'float64[10,100] from -1.0 to 1.0'
    """
    if isinstance(value, dict):
        parts = [f"{key!r}: {format_value(part)}" for key, part in value.items()]
        return "{" + ", ".join(parts) + "}"
    if isinstance(value, tuple | list) and not hasattr(value, "_fields"):
        inside = ", ".join(map(format_value, value))
        return f"[{inside}]" if isinstance(value, list) else f"({inside}{',' * (len(value) == 1)})"
    if isinstance(value, bool | str | type(None)) or not hasattr(value, "dtype"):
        name = getattr(value, "__name__", None)
        if name is not None:
            return "a function" if name == "<lambda>" else name
        rounds = isinstance(value, float) and value != int_of(value)
        return f"{value:.6g}" if rounds else repr(value)
    return _array(value)


def int_of(value: float) -> float | None:
    """Return a whole number that is short to write, or `None`."""
    return value if abs(value) < 1e6 and value == round(value) else None


def format_number(value: float) -> str:
    """Return six digits, and a point for a whole number: `-8.0`, `0.1`, `1e-06`."""
    value = float(value)
    if not math.isfinite(value):
        return str(value)
    return f"{value:.1f}" if int_of(value) is not None else f"{value:.6g}"


def _array(value: Any) -> str:
    import numpy as np

    shape = ",".join(map(str, value.shape))
    words = f"{value.dtype}[{shape}]"
    # Shapes and keys of random numbers have no value to show, and what is traced has none yet.
    has_value = hasattr(value, "__array__") and hasattr(value.dtype, "kind")
    if is_traced(value) or not has_value or not value.size:
        return words
    array = np.asarray(value)
    # Not by its kind, which is that of a structure for bfloat16.
    floating = "float" in array.dtype.name
    if array.size <= FEW and array.ndim <= 1:
        numbers = [format_number(one) if floating else str(one) for one in array.ravel().tolist()]
        return f"[{', '.join(numbers)}]" if array.ndim else numbers[0]
    if not floating:
        return words
    low, high = float(np.min(array.astype(float))), float(np.max(array.astype(float)))
    if low == high:
        return f"{words} all {format_number(low)}"
    return f"{words} from {format_number(low)} to {format_number(high)}"


def is_traced(value: object) -> bool:
    """Return whether JAX is tracing this value, so that it cannot be tested with `if`."""
    jax = sys.modules.get("jax")
    return jax is not None and isinstance(value, jax.core.Tracer)


def format_short(value: Any) -> str:
    """Return four digits of a number that was measured; its shape while it is traced."""
    if is_traced(value):
        return format_value(value)
    return f"{float(value):.4g}"


def changed_fields(module: Any) -> list[tuple[str, Any]]:
    """Return names and values of the fields of a module that do not have their defaults."""
    changed = []
    for field in dataclasses.fields(module):
        value, default = getattr(module, field.name), field.default
        if value is None or value is default:
            continue
        if isinstance(default, bool | int | float | str) and _has_default(value, default):
            continue
        changed.append((field.name, value))
    return changed


def described(module: Any, unnamed: str = "") -> str:
    """Return `Name(field=value, ...)`, of the fields that do not have their defaults; the name of
    one of them may be left out."""
    fields = [f"{name}={format_value(value)}" for name, value in changed_fields(module)]
    return f"{type(module).__name__}({', '.join(fields).removeprefix(f'{unnamed}=')})"


def _has_default(value: Any, default: bool | int | float | str) -> bool:
    """Return whether a field still has its default, which may have become an array."""
    if not hasattr(value, "dtype"):
        return type(value) is type(default) and value == default
    if isinstance(default, str) or is_traced(value) or value.shape != ():
        return False
    return math.isclose(float(value), default, rel_tol=1e-6)
