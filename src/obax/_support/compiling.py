"""Compiling, with what a version of jaxlib needs to compute the right numbers."""

import functools
import warnings
from collections.abc import Callable
from typing import Any, Literal, TypeVar

import equinox as eqx
import jaxlib

T = TypeVar("T")

# jaxlib 0.10.2 on CPU hands some sums to a kernel that is wrong from output 32,768 on, in silence
# (docs/jax-versions.md).
FAULTY = jaxlib.__version__ == "0.10.2"
OPTIONS = {"xla_cpu_experimental_ynn_fusion_type": ""} if FAULTY else None
# Every program takes a second to compile and a hundred memory mappings, of which Linux gives a
# process 65,530: without a limit, a loop that compiles again in every turn ends in a crash.
MOST_PROGRAMS = 64
MANY_PROGRAMS = 32


class RecompilationWarning(UserWarning):
    """Something is compiled again and again."""


class _Programs:
    """The programs that one function was compiled to: counted, told of, and released in time."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._known = self._made = 0
        self._told = False

    def look(self, jitted: Any) -> None:
        """After a call."""
        count = jitted._cached._cache_size()
        if count <= self._known:
            return
        self._made += count - self._known
        self._known = count
        if self._made >= MANY_PROGRAMS and not self._told:
            self._told = True
            warnings.warn(
                f"{self._name} was compiled for the {self._made}th time in this process. A "
                f"function that is new in every call (a lambda or schedule made inside a loop, a "
                f"problem built again) and every other length or shape of rounds is compiled "
                f"anew: define functions and problems once, outside the loop.",
                RecompilationWarning,
                stacklevel=4,
            )
        if count >= MOST_PROGRAMS:
            jitted._cached.clear_cache()
            self._known = 0


def compiled(
    function: Callable[..., T], donate: Literal["none", "all-except-first"] = "none"
) -> Callable[..., T]:
    """`eqx.filter_jit` whose sums are right in every version of jaxlib, and whose programs do not
    pile up.

    Inside another compiled function it cannot choose: there the options are those of the outermost.
    """
    inside = eqx.filter_jit(function, donate=donate)
    # Equinox passes on what it does not know to `jax.jit`.
    outermost = eqx.filter_jit(function, donate=donate, compiler_options=OPTIONS)  # type: ignore[call-overload]
    programs = _Programs(f"{function.__module__}.{function.__name__}")

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> T:
        try:
            found = outermost(*args, **kwargs)
        except ValueError as error:
            # What JAX says to options inside another compiled function.
            if "compiler_options" not in str(error):
                raise
            return inside(*args, **kwargs)
        programs.look(outermost)
        return found

    return call
