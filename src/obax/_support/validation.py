"""Eager checks of what a person passes in. Each message names the argument, what was expected
and what came. Traced values are let through: they cannot be tested with `if`."""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike

from . import forked
from .held import held
from .trees import PyTree, is_concrete, is_float, leaf_name, map_with_name, structure


def strong(array: Array) -> Array:
    """The array without JAX's weak type: a state that starts weak would be compiled for twice."""
    return jax.lax.convert_element_type(array, array.dtype)


def positive_number(value: ArrayLike, name: str) -> Array:
    """One number > 0, not an array of them."""
    array = positive(value, name)
    if array.shape != ():
        raise ValueError(f"{name} must be one number, but has shape {array.shape}.")
    return array


def positive(value: ArrayLike | Sequence[float], name: str) -> Array:
    """A number > 0 as a floating array, so that it is a leaf and can be swept over."""
    array = as_number(value, name)
    if is_concrete(array) and not np.all(np.asarray(array) > 0):
        raise ValueError(f"{name} must be a number > 0, but got {value!r}.")
    return array


def as_number(value: ArrayLike | Sequence[float], name: str) -> Array:
    """A finite number as a floating array."""
    # The first array of an algorithm: made of any value, it would wait for ever in such a process.
    forked.check()
    expected = f"{name} must be a number, but got {value!r}"
    if isinstance(value, bool) or value is None or isinstance(value, str):
        raise ValueError(f"{expected}.")
    try:
        array = jnp.asarray(value)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{expected} of type {type(value).__name__}.") from error
    if not (is_float(array) or jnp.issubdtype(array.dtype, jnp.integer)):
        raise ValueError(f"{expected} of dtype {array.dtype}.")
    array = strong(array if is_float(array) else array.astype(jnp.result_type(float)))
    if is_concrete(array) and not np.all(np.isfinite(np.asarray(array))):
        raise ValueError(f"{name} must be finite, but got {value!r}.")
    return array


def count(value: object, name: str) -> int:
    """A Python or NumPy integer >= 1, as an `int`."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
        raise ValueError(f"{name} must be an integer >= 1, but got {value!r}.")
    return int(value)


def seed(value: object, name: str) -> int:
    """An integer that random numbers may start from."""
    whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
    if not whole or not 0 <= int(value) < 2**31:  # type: ignore[call-overload]
        raise ValueError(f"{name} must be an integer in [0, 2**31), but got {value!r}.")
    return int(value)  # type: ignore[call-overload]


def flag(value: object, name: str) -> bool:
    """Yes or no: a word such as "no" would count as yes."""
    if not isinstance(value, bool | np.bool_):
        raise ValueError(f"{name} must be True or False, but got {value!r}.")
    return bool(value)


def schedule(value: Callable[[Array], Any], name: str, t: int) -> Any:
    """What a schedule says of round t."""
    try:
        return value(jnp.asarray(t, jnp.int32))
    except TypeError as error:
        raise ValueError(f"{name} must take one number, the round t, but: {error}.") from error


def one_of(value: str, choices: tuple[str, ...], name: str) -> str:
    """One of a few words."""
    if value not in choices:
        expected = ", ".join(repr(choice) for choice in choices)
        raise ValueError(f"{name} must be one of {expected}, but got {value!r}.")
    return value


def function(value: object, name: str, signature: str) -> None:
    """A callable."""
    if not callable(value):
        raise ValueError(f"{name} must be a function {signature}, but got {value!r}.")


def variable(tree: PyTree, name: str) -> PyTree:
    """A pytree of floating arrays, from one whose leaves are arrays or Python floats. Of an Equinox
    module the floating arrays are leaves and the rest is held."""

    def leaf_as_array(name: str, leaf: ArrayLike) -> Array:
        try:
            array = jnp.asarray(leaf)
        except (TypeError, ValueError) as error:
            raise ValueError(
                f"{name} must be a floating-point array, but got {type(leaf).__name__}."
            ) from error
        if not is_float(array):
            raise ValueError(
                f"{name} must be a floating-point array, but its dtype is {array.dtype}; "
                f"write 0.0 instead of 0, or convert it with .astype(float)."
            )
        if is_concrete(array) and not np.all(np.isfinite(np.asarray(array))):
            raise ValueError(f"{name} must be finite, but holds NaN or Inf: {array}.")
        return strong(array)

    converted = map_with_name(leaf_as_array, held(tree), name)
    if not jax.tree.leaves(converted):
        raise ValueError(
            f"{name} must have at least one array leaf, but got {tree!r}; the numbers of an "
            f"Equinox module move only where they are floating-point arrays."
        )
    return converted


def same_tree(tree: PyTree, expected: PyTree, name: str, expected_name: str) -> None:
    """Two trees of one structure whose leaves have the same shapes and dtypes."""
    if (came := structure(tree)) != (wanted := structure(expected)):
        raise ValueError(
            f"{name} must have the structure of {expected_name}, {wanted}, but has {came}."
        )
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    for (path, came), wanted in zip(leaves, jax.tree.leaves(expected), strict=True):
        if (came.shape, came.dtype) != (wanted.shape, wanted.dtype):
            raise ValueError(
                f"{leaf_name(path, name)} must match {expected_name}: expected "
                f"{wanted.dtype}{list(wanted.shape)}, but got {came.dtype}{list(came.shape)}."
            )


def instance(value: object, kind: type, name: str, example: str) -> None:
    """An object of a class of ours, where a number or a word is easily passed instead."""
    if not isinstance(value, kind):
        raise ValueError(f"{name} must be {example}, but got {value!r}.")


def scalar_loss(value: PyTree, name: str) -> None:
    """The abstract value of a loss: one floating-point number."""
    leaves = jax.tree.leaves(value)
    if len(leaves) != 1 or leaves[0].shape != () or not is_float(leaves[0]):
        came = ", ".join(f"{leaf.dtype}{list(leaf.shape)}" for leaf in leaves) or "nothing"
        raise ValueError(
            f"{name} must return a scalar loss (one floating-point number of shape ()), "
            f"but returns {came}; take a mean or a sum."
        )
