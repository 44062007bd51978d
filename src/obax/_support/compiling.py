"""Compilation, with what a version of jaxlib needs to compute the right numbers."""

import functools
import os
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal, TypeVar

import equinox as eqx
import jax
import jaxlib

from .checks import checked

T = TypeVar("T")

# jaxlib 0.10.2 on CPU passes some sums of single precision to a kernel that is wrong from output
# 32,768 on, without an error (docs/jax-versions.md). This setting of XLA switches the kernel off.
WRONG_JAXLIB, LARGEST_RIGHT = "0.10.2", 2**15
SETTING = "xla_cpu_experimental_ynn_fusion_type"
FAULTY = jaxlib.__version__ == WRONG_JAXLIB and SETTING not in os.environ.get("XLA_FLAGS", "")
OPTIONS = {SETTING: ""} if FAULTY else None
# Every program takes a second to compile and a hundred memory mappings, of which Linux gives a
# process 65,530: without a limit, a loop that compiles again in every turn ends in a crash.
MOST_PROGRAMS = 64
MANY_PROGRAMS = 32


class RecompilationWarning(UserWarning):
    """A warning that something is compiled again and again."""


class JaxlibWarning(UserWarning):
    """A warning that the version of jaxlib computes wrong numbers."""


def warn_of_jaxlib(version: str, unguarded: str, stacklevel: int = 2) -> None:
    """Warn that this version of jaxlib is wrong for what obax cannot guard."""
    if version == WRONG_JAXLIB:
        warnings.warn(
            f"jaxlib {version} computes wrong sums on CPU, in single precision from output "
            f"{LARGEST_RIGHT:,} on. obax guards what it compiles, but not {unguarded}. Install "
            f"another version (pip install 'jaxlib!={version}'), or set "
            f"XLA_FLAGS=--{SETTING}= before Python starts.",
            JaxlibWarning,
            stacklevel=stacklevel + 1,
        )


if FAULTY:
    warn_of_jaxlib(jaxlib.__version__, "your own jax.jit around it")


def compiled(
    function: Callable[..., T], donate: Literal["none", "all-except-first"] = "none"
) -> Callable[..., T]:
    """Return the function compiled by `eqx.filter_jit`, with right sums in every version of jaxlib.

    Programs are counted, so that they do not accumulate.

    Inside another compiled function the options are those of the outermost: a warning says so where
    the version of jaxlib is wrong and an array is large enough.
    """
    inside = eqx.filter_jit(function, donate=donate)
    # Equinox passes on what it does not know to `jax.jit`.
    outermost = eqx.filter_jit(function, donate=donate, compiler_options=OPTIONS)  # type: ignore[call-overload]
    # Programs in the cache after the last call, and those that were ever compiled.
    cached = made = 0

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> T:
        nonlocal cached, made
        try:
            result = outermost(*args, **kwargs)
        except ValueError as error:
            # What JAX says to options inside another compiled function.
            if "compiler_options" not in str(error):
                raise
            if any(getattr(leaf, "size", 0) > LARGEST_RIGHT for leaf in jax.tree.leaves(args)):
                warn_of_jaxlib(jaxlib.__version__, "the jax.jit that this call is inside of")
            return inside(*args, **kwargs)
        count = outermost._cached._cache_size()
        if count > cached:
            before, made = made, made + count - cached
            if before < MANY_PROGRAMS <= made:
                _warn_of_programs(f"{function.__module__}.{function.__name__}", made)
            if count >= MOST_PROGRAMS:
                outermost._cached.clear_cache()
                count = 0
        cached = count
        return result

    return call


def _warn_of_programs(name: str, made: int) -> None:
    warnings.warn(
        f"{name} was compiled for the {made}th time in this process. A function that is new in "
        f"every call (a lambda or schedule made inside a loop, a problem built again) and every "
        f"other length or shape of rounds is compiled anew: define functions and problems once, "
        f"outside the loop.",
        RecompilationWarning,
        stacklevel=4,
    )


@checked
def enable_compilation_cache(folder: str | Path | None = None) -> Path:
    """Keep compiled programs in a folder, from which the next process takes them; return it.

    Call it before the first program is compiled. The folder is by default `obax/jax` in
    `$XDG_CACHE_HOME` or `~/.cache`; what is in it is machine code that will be run, so it is made
    readable by you alone. It may be deleted at any time.

    >>> obax.enable_compilation_cache()  # doctest: +SKIP
    PosixPath('/home/ann/.cache/obax/jax')
    """
    from jax.experimental.compilation_cache import compilation_cache

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


def footprint(function: Callable[..., Any], *args: Any) -> int:
    """Return the bytes of what is alive at the worst moment, besides the arguments.

    They are counted from the operations of a function, before anything is compiled.

    An upper estimate: every result of an operation counts from where it is made to where it is last
    used, and what a compiler would fuse counts too.
    """
    return _peak(jax.make_jaxpr(function)(*jax.eval_shape(lambda: args)).jaxpr)


def _peak(jaxpr: Any) -> int:
    last_use = {id(var): index for index, one in enumerate(jaxpr.eqns) for var in one.invars}
    last_use |= {id(var): len(jaxpr.eqns) for var in jaxpr.outvars}
    ending: dict[int, int] = {}
    alive = peak = 0
    for index, equation in enumerate(jaxpr.eqns):
        for var in equation.outvars:
            size = var.aval.size * getattr(getattr(var.aval, "dtype", None), "itemsize", 8)
            alive += size
            end = last_use.get(id(var), index)
            ending[end] = ending.get(end, 0) + size
        peak = max(peak, alive + max(map(_peak, _inner_jaxprs(equation)), default=0))
        alive -= ending.pop(index, 0)
    return peak


def _inner_jaxprs(equation: Any) -> Iterator[Any]:
    """Yield the jaxprs of loops, branches and functions inside an operation."""
    for leaf in jax.tree.leaves([*equation.params.values()]):
        leaf = getattr(leaf, "jaxpr", leaf)
        if hasattr(leaf, "eqns"):
            yield leaf
