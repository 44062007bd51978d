"""Arguments held to the types that a signature promises, before anything is computed with them.

For functions that people call: a number that is a word, a problem that is none or a seed of 1.5 is
a `ValueError` that names the argument, and not an error from deep inside. What a range must be is
the function's own to say.
"""

import functools
import inspect
import math
import os
import sys
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from numbers import Integral, Real
from pathlib import PurePath
from typing import Any, TypeVar

import numpy as np

F = TypeVar("F", bound=Callable[..., Any])
TREES = {"rounds", "round", "outer_vars", "outer_var", "inner_var", "losses", "points", "buffers"}
"""What is any tree of arrays has no type to be read."""


def typed(function: F) -> F:
    """The same function, that looks at what it is given."""
    signature = inspect.signature(function)

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        for name, value in signature.bind(*args, **kwargs).arguments.items():
            parameter = signature.parameters[name]
            if value is not parameter.default and parameter.kind is not parameter.VAR_KEYWORD:
                check(value, name, _hints(function).get(name, Any))
        return function(*args, **kwargs)

    return typing.cast(F, call)


@functools.cache
def _hints(function: Callable[..., Any]) -> dict[str, Any]:
    try:
        return typing.get_type_hints(function)
    except NameError:
        # Names that only type checkers import: what can be read is.
        return {k: v for k, v in function.__annotations__.items() if not isinstance(v, str)}


def check(value: object, name: str, hint: Any) -> None:
    """Raise a `ValueError` if a value cannot be what the hint says."""
    kinds = typing.get_args(hint) if _is_union(hint) else (hint,)
    if value is None and type(None) in kinds:
        return
    if name in TREES and Any in kinds:
        _check_tree(value, name)
    if Any in kinds or any(_fits(value, kind) for kind in kinds):
        return
    expected = [_NAMES.get(kind) or _shown(kind) for kind in kinds if kind is not type(None)]
    raise ValueError(f"{name} must be {' or '.join(dict.fromkeys(expected))}, but got {value!r}.")


_NAMES: dict[Any, str] = {
    int: "an integer", float: "a number", bool: "True or False", str: "a string",
}  # fmt: skip


def _fits(value: object, kind: Any) -> bool:
    if kind is int:
        return isinstance(value, Integral) and not isinstance(value, bool)
    if kind is float:
        if getattr(value, "shape", None) == ():
            # A traced one cannot be looked at.
            return _is_numeric(value)
        real = isinstance(value, Real) and not isinstance(value, bool)
        return real and not math.isnan(typing.cast(float, value))
    if kind is bool:
        return isinstance(value, bool | np.bool_)
    if typing.get_origin(kind) is Callable or kind is Callable:
        return callable(value)
    if isinstance(kind, TypeVar):
        return kind.__bound__ is None or isinstance(value, kind.__bound__)
    held = typing.get_origin(kind) or kind
    if not isinstance(held, type) or hasattr(held, "array_type") or held.__name__ == "Array":
        # An array by whatever name, a variable, or what only type checkers know.
        return _is_numeric(value) or isinstance(value, list | tuple)
    if issubclass(held, PurePath):
        return isinstance(value, str | os.PathLike)
    return isinstance(value, held) and not (held is Sequence and isinstance(value, str | bytes))


def _check_tree(value: object, name: str) -> None:
    import equinox as eqx
    import jax

    is_module = lambda node: isinstance(node, eqx.Module)  # noqa: E731
    for leaf in jax.tree.leaves(value, is_leaf=is_module):
        # A network holds functions and words too, which stay as they are.
        if not is_module(leaf) and not _is_numeric(leaf):
            raise ValueError(
                f"{name} must hold arrays of numbers, but has {leaf!r} of type "
                f"{type(leaf).__name__} in it."
            )


def _is_numeric(value: object) -> bool:
    """A number, an array of them, or what stands for one while a function is traced; keys of
    `jax.random` too."""
    dtype = getattr(value, "dtype", np.dtype(object))
    return isinstance(value, Real) or getattr(dtype, "kind", "V") not in "OUSM"


def _is_union(hint: Any) -> bool:
    return typing.get_origin(hint) in (typing.Union, types.UnionType)


def _shown(kind: Any) -> str:
    held = typing.get_origin(kind) or kind
    name = getattr(held, "__name__", str(held))
    if name in getattr(sys.modules.get("obax"), "__all__", ()):
        return f"an obax.{name}"
    return {Callable: "a function", Mapping: "a dict"}.get(held, f"a {name}")
