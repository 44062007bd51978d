"""Identity of functions: do two do the same, in one process or in one after another?

In one process they share compiled programs; on resume a loss that was edited is noticed.

A lambda written inside a loop is a new object in every turn, and a compiled program belongs to an
object, so that each turn would compile again. `interned` returns the earlier function if it has the
same code and defaults, and if what it closes over and the globals that it uses are the same and
cannot change.

`fingerprint` describes every part of an algorithm by its place: small values as they are, so that a
difference can be named, arrays by a hash, a function by its code, the variables that it closes over
and the globals that it uses. Functions of libraries go by name: a new version of optax is not
another algorithm. Of what cannot be compared (an open file, a lock) only the type is noted.
"""

import dataclasses
import dis
import functools
import hashlib
import sys
import threading
import types
import weakref
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

F = TypeVar("F", bound=Callable[..., Any] | None)
Fingerprint = dict[str, str]
LIBRARIES = frozenset({
    "jax", "jaxlib", "numpy", "optax", "equinox", "lineax", "flax", "haiku", "obax", "scipy",
    "jaxtyping", "functools", "builtins", "operator", "math",
})  # fmt: skip
VALUES = (bool, int, float, complex, str, bytes, type(None))
# Arrays of JAX never change, nor do functions that are compiled already.
CONSTANT = (types.BuiltinFunctionType, type(jax.jit(lambda: None)), jnp.ufunc, np.ufunc, jax.Array)
KEPT, LONGEST = 512, 40
PYTHON, CODE, DEFAULTS = "Python", "code ", "/defaults"
EMPTY = object()
_known: dict[tuple, types.FunctionType] = {}
# The key that each function had when it was first seen.
_first: "weakref.WeakKeyDictionary[types.FunctionType, tuple]" = weakref.WeakKeyDictionary()
_guard = threading.Lock()


class _NotConstant(Exception):
    """Something in a closure may change."""


def interned(function: F) -> F:
    """Return an earlier function that does the same, if there is one; otherwise this one."""
    key = _key_or_none(function)
    if not isinstance(function, types.FunctionType) or key is None:
        return function
    with _guard:
        # Compiled when its variables had other values, it is not what a new one would be.
        if _first.setdefault(function, key) != key:
            return function
        earlier = _known.pop(key, function)
        # The variable of a loop changes under functions that were made in earlier turns.
        if earlier is not function and _key_or_none(earlier) != key:
            earlier = function
        _known[key] = earlier
        while len(_known) > KEPT:
            del _known[next(iter(_known))]
    return earlier  # type: ignore[return-value]


def _key_or_none(function: Any) -> Any:
    try:
        return _key(function)
    except _NotConstant:
        return None


def _key(value: Any, outside: tuple[types.FunctionType, ...] = ()) -> Any:
    """Return what tells one value from another for as long as the key's owner is kept.

    `outside` are the functions that contain it.
    """
    if isinstance(value, types.FunctionType):
        if value in outside:
            return "recursion", outside.index(value)
        inside = (*outside, value)
        parts = []
        for name, part in _variables(value):
            if name == DEFAULTS:
                part = part[0], tuple((part[1] or {}).items())
            parts.append(_key(part, inside))
        return "function", value.__code__, id(value.__globals__), *parts
    if type(value) is tuple:
        return tuple(_key(one, outside) for one in value)
    if isinstance(value, type | types.ModuleType) or type(value) in VALUES:
        return type(value), value
    if isinstance(value, CONSTANT) and not isinstance(value, jax.core.Tracer):
        return _Same(value)
    raise _NotConstant


