"""Modules whose fields are made when somebody looks at them."""

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

import equinox as eqx

M = TypeVar("M", bound="Lazy")
K = TypeVar("K")
# Makes the fields of these names from what was kept for them.
Make = Callable[[K, list[str]], dict[str, object]]

SOURCE = "_source"
# The attribute `__dict__` as Python itself has it, below the property of the same name.
_dict_of: Callable[[object], dict[str, object]] = next(
    vars(kind)["__dict__"].__get__ for kind in eqx.Module.__mro__ if "__dict__" in vars(kind)
)


class Lazy(eqx.Module):
    """An Equinox module that may be given a source of its fields in place of their values.

    Nobody can tell: a field is made when it is first asked for, and whoever asks for the whole
    (`jax.tree.map`, a jitted function, `obax.save`) reads `__dict__`, as Equinox does, and finds
    all of them there.
    """

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> object:
            # Called only for what is not there.
            held = _dict_of(self)
            if SOURCE not in held or name not in self.__dataclass_fields__:
                raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
            make, kept = held[SOURCE]
            return held.setdefault(name, make(kept, [name])[name])

        @property
        def __dict__(self) -> dict[str, object]:
            held = _dict_of(self)
            if (source := held.get(SOURCE)) is not None:
                make, kept = source
                missing = [name for name in self.__dataclass_fields__ if name not in held]
                for name, value in make(kept, missing).items():
                    held.setdefault(name, value)
                # Equinox takes one entry too many for a wrapped function.
                held.pop(SOURCE, None)
            return held


def lazy(kind: type[M], known: dict[str, object], make: Make[K], kept: K) -> M:
    """A module of which some fields are known; `make` makes the others when they are asked for."""
    module = object.__new__(kind)
    held = _dict_of(module)
    held.update(known)
    held[SOURCE] = (make, kept)
    return module
