"""What something is, in words that another process can compare with what it has.

An algorithm is numbers, words, functions and objects of these. `fingerprint` walks through it and
notes each by its place: small values as they are, so that a difference can be told, arrays by a
hash, a function by its code, the variables that it closes over and the globals that it uses.
Functions of libraries go by name: a new version of optax is not another algorithm. Of what cannot
be compared (an open file, a lock) only the type is noted.
"""

import dataclasses
import functools
import hashlib
import sys
import types
from collections.abc import Iterator, Mapping
from typing import Any

import jax
import numpy as np

from .functions import globals_of

Fingerprint = dict[str, str]
PLAIN = (bool, int, float, complex, str, bytes, type(None))
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
        elif isinstance(value, PLAIN):
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
