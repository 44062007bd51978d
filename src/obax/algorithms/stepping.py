"""`algorithm.step` as people call it: in a loop, inside `jax.jit`, under `vmap` or `scan`.

Inside a function that is being traced it is the plain function. Called with numbers it is compiled
first, once for each structure of algorithm, state and round: operation by operation a round of a
small problem takes a hundred times as long. The structure of the state is checked either way.
"""

from collections.abc import Callable
from typing import Any, TypeVar, cast

import equinox as eqx

from .._support import trees
from .._support.compiling import compiled

F = TypeVar("F", bound=Callable)


class Step(eqx.Module):
    """A method bound to an algorithm.

    A pytree, so that `eqx.filter_jit` sees the numbers of the algorithm; and, unlike Equinox's own
    bound methods, hashable, so that `jax.jit` takes it (the numbers are then constants).
    """

    algorithm: Any
    method: Callable = eqx.field(static=True)

    def __call__(self, state: Any, round: Any) -> Any:
        """Play one round."""
        trees.check_has_values(round)
        if trees.is_concrete((self.algorithm, state, round)):
            return _compiled(self.method, self.algorithm, state, round)
        self.algorithm.check_state(state)
        return self.method(self.algorithm, state, round)

    @property
    def __doc__(self) -> str | None:  # type: ignore[override]
        return self.method.__doc__

    def __hash__(self) -> int:
        return hash((id(self.algorithm), self.method))

    def __eq__(self, other: object) -> bool:
        same = isinstance(other, Step) and self.method is other.method
        return same and self.algorithm is cast(Step, other).algorithm


class _Descriptor:
    """A descriptor in place of that of Equinox, whose bound methods cannot be hashed."""

    def __init__(self, method: Callable):
        self.method = method
        self.__doc__ = method.__doc__
        self.__wrapped__ = method

    def __get__(self, instance: Any, owner: type | None = None) -> Callable:
        return self.method if instance is None else Step(instance, self.method)


def stepping(method: F) -> F:
    """Return a method that may be called anywhere, and is compiled if called with numbers."""
    # Equinox has wrapped the methods of a class by the time that a base class sees it.
    return cast(F, _Descriptor(getattr(method, "method", method)))


@compiled
def _compiled(method: Callable, algorithm: Any, state: Any, round: Any) -> Any:
    algorithm.check_state(state)
    return method(algorithm, state, round)
