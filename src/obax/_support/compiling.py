"""Compiling, with what a version of jaxlib needs to compute the right numbers."""

from collections.abc import Callable
from typing import TypeVar

import equinox as eqx
import jaxlib

F = TypeVar("F", bound=Callable)

# jaxlib 0.10.2 on CPU hands some sums to a kernel that is wrong from output 32,768 on, in silence
# (docs/jax-versions.md).
OPTIONS = {"xla_cpu_experimental_ynn_fusion_type": ""} if jaxlib.__version__ == "0.10.2" else None


def compiled(function: F) -> F:
    """`eqx.filter_jit` whose sums are right in every version of jaxlib."""
    return eqx.filter_jit(function, compiler_options=OPTIONS)
