"""Compiling, with what a version of jaxlib needs to compute the right numbers."""

import functools
import os
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, TypeVar

import equinox as eqx
import jax
import jaxlib
from jax.experimental.compilation_cache import compilation_cache

from .checks import checked

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


@checked
def enable_compilation_cache(folder: str | Path | None = None) -> Path:
    """Keep compiled programs in a folder, from which the next process takes them; returns it.

    Call it before the first program is compiled. The folder is by default `obax/jax` in
    `$XDG_CACHE_HOME` or `~/.cache`; what is in it is machine code that will be run, so it is made
    readable by you alone. It may be deleted at any time.

    >>> obax.enable_compilation_cache()  # doctest: +SKIP
    PosixPath('/home/ann/.cache/obax/jax')
    """
    if folder is None:
        home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
        folder = Path(home) / "obax" / "jax"
    path = Path(folder).expanduser().absolute()
    if path.exists() and not path.is_dir():
        raise ValueError(f"folder must be a folder for compiled programs, but {path} is a file.")
    path.mkdir(parents=True, exist_ok=True, mode=0o700)
    jax.config.update("jax_compilation_cache_dir", str(path))
    # By default JAX keeps only what took a second to compile: most of a round took less.
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.05)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", 0)
    # A process that has compiled something already has settled on no cache.
    compilation_cache.reset_cache()
    return path