class _Same:
    """Equal to what holds the same object, which it keeps alive: an id alone may be taken again."""

    def __init__(self, value: object):
        self.value = value

    def __hash__(self) -> int:
        return id(self.value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and other.value is self.value


@functools.lru_cache(maxsize=4096)
def globals_of(code: types.CodeType) -> frozenset[str]:
    """Return the names that a function, and those inside it, look up in their module."""
    names = {one.argval for one in dis.get_instructions(code) if one.opname == "LOAD_GLOBAL"}
    inside = [one for one in code.co_consts if isinstance(one, types.CodeType)]
    return frozenset(names).union(*map(globals_of, inside))


def _variables(function: types.FunctionType, ours: bool = True) -> Iterator[tuple[str, Any]]:
    """Yield what a function closes over, its defaults and, if it is `ours`, the globals it uses."""
    names = function.__code__.co_freevars
    for name, cell in zip(names, function.__closure__ or (), strict=True):
        try:
            yield f"/{name}", cell.cell_contents
        except ValueError:
            yield f"/{name}", EMPTY
    if function.__defaults__ or function.__kwdefaults__:
        yield DEFAULTS, (function.__defaults__, function.__kwdefaults__)
    if ours:
        for name in sorted(globals_of(function.__code__) & function.__globals__.keys()):
            yield f"/{name}", function.__globals__[name]


def fingerprint(value: Any) -> Fingerprint:
    """Return a description of each part of a value by its place, from the outside in."""
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    return {PYTHON: python, **dict(_described(value, "", {}))}


def differences(before: Fingerprint, now: Fingerprint) -> list[str]:
    """Return what differs, in words.

    Code is compared only where both were made by one version of Python, which is what writes it.
    """
    same_python = before.get(PYTHON) == now.get(PYTHON)
    places: list[str] = []
    different: list[str] = []
    for place in [*now, *(place for place in before if place not in now)]:
        was, came = before.get(place), now.get(place)
        if place == PYTHON or was == came or any(place.startswith(other) for other in places):
            continue
        written = [one for one in (was, came) if one is not None and one.startswith(CODE)]
        if written and not same_python:
            continue
        places.append(place)
        change = f"{was or 'not there'} before, {came or 'not there'} now"
        if len(written) == 2:
            change = "other code"
        different.append(f"{place.lstrip('./') or 'its kind'} ({change})")
    return different


def _described(value: Any, place: str, met: dict[int, tuple]) -> Iterator[tuple[str, str]]:
    """Yield the places in a value and what is there. `met` has the objects that were described."""
    if isinstance(value, jax.core.Tracer):
        yield place, type(value).__name__
    elif isinstance(value, VALUES):
        yield place, _short(repr(value))
    elif isinstance(value, np.ndarray | np.generic | jax.Array):
        yield place, _array(value)
    elif isinstance(value, type | types.ModuleType | types.BuiltinFunctionType | np.dtype):
        yield place, _name(value)
    elif id(value) in met:
        yield place, f"as {met[id(value)][0] or 'the whole'}"
    else:
        # With the object, so that its id stays its own.
        met[id(value)] = place, value
        if isinstance(value, types.FunctionType):
            ours = _is_ours(_name(value))
            code = value.__code__
            yield place, CODE + _hash(*_written(code, value.__doc__)) if ours else _name(value)
        elif isinstance(value, set | frozenset):
            yield place, _short(repr(sorted(map(repr, value))))
        elif not hasattr(value, "__wrapped__"):
            yield place, _name(type(value))
        for name, part in _parts(value):
            yield from _described(part, place + name, met)


def _parts(value: Any) -> Iterator[tuple[str, Any]]:
    """Yield the parts of a value by name."""
    if isinstance(value, types.FunctionType):
        yield from _variables(value, _is_ours(_name(value)))
        return
    if hasattr(value, "__wrapped__"):
        # Compiled or cached, a function does what it does; it may have derivatives of its own.
        yield "", value.__wrapped__
        yield from (
            (f".{n}", getattr(value, n)) for n in ("jvp", "fwd", "bwd") if hasattr(value, n)
        )
        return
    if isinstance(value, set | frozenset):
        return
    if dataclasses.is_dataclass(value):
        for field in dataclasses.fields(value):
            yield f".{field.name}", getattr(value, field.name, None)
    elif isinstance(value, tuple | list):
        names = getattr(value, "_fields", None)
        for index, part in enumerate(value):
            yield f"[{index}]" if names is None else f".{names[index]}", part
    elif isinstance(value, Mapping):
        yield from ((f"[{key!r}]", value[key]) for key in sorted(value, key=repr))
    elif isinstance(value, functools.partial):
        yield from ((".func", value.func), (".args", value.args), (".keywords", value.keywords))
    elif isinstance(value, types.MethodType):
        yield from ((".function", value.__func__), (".self", value.__self__))
    elif _is_ours(type(value).__module__) and hasattr(value, "__dict__"):
        yield from ((f".{name}", part) for name, part in vars(value).items() if name[0] != "_")
    # The code of a class that no library wrote: an algorithm, a loss that can be called.
    for base in type(value).__mro__:
        for name, member in vars(base).items() if _is_ours(base.__module__) else ():
            # Equinox wraps methods; what dataclasses write for themselves is left out.
            method = getattr(member, "__wrapped__", getattr(member, "method", member))
            dunder = name.startswith("__") and name != "__call__"
            if isinstance(method, types.FunctionType) and not dunder:
                yield f".{name}()", method


def _written(code: types.CodeType, doc: str | None = None) -> Iterator[bytes]:
    """Yield what a function does, without its place, its name and its docstring."""
    yield code.co_code
    yield repr((code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars)).encode()
    yield repr((code.co_argcount, code.co_kwonlyargcount, code.co_flags)).encode()
    for number, constant in enumerate(code.co_consts):
        if isinstance(constant, types.CodeType):
            yield from _written(constant)
        elif isinstance(constant, frozenset):
            yield repr(sorted(map(repr, constant))).encode()
        elif number or constant != doc:
            yield repr(constant).encode()


def _array(value: Any) -> str:
    if isinstance(value, jax.Array) and not value.is_fully_addressable:
        return f"{value.dtype}{list(value.shape)} over processes"
    if isinstance(value, jax.Array) and jax.dtypes.issubdtype(value.dtype, jax.dtypes.prng_key):
        value = jax.random.key_data(value)
    array = np.asarray(value)
    if array.dtype == object:
        return f"objects{list(array.shape)}"
    if array.ndim == 0:
        return f"{array[()]!s} in {array.dtype}"
    return f"{array.dtype}{list(array.shape)} {_hash(np.ascontiguousarray(array).tobytes())}"


def _is_ours(name: str) -> bool:
    return name.split(".")[0] not in LIBRARIES


def _name(value: Any) -> str:
    if isinstance(value, types.ModuleType):
        return value.__name__
    return str(value) if isinstance(value, np.dtype) else f"{value.__module__}.{value.__qualname__}"


def _short(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}... {_hash(text.encode())}"


def _hash(*parts: bytes) -> str:
    digest = hashlib.blake2b(digest_size=8)
    for part in parts:
        digest.update(len(part).to_bytes(8, "little"))
        digest.update(part)
    return digest.hexdigest()
