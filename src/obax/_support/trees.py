"""What every room does to pytrees: norms, finiteness, names of leaves."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Bool, Float

# Any nesting of tuples, lists, dicts and modules, with arrays as leaves.
PyTree: TypeAlias = Any


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
