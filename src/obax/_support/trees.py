"""What every room does to pytrees: norms, finiteness, names of leaves."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, TypeAlias, TypeVar, cast

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.custom_batching import custom_vmap
from jaxtyping import Array, ArrayLike, Bool, Float

from .checks import Positive, check, is_numeric

# Any nesting of tuples, lists, dicts and modules, with arrays as leaves.
PyTree: TypeAlias = Any
T = TypeVar("T")


def standard_promotion() -> AbstractContextManager[None]:
    """Around calls into optax, which is not written for strict dtype promotion."""
    return jax.numpy_dtype_promotion("standard")


def leaf_name(path: tuple[Any, ...], root: str) -> str:
    """The leaf at `path` as a person would write it: `round['a']`, `outer_var.scale`, `round`."""
    return root + jax.tree_util.keystr(path)


def structure(tree: PyTree) -> Any:
    """`jax.tree.structure`, whose type mypy cannot compare."""
    return jax.tree.structure(tree)


def is_float(leaf: ArrayLike) -> bool:
    """Whether a leaf has a floating dtype, i.e. can be differentiated and can be NaN."""
    return jnp.issubdtype(jnp.result_type(leaf), jnp.floating)


def is_concrete(value: PyTree) -> bool:
    """Whether a value can be tested with `if`: nothing in it is a JAX tracer."""
    return not any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves(value))


def norm(tree: PyTree) -> Float[Array, ""]:
    """The Euclidean norm of all leaves taken together."""
    return jnp.sqrt(squared_norm(tree))


def squared_norm(tree: PyTree) -> Float[Array, ""]:
    """The squared Euclidean norm of all leaves taken together."""
    return vdot(tree, tree)


def vdot(left: PyTree, right: PyTree) -> Float[Array, ""]:
    """The inner product of two trees of one structure."""
    products = [
        jnp.sum(a * b) for a, b in zip(jax.tree.leaves(left), jax.tree.leaves(right), strict=True)
    ]
    if not products:
        return jnp.zeros(())
    dtype = jnp.result_type(*(product.dtype for product in products))
    return sum((product.astype(dtype) for product in products[1:]), products[0].astype(dtype))


def difference(left: PyTree, right: PyTree) -> PyTree:
    """`left - right`, leaf by leaf."""
    return jax.tree.map(jnp.subtract, left, right)


def scaled_add(tree: PyTree, scale: ArrayLike, direction: PyTree) -> PyTree:
    """`tree + scale * direction`, in the dtype of `tree` whatever that of `scale` is."""
    return jax.tree.map(
        lambda leaf, step: leaf + jnp.asarray(scale, leaf.dtype) * step, tree, direction
    )


def all_finite(tree: PyTree) -> Bool[Array, ""]:
    """Whether no floating leaf holds NaN or Inf; leaves of other dtypes cannot."""
    finite = [jnp.all(jnp.isfinite(leaf)) for leaf in jax.tree.leaves(tree) if is_float(leaf)]
    return jnp.asarray(True) if not finite else jnp.all(jnp.stack(finite))


def finite_entries(stacked: PyTree) -> Bool[Array, " n"]:
    """Of entries stacked on axis 0: which of them hold neither NaN nor Inf."""
    found = jnp.asarray(True)
    for leaf in jax.tree.leaves(stacked):
        if is_float(leaf):
            found &= jnp.all(jnp.isfinite(leaf), axis=tuple(range(1, leaf.ndim)))
    return found


def select(condition: Bool[Array, ""], if_true: PyTree, if_false: PyTree) -> PyTree:
    """One of two trees of one structure, decided at run time."""
    return jax.tree.map(lambda a, b: jnp.where(condition, a, b), if_true, if_false)


def map_with_name(function: Callable[[str, Any], Any], tree: PyTree, root: str) -> PyTree:
    """`jax.tree.map` that also hands over the name of each leaf."""
    return jax.tree_util.tree_map_with_path(
        lambda path, leaf: function(leaf_name(path, root), leaf), tree
    )


def finite_or(found: T, again: Callable[[], T]) -> T:
    """`found`, or `again()` where that is not finite.

    A branch. Under `vmap` JAX would make a selection of it and evaluate both sides in every round;
    here the branch is taken if one entry of the batch needs it.
    """
    numbers, rest = eqx.partition(eqx.filter_closure_convert(again), eqx.is_array)
    evaluate = lambda numbers: eqx.combine(numbers, rest)()  # noqa: E731

    @custom_vmap
    def mended(found: T, numbers: PyTree) -> T:
        return jax.lax.cond(all_finite(found), lambda: found, lambda: evaluate(numbers))

    @mended.def_vmap
    def _(size: int, batched: list, found: T, numbers: PyTree) -> tuple[T, PyTree]:
        def whole(leaf: jax.Array, has_batch: bool) -> jax.Array:
            return leaf if has_batch else jnp.broadcast_to(leaf, (size, *leaf.shape))

        entries = jax.tree.map(whole, found, batched[0])
        axes = jax.tree.map(lambda has_batch: 0 if has_batch else None, batched[1])

        def again() -> T:
            new = jax.vmap(evaluate, in_axes=(axes,), axis_size=size)(numbers)
            return jax.vmap(select)(jax.vmap(all_finite)(entries), entries, new)

        # Of a batch of batches, the same.
        out = finite_or(entries, again)
        return out, jax.tree.map(lambda _: True, out)

    return cast(T, mended(found, numbers))


def strong(array: Array) -> Array:
    """Return the array without JAX's weak type, which would be compiled for a second time."""
    return jax.lax.convert_element_type(array, array.dtype)


def float_array(value: Any, name: str) -> Array:
    """Return numbers as a floating-point array, checked to be finite where they are known."""
    if not is_numeric(value):
        known = isinstance(value, bool | str | None)
        of = "" if known else f" of type {type(value).__name__}"
        raise ValueError(f"{name} must be a number, but got {value!r}{of}.")
    array = jnp.asarray(value)
    array = strong(array if is_float(array) else array.astype(jnp.result_type(float)))
    if is_concrete(array) and not np.all(np.isfinite(np.asarray(array))):
        raise ValueError(f"{name} must be finite, but got {value!r}.")
    return array


def positive_array(value: Any, name: str) -> Array:
    """Return a number > 0 as a floating array."""
    return float_array(check(value, name, Positive), name)


def check_same_structure(tree: PyTree, expected: PyTree, name: str, expected_name: str) -> None:
    """Check that two trees have one structure, and their leaves the same shapes and dtypes."""
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


def check_scalar_loss(value: PyTree, name: str) -> None:
    """Check that the abstract value of a loss is one floating-point number."""
    leaves = jax.tree.leaves(value)
    if len(leaves) != 1 or leaves[0].shape != () or not is_float(leaves[0]):
        came = ", ".join(f"{leaf.dtype}{list(leaf.shape)}" for leaf in leaves) or "nothing"
        raise ValueError(
            f"{name} must return a scalar loss (one floating-point number of shape ()), "
            f"but returns {came}; take a mean or a sum."
        )


def check_has_values(round: PyTree) -> None:
    """Check that a round holds arrays, and not only shapes as an `example_round` may."""
    if any(isinstance(leaf, jax.ShapeDtypeStruct) for leaf in jax.tree.leaves(round)):
        raise ValueError(
            "round must hold numbers, but has shapes alone, as an example_round may: those are for "
            "init; here it takes a round of the stream."
        )
