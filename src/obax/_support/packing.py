"""Small leaves side by side in one array.

On CPU every output of a scan costs a kernel launch per round; the dozen scalars of an `Info` would
cost more than a round of a small problem. Packed by dtype they cost two.
"""

import math
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from .trees import PyTree, structure

SMALL = 64


class Packing:
    """How a tree of arrays is packed, decided once from its shapes."""

    def __init__(self, example: PyTree):
        self.treedef = structure(example)
        leaves = jax.tree.leaves(example)
        self.leaves = [jax.ShapeDtypeStruct(leaf.shape, leaf.dtype) for leaf in leaves]
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


# Numbers that a leaf may have to be packed: to copy 4 KB takes less time than to pass an array.
SMALL_WORDS = 1024
WORD = np.dtype(np.uint32)
BOOL = np.dtype(bool)


class Words:
    """How the leaves of a tree become words, decided once from their shapes.

    Large leaves, and those whose numbers are not of four or eight bytes, stay `alone`.
    """

    def __init__(self, example: PyTree, small: int = SMALL_WORDS):
        self.treedef = structure(example)
        self.leaves = [(leaf.shape, leaf.dtype) for leaf in jax.tree.leaves(example)]
        # For each packed leaf: the first word, the word after the last, the dtype of its bytes.
        self.spans: dict[int, tuple[int, int, np.dtype]] = {}
        self.alone: list[int] = []
        self.length = 0
        sizes = (4,) if jax.default_backend() == "tpu" else (4, 8)  # TPUs emulate eight bytes.
        for index, (shape, dtype) in enumerate(self.leaves):
            plain = not jnp.issubdtype(dtype, jax.dtypes.extended)
            if (
                math.prod(shape) > small
                or not plain
                or (dtype.itemsize not in sizes and dtype != BOOL)
            ):
                self.alone.append(index)
                continue
            stored = WORD if dtype == BOOL else np.dtype(dtype)
            begin = self.length
            self.length += math.prod(shape) * stored.itemsize // WORD.itemsize
            self.spans[index] = begin, self.length, stored
        self.stored = [(index, span[2]) for index, span in self.spans.items()]

    def pack(self, tree: PyTree) -> tuple[list[Array], list[Array]]:
        """Words, leaf by leaf, and large leaves, inside a traced function."""
        leaves = jax.tree.leaves(tree)
        words = [
            jax.lax.bitcast_convert_type(leaves[i].astype(stored), WORD).ravel()
            for i, stored in self.stored
        ]
        return words, [leaves[i] for i in self.alone]

    def unpack(self, words: Array, alone: Sequence[Array]) -> PyTree:
        """The tree again, inside a traced function."""
        leaves = dict(zip(self.alone, alone, strict=True))
        for i, (begin, end, stored) in self.spans.items():
            shape, dtype = self.leaves[i]
            pairs = () if stored.itemsize == WORD.itemsize else (2,)
            block = jax.lax.bitcast_convert_type(words[begin:end].reshape(*shape, *pairs), stored)
            leaves[i] = block.astype(dtype)
        return self.treedef.unflatten([leaves[i] for i in range(len(self.leaves))])

    def to_bytes(self, leaves: Sequence[Array | np.ndarray]) -> bytes:
        """The bytes of the words, from leaves that can be read on the host."""
        return b"".join(
            [
                leaves[i].tobytes()
                if leaves[i].dtype is stored
                else np.asarray(leaves[i], stored).tobytes()
                for i, stored in self.stored
            ]
        )

    def from_bytes(self, data: bytes, index: int) -> np.ndarray:
        """A leaf of words that have been read back."""
        begin, _, stored = self.spans[index]
        shape, dtype = self.leaves[index]
        leaf = np.frombuffer(data, stored, math.prod(shape), begin * WORD.itemsize)
        return leaf.astype(dtype, copy=False).reshape(shape)
