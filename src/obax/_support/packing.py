"""Small leaves side by side in one array.

On CPU every output of a scan costs a kernel launch per round; the dozen scalars of an `Info` would
cost more than a round of a small problem. Packed by dtype they cost two.
"""

import math

import jax
import jax.numpy as jnp

from .trees import PyTree, structure

SMALL = 64


class Packing:
    """How a tree of arrays is packed, decided once from its shapes."""

    def __init__(self, example: PyTree):
        self.treedef = structure(example)
        self.leaves = leaves = jax.tree.leaves(example)
        self.groups: dict[str, list[int]] = {}
        self.alone: list[int] = []
        for index, leaf in enumerate(leaves):
            plain = not jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
            if plain and math.prod(leaf.shape) <= SMALL:
                dtype = jnp.dtype(jnp.int32) if leaf.dtype == jnp.bool_ else leaf.dtype
                self.groups.setdefault(str(dtype), []).append(index)
            else:
                self.alone.append(index)

    def pack(self, tree: PyTree) -> PyTree:
        """One vector for each dtype, and the large leaves as they are."""
        leaves = jax.tree.leaves(tree)
        rows = {
            dtype: jnp.concatenate([leaves[i].ravel().astype(dtype) for i in members])
            for dtype, members in self.groups.items()
        }
        return rows, [leaves[i] for i in self.alone]

    def unpack(self, packed: PyTree) -> PyTree:
        """The tree again, from packed rows stacked on any leading axes."""
        rows, alone = packed
        leaves: list = [None] * len(self.leaves)
        for dtype, members in self.groups.items():
            row = rows[dtype]
            offset = 0
            for i in members:
                shape, size = self.leaves[i].shape, math.prod(self.leaves[i].shape)
                block = row[..., offset : offset + size]
                leaves[i] = block.reshape(*row.shape[:-1], *shape).astype(self.leaves[i].dtype)
                offset += size
        for i, leaf in zip(self.alone, alone, strict=True):
            leaves[i] = leaf
        return self.treedef.unflatten(leaves)
