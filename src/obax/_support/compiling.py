"""Compiling, with what a version of jaxlib needs to compute the right numbers."""

import functools
from collections.abc import Callable
from typing import Any, Literal, TypeVar

import equinox as eqx
import jaxlib

T = TypeVar("T")

# jaxlib 0.10.2 on CPU hands some sums to a kernel that is wrong from output 32,768 on, in silence
# (docs/jax-versions.md).
FAULTY = jaxlib.__version__ == "0.10.2"
OPTIONS = {"xla_cpu_experimental_ynn_fusion_type": ""} if FAULTY else None


def compiled(
    function: Callable[..., T], donate: Literal["none", "all-except-first"] = "none"
) -> Callable[..., T]:
    """`eqx.filter_jit` whose sums are right in every version of jaxlib.

    Inside another compiled function it cannot choose: there the options are those of the outermost.
    """
    inside = eqx.filter_jit(function, donate=donate)
    if not FAULTY:
        return inside
    # Equinox passes on what it does not know to `jax.jit`.
    outermost = eqx.filter_jit(function, donate=donate, compiler_options=OPTIONS)  # type: ignore[call-overload]

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> T:
        try:
            return outermost(*args, **kwargs)
        except ValueError as error:
            # What JAX says to options inside another compiled function.
            if "compiler_options" not in str(error):
                raise
        return inside(*args, **kwargs)

    return call
