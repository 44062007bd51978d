"""Whether two functions do the same: in one process, to share compiled programs, and from one
process to the next, to notice on resume that a loss was edited.

A lambda written inside a loop is a new object in every turn, and a compiled program belongs to an
object, so that each turn would compile again. `interned` returns the earlier function if it has the
same code and defaults, and if what it closes over and the globals that it uses are the same and
cannot change.

`fingerprint` walks through an algorithm and notes each part by its place: small values as they are,
so that a difference can be named, arrays by a hash, a function by its code, the variables that it
closes over and the globals that it uses. Functions of libraries go by name: a new version of optax
is not another algorithm. Of what cannot be compared (an open file, a lock) only the type is noted.
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
SHOWN = (bool, int, float, complex, str, bytes, type(None))
PLAIN = (*SHOWN, type, types.ModuleType)
OPAQUE = (types.BuiltinFunctionType, type(jax.jit(lambda: None)), jnp.ufunc, np.ufunc)
KEPT = 512
_known: dict[tuple, types.FunctionType] = {}
_first: "weakref.WeakKeyDictionary[types.FunctionType, tuple]" = weakref.WeakKeyDictionary()
"""The key that each function had when it was first seen."""
_guard = threading.Lock()


class _NotSure(Exception):
    """Something in a closure may change."""


def interned(function: F) -> F:
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


Fingerprint = dict[str, str]
LIBRARIES = frozenset({
    "jax", "jaxlib", "numpy", "optax", "equinox", "lineax", "flax", "haiku", "obax", "scipy",
    "jaxtyping", "functools", "builtins", "operator", "math",
})  # fmt: skip
PYTHON = "Python"
CODE = "code "
LONGEST = 40


def fingerprint(value: Any) -> Fingerprint:
    """By place, from the outside in."""
    found = {PYTHON: f"{sys.version_info.major}.{sys.version_info.minor}"}
    _Walk(found).into(value, "")
    return found


def differences(before: Fingerprint, now: Fingerprint) -> list[str]:
    """What differs, in words; code only where both were made by one version of Python, which is
    what writes it."""
    same_python = before.get(PYTHON) == now.get(PYTHON)
    places: list[str] = []
    found: list[str] = []
    for place in [*now, *(place for place in before if place not in now)]:
        was, came = before.get(place), now.get(place)
        if place == PYTHON or was == came or any(place.startswith(other) for other in places):
            continue
        written = [one for one in (was, came) if one is not None and one.startswith(CODE)]
        if written and not same_python:
            continue
        places.append(place)
        name = place.lstrip("./") or "its kind"
        if len(written) == 2:
            found.append(f"{name} (other code)")
        else:
            found.append(f"{name} ({was or 'not there'} before, {came or 'not there'} now)")
    return found


class _Walk:
    """One walk through a value."""

    def __init__(self, found: Fingerprint):
        self.found = found
        # Where an object was met first; kept, so that its id stays its own.
        self.met: dict[int, tuple[str, object]] = {}

    def into(self, value: Any, place: str) -> None:
        """Note a value and what is inside it."""
        if isinstance(value, jax.core.Tracer):
            self.found[place] = type(value).__name__
        elif isinstance(value, SHOWN):
            self.found[place] = _short(repr(value))
        elif isinstance(value, np.ndarray | np.generic | jax.Array):
            self.found[place] = _array(value)
        elif isinstance(value, type | types.ModuleType | types.BuiltinFunctionType | np.dtype):
            self.found[place] = _name(value)
        elif id(value) in self.met:
            self.found[place] = f"as {self.met[id(value)][0] or 'the whole'}"
        else:
            self.met[id(value)] = place, value
            self._parts(value, place)

    def _parts(self, value: Any, place: str) -> None:
        if isinstance(value, types.FunctionType):
            self._function(value, place)
            return
        if hasattr(value, "__wrapped__"):
            # Compiled or cached, a function does what it does; it may have derivatives of its own.
            self.into(value.__wrapped__, place)
            for name in ("jvp", "fwd", "bwd"):
                if hasattr(value, name):
                    self.into(getattr(value, name), f"{place}.{name}")
            return
        self.found[place] = _name(type(value))
        if isinstance(value, set | frozenset):
            self.found[place] = _short(repr(sorted(map(repr, value))))
            return
        for name, part in _inside(value):
            self.into(part, f"{place}{name}")
        self._methods(type(value), place)

    def _function(self, function: types.FunctionType, place: str) -> None:
        code, name = function.__code__, _name(function)
        ours = name.split(".")[0] not in LIBRARIES
        self.found[place] = CODE + _hash(*_written(code, function.__doc__)) if ours else name
        for variable, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
            try:
                self.into(cell.cell_contents, f"{place}/{variable}")
            except ValueError:  # a cell that is still empty
                self.found[f"{place}/{variable}"] = "nothing"
        defaults = function.__defaults__, function.__kwdefaults__
        if any(defaults):
            self.into(defaults, f"{place}/defaults")
        if ours:
            for variable in sorted(globals_of(code) & function.__globals__.keys()):
                self.into(function.__globals__[variable], f"{place}/{variable}")

    def _methods(self, kind: type, place: str) -> None:
        """The code of a class that no library wrote: an algorithm, a loss that can be called."""
        for base in kind.__mro__:
            if base.__module__.split(".")[0] in LIBRARIES:
                continue
            for name, member in vars(base).items():
                # Equinox wraps methods; what dataclasses write for themselves is not of interest.
                method = getattr(member, "__wrapped__", getattr(member, "method", member))
                dunder = name.startswith("__") and name != "__call__"
                if isinstance(method, types.FunctionType) and not dunder:
                    self.into(method, f"{place}.{name}()")


def _inside(value: Any) -> Iterator[tuple[str, Any]]:
    """The parts of a value, by what they are called."""
    if dataclasses.is_dataclass(value):
        for field in dataclasses.fields(value):
            yield f".{field.name}", getattr(value, field.name, None)
    elif isinstance(value, tuple | list):
        names = getattr(value, "_fields", None)
        for index, part in enumerate(value):
            yield f"[{index}]" if names is None else f".{names[index]}", part
    elif isinstance(value, Mapping):
        for key in sorted(value, key=repr):
            yield f"[{key!r}]", value[key]
    elif isinstance(value, functools.partial):
        yield from ((".func", value.func), (".args", value.args), (".keywords", value.keywords))
    elif isinstance(value, types.MethodType):
        yield from ((".function", value.__func__), (".self", value.__self__))
    elif type(value).__module__.split(".")[0] not in LIBRARIES and hasattr(value, "__dict__"):
        yield from ((f".{name}", part) for name, part in vars(value).items() if name[0] != "_")


def _written(code: types.CodeType, doc: str | None = None) -> Iterator[bytes]:
    """What a function does, without where it stands and what it is called."""
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


def _name(value: Any) -> str:
    if isinstance(value, types.ModuleType):
        return value.__name__
    if isinstance(value, np.dtype):
        return str(value)
    return f"{value.__module__}.{value.__qualname__}"


def _short(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}... {_hash(text.encode())}"


def _hash(*parts: bytes) -> str:
    whole = hashlib.blake2b(digest_size=8)
    for part in parts:
        whole.update(len(part).to_bytes(8, "little"))
        whole.update(part)
    return whole.hexdigest()
