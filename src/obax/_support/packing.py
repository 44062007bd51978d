"""Small arrays packed side by side into one, and modules that are unpacked field by field.

On CPU every output of a scan costs a kernel launch in every round, and every array that goes into
or out of a compiled function costs a microsecond or more. The dozen scalars of an `Info` would cost
more than a round of a small problem.
"""

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from .trees import PyTree, structure

M = TypeVar("M", bound="Lazy")
K = TypeVar("K")
# The most numbers of a leaf that is packed: in a scan, and where to copy 4 KB takes less time than
# to pass an array.
SMALL, SMALL_WORDS = 64, 1024
WORD = np.dtype(np.uint32)
BOOL = np.dtype(bool)


class Rows:
    """The leaves of one tree, with small ones side by side in one vector for each dtype.

    `pack` is called while a scan is traced; `unpack` returns the tree, from what the scan stacked
    on any leading axes.
    """

    def pack(self, tree: PyTree) -> PyTree:
        """Return the vectors, and the large leaves as they are."""
        leaves, self.treedef = jax.tree.leaves(tree), structure(tree)
        # For each leaf its shape and dtype, its vector (`None` for large ones) and where it begins.
        self.spans: list[tuple[tuple[int, ...], np.dtype, str | None, int]] = []
        parts: dict[str, list[Array]] = {}
        rows: dict[str, Array] = {}
        alone: list[Array] = []
        ends: dict[str, int] = {}
        for leaf in leaves:
            row, begin = None, 0
            if leaf.size <= SMALL and not jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
                row = "int32" if leaf.dtype == BOOL else str(leaf.dtype)
                begin = ends.get(row, 0)
                ends[row] = begin + leaf.size
                parts.setdefault(row, []).append(leaf.ravel().astype(row))
            else:
                alone.append(leaf)
            self.spans.append((leaf.shape, leaf.dtype, row, begin))
        for row in parts:
            rows[row] = jnp.concatenate(parts[row])
        return rows, alone

    def unpack(self, packed: PyTree) -> PyTree:
        """Return the tree."""
        rows, alone = packed
        large, leaves = iter(alone), []
        for shape, dtype, row, begin in self.spans:
            if row is None:
                leaves.append(next(large))
                continue
            block = rows[row][..., begin : begin + math.prod(shape)]
            leaves.append(block.reshape(*block.shape[:-1], *shape).astype(dtype))
        return self.treedef.unflatten(leaves)


class Words:
    """The layout of the leaves of a tree as 32-bit words, decided once from their shapes.

    Large leaves, and those whose numbers do not have four or eight bytes, stay `alone`.
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
            fits = plain and (dtype.itemsize in sizes or dtype == BOOL)
            if math.prod(shape) > small or not fits:
                self.alone.append(index)
                continue
            stored = WORD if dtype == BOOL else np.dtype(dtype)
            begin = self.length
            self.length += math.prod(shape) * stored.itemsize // WORD.itemsize
            self.spans[index] = begin, self.length, stored
        self.stored = [(index, span[2]) for index, span in self.spans.items()]

    def pack(self, tree: PyTree) -> tuple[list[Array], list[Array]]:
        """Return the words of each leaf, and the large leaves, inside a traced function."""
        leaves = jax.tree.leaves(tree)
        words = [
            jax.lax.bitcast_convert_type(leaves[i].astype(stored), WORD).ravel()
            for i, stored in self.stored
        ]
        return words, [leaves[i] for i in self.alone]

    def unpack(self, words: Array, alone: Sequence[Array]) -> PyTree:
        """Return the tree, inside a traced function."""
        leaves = dict(zip(self.alone, alone, strict=True))
        for i, (begin, end, stored) in self.spans.items():
            shape, dtype = self.leaves[i]
            pairs = () if stored.itemsize == WORD.itemsize else (2,)
            block = jax.lax.bitcast_convert_type(words[begin:end].reshape(*shape, *pairs), stored)
            leaves[i] = block.astype(dtype)
        return self.treedef.unflatten([leaves[i] for i in range(len(self.leaves))])

    def to_bytes(self, leaves: Sequence[Array | np.ndarray]) -> bytes:
        """Return the bytes of the words, from leaves that can be read on the host."""
        return b"".join(
            [
                leaves[i].tobytes()
                if leaves[i].dtype is stored
                else np.asarray(leaves[i], stored).tobytes()
                for i, stored in self.stored
            ]
        )

    def from_bytes(self, data: bytes, index: int) -> np.ndarray:
        """Return a leaf from words that have been read back."""
        begin, _, stored = self.spans[index]
        shape, dtype = self.leaves[index]
        leaf = np.frombuffer(data, stored, math.prod(shape), begin * WORD.itemsize)
        return leaf.astype(dtype, copy=False).reshape(shape)


SOURCE = "_source"
# The attribute `__dict__` as Python itself has it, below the property of the same name.
_dict_of: Callable[[object], dict[str, object]] = next(
    vars(kind)["__dict__"].__get__ for kind in eqx.Module.__mro__ if "__dict__" in vars(kind)
)


class Lazy(eqx.Module):
    """An Equinox module that may be given a source of its fields in place of their values.

    A field is made when it is first asked for. `jax.tree.map`, jitted functions and `obax.save`
    read `__dict__`, as Equinox does, and find all fields there.
    """

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> object:
            # Called only for a field that has not been made.
            fields = _dict_of(self)
            if SOURCE not in fields or name not in self.__dataclass_fields__:
                raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
            make, packed = fields[SOURCE]
            return fields.setdefault(name, make(packed, [name])[name])

        @property
        def __dict__(self) -> dict[str, object]:
            fields = _dict_of(self)
            if (source := fields.get(SOURCE)) is not None:
                make, packed = source
                missing = [name for name in self.__dataclass_fields__ if name not in fields]
                for name, value in make(packed, missing).items():
                    fields.setdefault(name, value)
                # Equinox takes one entry too many for a wrapped function.
                fields.pop(SOURCE, None)
            return fields


def lazy(
    kind: type[M],
    ready: dict[str, object],
    make: Callable[[K, list[str]], dict[str, object]],
    packed: K,
) -> M:
    """Return a module of which some fields are known; `make(packed, names)` makes the others."""
    module = object.__new__(kind)
    fields = _dict_of(module)
    fields.update(ready)
    fields[SOURCE] = (make, packed)
    return module


def is_packed(module: Lazy) -> bool:
    """Return whether a module still has fields that were not made."""
    return SOURCE in _dict_of(module)
