"""How much memory a function needs at once, from its operations, before anything is compiled."""

from collections.abc import Callable, Iterator
from typing import Any

import jax

from .trees import PyTree


def footprint(function: Callable[..., PyTree], *args: PyTree) -> int:
    """Bytes of what is alive at the worst moment, besides what goes in.

    An upper estimate: every result of an operation counts from where it is made to where it is last
    used, and what a compiler would fuse counts too.
    """
    shapes = jax.eval_shape(lambda: args)
    return _peak(jax.make_jaxpr(function)(*shapes).jaxpr)


def _peak(jaxpr: Any) -> int:
    last_use: dict[Any, int] = {}
    for index, equation in enumerate(jaxpr.eqns):
        last_use |= {id(var): index for var in equation.invars}
    last_use |= {id(var): len(jaxpr.eqns) for var in jaxpr.outvars}
    ending: dict[int, int] = {}
    alive = peak = 0
    for index, equation in enumerate(jaxpr.eqns):
        for var in equation.outvars:
            size = _size(var)
            alive += size
            end = last_use.get(id(var), index)
            ending[end] = ending.get(end, 0) + size
        inside = max(map(_peak, _parts(equation)), default=0)
        peak = max(peak, alive + inside)
        alive -= ending.pop(index, 0)
    return peak


def _parts(equation: Any) -> Iterator[Any]:
    """The jaxprs of loops, branches and functions inside an operation."""
    for value in equation.params.values():
        for one in value if isinstance(value, tuple | list) else (value,):
            one = getattr(one, "jaxpr", one)
            if hasattr(one, "eqns"):
                yield one


def _size(var: Any) -> int:
    dtype = getattr(var.aval, "dtype", None)
    return var.aval.size * getattr(dtype, "itemsize", 8)
