"""The one checker of arguments: an annotation says what an argument may be, and is the check.

    @checked
    def quadratic(horizon: Count, drift: NonNegative = 0.0) -> Instance: ...

    class AOBO(Checked, eqx.Module):              # also as a base of other Equinox modules
        tolerance: Positive = 1e-3
        max_steps: Count = 100

    @dataclasses.dataclass(frozen=True)
    class Config:
        rounds: Count = 400
        source: Literal["real", "synthetic"] = "real"

        def __post_init__(self) -> None:
            check_fields(self)

A wrong argument is a `ValueError` that names it, what was expected and what came. Values that JAX
traces pass, since they cannot be tested with `if`. Relations between arguments are plain `if`
statements in the function or class. This module does not import JAX.
"""

import dataclasses
import functools
import inspect
import math
import os
import re
import sys
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from numbers import Integral, Real
from pathlib import PurePath
from typing import Annotated, Any, ClassVar, Literal, TypeVar

import numpy as np

from .messages import is_traced

F = TypeVar("F", bound=Callable[..., Any])


@dataclasses.dataclass(frozen=True)
class Kind:
    """What an argument may be beyond its type: in words, as a test, and what it is converted to."""

    expected: str
    accepts: Callable[[Any], bool]
    convert: Callable[[Any], Any] = lambda value: value

    def fault(self, value: object) -> str | None:
        """Return what is wrong with a value, or `None`.

        The text is the rest of a sentence that begins with the name of the argument.
        """
        return None if self.accepts(value) else f"must be {self.expected}, but got {value!r}"


class NumberKind(Kind):
    """A finite number in a range. It becomes a floating-point array as a field of a module."""

    def fault(self, value: object) -> str | None:
        """Return whether it is no number, not a single one, not finite, or out of range."""
        if not is_numeric(value):
            is_plain = isinstance(value, bool | str | None)
            of = "" if is_plain else f" of type {type(value).__name__}"
            return f"must be a number, but got {value!r}{of}"
        if shape := np.shape(typing.cast(Any, value)):
            return f"must be one number, but has shape {shape}"
        if is_traced(value):
            return None
        if not math.isfinite(typing.cast(float, value)):
            return f"must be finite, but got {value!r}"
        # As a number of Python's: JAX would trace the comparison of an array inside `jit`.
        number = value if isinstance(value, int | float) else np.asarray(value).item()
        return None if self.accepts(number) else f"must be {self.expected}, but got {value!r}"


def is_integer(value: object) -> bool:
    """Return whether a value is an integer of Python or NumPy; `True` and `False` are none."""
    return isinstance(value, Integral) and not isinstance(value, bool)


def is_numeric(value: object) -> bool:
    """Return whether a value is a real number, or an array or list of them."""
    if isinstance(value, list | tuple):
        return bool(value) and all(map(is_numeric, value))
    if not hasattr(value, "dtype"):
        return isinstance(value, Real) and not isinstance(value, bool)
    # bfloat16 has the kind of a structure; keys of `jax.random` have none.
    return getattr(value.dtype, "kind", "") in tuple("iuf") or "float" in value.dtype.name


def at_least(least: int) -> Kind:
    """Return the kind of integers from `least` on."""
    return Kind(f"an integer >= {least}", lambda v: is_integer(v) and v >= least, int)


def within(expected: str, accepts: Callable[[Any], bool]) -> Kind:
    """Return the kind of finite numbers that `accepts` returns True for."""
    return NumberKind(expected, accepts)


def one_of(*words: object) -> Kind:
    """Return the kind of these words, for arguments that are any `str` to a type checker."""
    return Kind(f"one of {', '.join(map(repr, words))}", words.__contains__)


def function_of(signature: str) -> Kind:
    """Return the kind of functions; the signature is for the message."""
    return Kind(f"a function {signature}", callable)


def instance_of(kind: type | tuple[type, ...], expected: str) -> Kind:
    """Return the kind of instances of a class; `expected` shows how one is made."""
    return Kind(expected, lambda value: isinstance(value, kind))


