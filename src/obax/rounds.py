"""The specification of rounds: checked when a function is traced, free when it runs."""

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import PyTreeDef

from ._support import trees
from ._support.trees import PyTree

# Shape and dtype of each leaf.
Leaves = tuple[tuple[tuple[int, ...], np.dtype], ...]


class RoundSpec:
    """Structure, shapes and dtypes of the rounds that a state was made for.

    It is static: it is compared when a function is traced and costs nothing when it runs. A round
    of another shape is an error and never a second compilation.
    """

    def __init__(self, treedef: PyTreeDef, leaves: Leaves):
        self.treedef = treedef
        self.leaves = leaves

    def __repr__(self) -> str:
        return f"RoundSpec({self.example()})"

    def __reduce__(self) -> tuple[Callable[[PyTree], "RoundSpec"], tuple[PyTree]]:
        # In another process it becomes the one specification of that process.
        return RoundSpec.of, (self.example(),)

    @classmethod
    def of(cls, example_round: PyTree) -> "RoundSpec":
        """Return the specification of rounds like this; equal ones are the same object."""
        described = trees.map_with_name(_described_leaf, example_round, "example_round")
        leaves, treedef = jax.tree.flatten(described)
        return _interned(treedef, tuple((leaf.shape, leaf.dtype) for leaf in leaves))

    def example(self) -> PyTree:
        """Return shapes and dtypes as a pytree."""
        return self.treedef.unflatten(jax.ShapeDtypeStruct(*leaf) for leaf in self.leaves)

    def check(self, round: PyTree, *, stacked: bool = False) -> None:
        """Raise a `ValueError` that names the leaf if a round does not fit."""
        name = "rounds" if stacked else "round"
        leaves, treedef = jax.tree_util.tree_flatten_with_path(round)
        if treedef != self.treedef:
            raise ValueError(
                f"{name} must have the structure of the example_round given to init, "
                f"{self.treedef}, but has {treedef}."
            )
        lengths = set()
        for (path, leaf), (shape, dtype) in zip(leaves, self.leaves, strict=True):
            given: tuple[int, ...] = getattr(leaf, "shape", ())
            fits = hasattr(leaf, "dtype") and leaf.dtype == dtype
            if not fits or (given[1:] if stacked else given) != shape or (stacked and not given):
                _check_leaf(trees.leaf_name(path, name), leaf, shape, dtype, stacked)
            if stacked:
                lengths.add(given[0])
        if len(lengths) > 1:
            raise ValueError(
                f"rounds must be stacked on axis 0 with one length, but the leaves have lengths "
                f"{sorted(lengths)}."
            )


def _check_leaf(
    name: str, leaf: PyTree, shape: tuple[int, ...], dtype: np.dtype, stacked: bool
) -> None:
    """Raise a `ValueError` that says what is wrong with a leaf, unless JAX will convert it."""
    if not hasattr(leaf, "dtype"):
        raise ValueError(
            f"{name} must be an array of dtype {dtype}, but is the Python "
            f"{type(leaf).__name__} {leaf!r}; wrap it in jnp.asarray(..., '{dtype}')."
        )
    given = _described_leaf(name, leaf)
    own_shape = given.shape[1:] if stacked else given.shape
    if (stacked and not given.shape) or (own_shape, given.dtype) != (shape, dtype):
        expected = f"{dtype}{['T', *shape] if stacked else list(shape)}".replace("'", "")
        raise ValueError(
            f"{name} must be {expected} like the example_round given to init, but is "
            f"{given.dtype}{list(given.shape)}."
        )


@functools.cache
def _interned(treedef: PyTreeDef, leaves: Leaves) -> RoundSpec:
    return RoundSpec(treedef, leaves)


def _described_leaf(name: str, leaf: PyTree) -> jax.ShapeDtypeStruct:
    if isinstance(leaf, jax.ShapeDtypeStruct):
        return leaf
    if not hasattr(leaf, "dtype") and not isinstance(leaf, float | int | bool):
        raise ValueError(f"{name} must be an array, but is a {type(leaf).__name__}: {leaf!r}.")
    dtype = leaf.dtype if hasattr(leaf, "dtype") else jnp.result_type(leaf)
    if not jnp.issubdtype(dtype, jax.dtypes.extended):
        # JAX converts it: without x64, a float64 of NumPy becomes float32.
        dtype = jax.dtypes.canonicalize_dtype(dtype)
    return jax.ShapeDtypeStruct(jnp.shape(leaf), dtype)
