"""Functions that are the same although they were made anew.

A lambda written inside a loop is another object in every turn, and a compiled program belongs to an
object: each turn would compile again. Two functions with the same code, globals, defaults and
closure do the same, as long as what they close over cannot change.
"""

import threading
import types
from collections.abc import Callable
from typing import Any, TypeVar

import jax

F = TypeVar("F", bound=Callable[..., Any] | None)
PLAIN = (bool, int, float, complex, str, bytes, type(None), type, types.ModuleType)
KEPT = 512
_known: dict[tuple, types.FunctionType] = {}
_guard = threading.Lock()


class _NotSure(Exception):
    """Something in a closure may change."""


def shared(function: F) -> F:
    """An earlier function that does the same, if there is one; otherwise this one."""
    if not isinstance(function, types.FunctionType):
        return function
    try:
        key = _key(function)
    except (_NotSure, ValueError):  # a cell that is still empty is a ValueError
        return function
    with _guard:
        found = _known.pop(key, function)
        _known[key] = found
        while len(_known) > KEPT:
            del _known[next(iter(_known))]
    return found  # type: ignore[return-value]


def _key(value: Any) -> Any:
    """What tells one value from another for as long as this key's owner is kept."""
    if isinstance(value, types.FunctionType):
        cells = tuple(_key(cell.cell_contents) for cell in value.__closure__ or ())
        defaults = value.__defaults__, tuple((value.__kwdefaults__ or {}).items())
        return "function", value.__code__, id(value.__globals__), cells, _key(defaults)
    if isinstance(value, tuple) and type(value) is tuple:
        return tuple(map(_key, value))
    if type(value) in PLAIN or isinstance(value, type | types.ModuleType):
        return type(value), value
    # Arrays of JAX never change; the function that is kept keeps them alive, and their ids taken.
    if isinstance(value, jax.Array) and not isinstance(value, jax.core.Tracer):
        return "array", id(value)
    raise _NotSure