Count = Annotated[int, at_least(1)]
NonNegativeInt = Annotated[int, at_least(0)]
Seed = Annotated[
    int, Kind("an integer in [0, 2**31)", lambda v: is_integer(v) and 0 <= v < 2**31, int)
]
Number = Annotated[float, within("a number", lambda v: True)]
Positive = Annotated[float, within("a number > 0", lambda v: v > 0)]
NonNegative = Annotated[float, within("a number >= 0", lambda v: v >= 0)]
Fraction = Annotated[float, within("in (0, 1]", lambda v: 0 < v <= 1)]
BelowOne = Annotated[float, within("in [0, 1)", lambda v: 0 <= v < 1)]


class _Arrays(Kind):
    def fault(self, value: object) -> str | None:
        for leaf in _leaves(value):
            if not is_numeric(leaf) and not _is_key_or_flag(leaf):
                kind = type(leaf).__name__
                return f"must hold arrays of numbers, but has {leaf!r} of type {kind} in it"
        return None


Arrays = Annotated[Any, _Arrays("a tree of arrays", lambda value: True)]
"""Any tree of arrays: rounds, variables. Networks may hold functions and words too."""


def check(value: Any, name: str, hint: Any) -> Any:
    """Return the value of an argument, converted to what its annotation says it is.

    >>> check(3, "rounds", Count)
    3
    >>> check(0, "rounds", Count)
    Traceback (most recent call last):
    ValueError: rounds must be an integer >= 1, but got 0.
    """
    kinds = _alternatives(hint)
    for none, what in ((None, type(None)), ((), tuple[()])):
        if what in kinds:
            kinds.remove(what)
            if value is none:
                return value
    faults = []
    for kind in kinds:
        fault = _fault(value, kind)
        if fault is None:
            return _converted(value, kind)
        faults.append(fault)
    if len(faults) > 1:
        expected = dict.fromkeys(_expected(kind) for kind in kinds)
        faults = [f"must be {' or '.join(expected)}, but got {value!r}"]
    raise ValueError(f"{name} {faults[0]}.")


def checked(function: F) -> F:
    """Return the same function, whose arguments are checked by their annotations."""
    signature = inspect.signature(function)

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        bound, hints = signature.bind(*args, **kwargs), _hints(function)
        for name, value in bound.arguments.items():
            parameter = signature.parameters[name]
            several = parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
            if value is not parameter.default and not several and name in hints:
                bound.arguments[name] = check(value, name, hints[name])
        return function(*bound.args, **bound.kwargs)

    return typing.cast(F, call)


def check_fields(instance: Any) -> dict[str, Any]:
    """Check the fields of a dataclass by their annotations; return their converted values."""
    hints = _hints(instance.__class__)
    names = [field.name for field in dataclasses.fields(instance)]
    return {name: check(getattr(instance, name), name, hints.get(name, Any)) for name in names}


class Checked:
    """A base of Equinox modules whose fields are checked and converted by their annotations.

    Numbers become floating-point arrays, which are leaves that a sweep can vary. Counts, flags and
    words are static: part of the structure. A field with a converter of its own is left alone.
    `class Window(Checked, eqx.Module, prefix="Window.")` puts a prefix before names in messages.
    """

    def __init_subclass__(cls, prefix: str = "", **options: Any) -> None:
        super().__init_subclass__(**options)
        import equinox as eqx

        for name, hint in vars(cls).get("__annotations__", {}).items():
            field = vars(cls).get(name, dataclasses.MISSING)
            if not isinstance(field, dataclasses.Field):
                field = dataclasses.field(default=field)
            skipped = isinstance(hint, str) or typing.get_origin(hint) is ClassVar
            if skipped or "converter" in field.metadata:
                continue
            convert = functools.partial(_field_value, name=prefix + name, hint=hint)
            static = field.metadata.get("static", _is_static(hint))
            kept = {key: getattr(field, key) for key in ("default", "default_factory", "kw_only")}
            kept = {key: v for key, v in kept.items() if v is not dataclasses.MISSING}
            setattr(cls, name, eqx.field(converter=convert, static=static, **kept))


def _field_value(value: Any, name: str, hint: Any) -> Any:
    value = check(value, name, hint)
    is_number = any(isinstance(_kind(one), NumberKind) for one in _alternatives(hint))
    if not is_number or value is None or not is_numeric(value):
        return value
    import jax
    import jax.numpy as jnp

    array = jnp.asarray(value)
    floating = jnp.issubdtype(array.dtype, jnp.floating)
    # Without JAX's weak type, which would compile a second program for the state that follows.
    return jax.lax.convert_element_type(array, array.dtype if floating else jnp.result_type(float))


