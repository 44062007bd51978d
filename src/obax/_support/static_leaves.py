"""Whole Equinox modules as variables: their floating arrays move, the rest is held.

What is held (activations, sizes, rates of dropout, integer arrays) stands in the *structure* of the
tree, where no gradient, optimiser, guard or ring buffer meets it; the losses get the module as it
was.
"""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike

from . import trees
from .function_identity import interned
from .trees import PyTree


@jax.tree_util.register_static
class StaticLeaf:
    """A part of a module that does not move; arrays are compared by value."""

    def __init__(self, value: Any):
        self.value = value

    @property
    def _key(self) -> object:
        if not eqx.is_array_like(self.value) or isinstance(self.value, bool | int | float):
            return type(self.value), self.value
        array = np.asarray(jax.random.key_data(self.value) if _is_key(self.value) else self.value)
        return str(self.value.dtype), array.shape, array.tobytes()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, StaticLeaf) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)

    def __repr__(self) -> str:
        return f"StaticLeaf({self.value!r})"


def _is_key(value: Any) -> bool:
    return isinstance(value, jax.Array) and jax.dtypes.issubdtype(value.dtype, jax.dtypes.prng_key)


def hold_static(tree: PyTree) -> PyTree:
    """The tree with all that is no floating array in an Equinox module held.

    Leaves outside of modules are left as they are.
    """

    def hold(node: PyTree) -> PyTree:
        if not isinstance(node, eqx.Module):
            return node
        return jax.tree.map(lambda leaf: leaf if _moves(leaf) else StaticLeaf(leaf), node)

    return jax.tree.map(hold, tree, is_leaf=lambda node: isinstance(node, eqx.Module))


def as_variable(tree: PyTree, name: str) -> PyTree:
    """Return a variable as a pytree of floating-point arrays, from arrays or Python floats. Of an
    Equinox module the floating-point arrays are leaves and the rest is static."""

    def leaf_as_array(name: str, leaf: ArrayLike) -> Array:
        try:
            array = jnp.asarray(leaf)
        except (TypeError, ValueError) as error:
            raise ValueError(
                f"{name} must be a floating-point array, but got {type(leaf).__name__}."
            ) from error
        if not trees.is_float(array):
            raise ValueError(
                f"{name} must be a floating-point array, but its dtype is {array.dtype}; "
                f"write 0.0 instead of 0, or convert it with .astype(float)."
            )
        if trees.is_concrete(array) and not np.all(np.isfinite(np.asarray(array))):
            raise ValueError(f"{name} must be finite, but holds NaN or Inf: {array}.")
        return trees.strong(array)

    converted = trees.map_with_name(leaf_as_array, hold_static(tree), name)
    if not jax.tree.leaves(converted):
        raise ValueError(
            f"{name} must have at least one array leaf, but got {tree!r}; the numbers of an "
            f"Equinox module move only where they are floating-point arrays."
        )
    return converted


def _moves(leaf: Any) -> bool:
    # Arrays of NumPy too, and shapes, which stand for the arrays that they will be.
    return hasattr(leaf, "dtype") and jnp.issubdtype(leaf.dtype, jnp.inexact)


def whole(tree: PyTree) -> PyTree:
    """The module of a state or a history as it was given, with the arrays that it has now.

    >>> import equinox as eqx, jax
    >>> import obax
    >>> problem = obax.Problem(
    ...     outer=lambda x, net, round: (net(round)[0] - 1.0) ** 2,
    ...     inner=lambda x, net, round: (net(round)[0] - x) ** 2,
    ... )
    >>> algorithm = obax.OAGD(problem, 0.1, 0.1)
    >>> net = eqx.nn.MLP(2, 1, 8, 1, key=jax.random.key(0))
    >>> state = algorithm.init(0.0, net, jax.numpy.ones(2))
    >>> obax.whole(state.inner_var)(jax.numpy.ones(2)).shape
    (1,)
    """
    return jax.tree.map(
        lambda node: node.value if isinstance(node, StaticLeaf) else node,
        tree,
        is_leaf=lambda node: isinstance(node, StaticLeaf),
    )


class OnWhole:
    """A function of a problem that is called with modules as they were given.

    Its first `variables` arguments are x and y; what it `answers` is a variable, too. It is equal
    to another of the same function, so that equal problems share programs.
    """

    def __init__(self, function: Callable[..., Any], variables: int, answers: bool = False):
        self.__wrapped__ = interned(function)
        self.variables = variables
        self.answers = answers

    def __call__(self, *arguments: PyTree) -> Any:
        """The function of whole modules."""
        given = (*map(whole, arguments[: self.variables]), *arguments[self.variables :])
        found = self.__wrapped__(*given)
        return hold_static(found) if self.answers else found

    def __eq__(self, other: object) -> bool:
        return isinstance(other, OnWhole) and (
            (self.__wrapped__, self.variables) == (other.__wrapped__, other.variables)
        )

    def __hash__(self) -> int:
        return hash((self.__wrapped__, self.variables))

    def __repr__(self) -> str:
        return repr(self.__wrapped__)


def on_whole(variables: int, answers: bool = False) -> Callable[[Any], Any]:
    """A converter of fields that hold a function of variables."""

    def convert(function: Any) -> Any:
        if not callable(function) or isinstance(function, OnWhole):
            return function
        return OnWhole(function, variables, answers)

    return convert
