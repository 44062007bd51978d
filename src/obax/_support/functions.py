"""Functions that are the same although they were made anew.

A lambda written inside a loop is another object in every turn, and a compiled program belongs to an
object: each turn would compile again. Two functions with the same code and defaults do the same, if
what they close over and the globals that they use (in a script, the variable of a loop is one) are
the same and cannot change.
"""

import dis
import functools
import threading
import types
import weakref
from collections.abc import Callable
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

F = TypeVar("F", bound=Callable[..., Any] | None)
PLAIN = (bool, int, float, complex, str, bytes, type(None), type, types.ModuleType)
OPAQUE = (types.BuiltinFunctionType, type(jax.jit(lambda: None)), jnp.ufunc, np.ufunc)
KEPT = 512
_known: dict[tuple, types.FunctionType] = {}
_first: "weakref.WeakKeyDictionary[types.FunctionType, tuple]" = weakref.WeakKeyDictionary()
"""The key that each function had when it was first seen."""
_guard = threading.Lock()


class _NotSure(Exception):
    """Something in a closure may change."""


def shared(function: F) -> F:
    """An earlier function that does the same, if there is one; otherwise this one."""
    if not isinstance(function, types.FunctionType):
        return function
    key = _sure(function)
    if key is None:
        return function
    with _guard:
        # Compiled when its variables had other values, it is not what a new one would be.
        if _first.setdefault(function, key) != key:
            return function
        found = _known.pop(key, function)
        # The variable of a loop changes under functions that were made in earlier turns.
        if found is not function and _sure(found) != key:
            found = function
        _known[key] = found
        while len(_known) > KEPT:
            del _known[next(iter(_known))]
    return found  # type: ignore[return-value]


def _sure(function: types.FunctionType) -> Any:
    """The key of a function, or `None` where it has none."""
    try:
        return _key(function)
    except (_NotSure, ValueError):  # a cell that is still empty is a ValueError
        return None


@functools.lru_cache(maxsize=4096)
def globals_of(code: types.CodeType) -> frozenset[str]:
    """Names that a function, and those inside it, look up in their module."""
    names = {one.argval for one in dis.get_instructions(code) if one.opname == "LOAD_GLOBAL"}
    inside = [one for one in code.co_consts if isinstance(one, types.CodeType)]
    return frozenset(names).union(*map(globals_of, inside))


def _key(value: Any, around: tuple[types.FunctionType, ...] = ()) -> Any:
    """What tells one value from another for as long as this key's owner is kept. `around` are the
    functions on the way to it."""
    if isinstance(value, types.FunctionType):
        if value in around:
            return "recursion", around.index(value)
        inside, known = (*around, value), value.__globals__
        cells = tuple(_key(cell.cell_contents, inside) for cell in value.__closure__ or ())
        used = sorted(globals_of(value.__code__) & known.keys())
        found = tuple(_key(known[name], inside) for name in used)
        defaults = value.__defaults__, tuple((value.__kwdefaults__ or {}).items())
        return "function", value.__code__, id(known), cells, found, _key(defaults, inside)
    if isinstance(value, tuple) and type(value) is tuple:
        return tuple(_key(one, around) for one in value)
    if type(value) in PLAIN or isinstance(value, type | types.ModuleType):
        return type(value), value
    # Arrays of JAX never change, nor do functions that are compiled already.
    if isinstance(value, OPAQUE):
        return _Same(value)
    if isinstance(value, jax.Array) and not isinstance(value, jax.core.Tracer):
        return _Same(value)
    raise _NotSure


class _Same:
    """Equal to what holds the same object, which it keeps alive: an id alone may be taken again."""

    def __init__(self, value: object):
        self.value = value

    def __hash__(self) -> int:
        return id(self.value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and other.value is self.value