def _is_static(hint: Any) -> bool:
    kinds = [kind for kind in _alternatives(hint) if kind is not type(None)]
    return all(
        typing.get_origin(kind) is Literal or _base(kind) in (int, bool, str) for kind in kinds
    )


@functools.cache
def _hints(owner: Any) -> dict[str, Any]:
    try:
        return typing.get_type_hints(owner, include_extras=True)
    except NameError:
        # Names that are imported for type checkers only.
        return {k: v for k, v in owner.__annotations__.items() if not isinstance(v, str)}


def _alternatives(hint: Any) -> list[Any]:
    is_union = typing.get_origin(hint) in (typing.Union, types.UnionType)
    return list(typing.get_args(hint)) if is_union else [hint]


def _kind(hint: Any) -> Kind | None:
    return next((one for one in getattr(hint, "__metadata__", ()) if isinstance(one, Kind)), None)


def _base(hint: Any) -> Any:
    return typing.get_args(hint)[0] if typing.get_origin(hint) is Annotated else hint


def _converted(value: Any, hint: Any) -> Any:
    if (kind := _kind(hint)) is not None:
        return kind.convert(value)
    return hint(value) if hint in (bool, int) else value


def _fault(value: Any, hint: Any) -> str | None:
    if (kind := _kind(hint)) is not None:
        return kind.fault(value)
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is tuple and isinstance(value, tuple) and arguments[1:] == (...,):
        if not value:
            return "must not be empty"
        wrong = [item for item in value if _fault(item, arguments[0])]
        expected = _plural(_expected(arguments[0]))
        return f"must be {expected}, but got {wrong[0]!r}" if wrong else None
    return None if _fits(value, hint) else f"must be {_expected(hint)}, but got {value!r}"


def _fits(value: Any, hint: Any) -> bool:
    """Return whether a value can be what a plain type says."""
    origin = typing.get_origin(hint) or hint
    if hint is Any or hint is object:
        return True
    if origin is Literal:
        return any(isinstance(value, type(one)) and value == one for one in typing.get_args(hint))
    if hint is int:
        return is_integer(value)
    if hint is float:
        if np.shape(value) == () and hasattr(value, "dtype"):
            return is_numeric(value)
        return is_numeric(value) and not isinstance(value, list | tuple) and value == value
    if hint is bool:
        return isinstance(value, bool | np.bool_)
    if origin is Callable:
        return callable(value)
    if isinstance(hint, TypeVar):
        return hint.__bound__ is None or isinstance(value, hint.__bound__)
    if not isinstance(origin, type) or hasattr(origin, "array_type") or origin.__name__ == "Array":
        return isinstance(value, list | tuple) or is_numeric(value) or _is_key_or_flag(value)
    if issubclass(origin, PurePath):
        return isinstance(value, str | os.PathLike)
    return isinstance(value, origin) and not (origin is Sequence and isinstance(value, str | bytes))


_WORDS: dict[Any, str] = {
    int: "an integer", float: "a number", bool: "True or False", str: "a string",
    Callable: "a function", Mapping: "a dict",
}  # fmt: skip


def _expected(hint: Any) -> str:
    if (kind := _kind(hint)) is not None:
        return kind.expected
    origin = typing.get_origin(hint) or hint
    if origin is Literal:
        return f"one of {', '.join(map(repr, typing.get_args(hint)))}"
    name = getattr(origin, "__name__", str(origin))
    if name in getattr(sys.modules.get("obax"), "__all__", ()):
        return f"an obax.{name}"
    return _WORDS.get(origin) or f"a {name}"


def _plural(expected: str) -> str:
    return re.sub(r"^one of ", "among ", re.sub(r"^an? (\w+)", r"\1s", expected))


def _is_key_or_flag(value: object) -> bool:
    """Return whether a value is a flag, an array of flags, or a key of `jax.random`."""
    dtype = getattr(value, "dtype", None)
    return isinstance(value, bool) or getattr(dtype, "kind", "V" if dtype else "O") not in "OUSM"


def _leaves(value: object) -> list[Any]:
    import equinox as eqx
    import jax

    is_module = lambda node: isinstance(node, eqx.Module)  # noqa: E731
    return [leaf for leaf in jax.tree.leaves(value, is_leaf=is_module) if not is_module(leaf)]
