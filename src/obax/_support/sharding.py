"""Terms of a window spread over the devices of a mesh: what a driver says while it traces a step,
and what the window and the memory of past rounds make of it.

`jit` divides what is computed from sharded arrays, so the mathematics stays as it is; here is what
must be *written* otherwise where the leading axis of stacked terms is divided: a slot is read by a
gather and set by a selection, both of which stay on the devices that hold it, and chunks take as
many terms from each device.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array, Bool

from .trees import PyTree


class TermSharding(NamedTuple):
    """Terms of a window over an axis of a mesh."""

    mesh: Mesh
    axis: str

    @property
    def parts(self) -> int:
        """Over how many devices, or groups of them, the terms are spread."""
        return self.mesh.shape[self.axis]


_current: ContextVar[TermSharding | None] = ContextVar("spread", default=None)


@contextmanager
def sharding_terms(spread: TermSharding | None) -> Iterator[None]:
    """What is traced here spreads the terms of its window."""
    token = _current.set(spread)
    try:
        yield
    finally:
        _current.reset(token)


def is_sharded() -> bool:
    """Whether terms are spread over devices in what is being traced."""
    return _current.get() is not None


def slots_of(slots: int) -> int:
    """How many slots a buffer of past rounds has: one more, for the current round, where the terms
    are spread, so that w terms and not w - 1 are divided among the devices."""
    return slots + is_sharded()


def entry(stacked: PyTree, index: int | Array) -> PyTree:
    """One entry of stacked ones. From a divided axis a gather is one sum over devices of it; a
    slice would bring the whole axis to every device."""
    if not is_sharded():
        return jax.tree.map(lambda leaf: leaf[index], stacked)
    return jax.tree.map(lambda leaf: jnp.take(leaf, jnp.asarray(index), 0, mode="clip"), stacked)


def replace_entry(stacked: Array, index: int | Array, new: Array, where: Bool[Array, ""]) -> Array:
    """The stacked entries with one replaced, if `where`, without moving any between devices."""
    place = jnp.arange(len(stacked), dtype=jnp.result_type(index)) == index
    return jnp.where((place & where).reshape((-1,) + (1,) * (stacked.ndim - 1)), new, stacked)


def shard_terms(tree: PyTree) -> PyTree:
    """Stacked numbers or arrays, one for each term, which lie where their terms do."""
    return _placed(tree, divide=True)


def replicate(tree: PyTree) -> PyTree:
    """Stacked numbers or arrays that every device has for all terms, or for a few of them."""
    return _placed(tree, divide=False)


def _placed(tree: PyTree, *, divide: bool) -> PyTree:
    spread = _current.get()
    if spread is None:
        return tree

    def one(leaf: Array) -> Array:
        # How a batch inside a term lies is none of ours.
        rest = [PartitionSpec.UNCONSTRAINED] * (leaf.ndim - 1)
        spec = PartitionSpec(spread.axis if divide else None, *rest)
        return jax.lax.with_sharding_constraint(leaf, NamedSharding(spread.mesh, spec))

    return jax.tree.map(one, tree)


class Chunks(NamedTuple):
    """Stacked terms in equal chunks, each with the same number of terms of each device."""

    parts: int
    steps: int
    chunk: int

    @classmethod
    def of(cls, size: int, chunk: int) -> "Chunks":
        """At most so many terms at once; on each device, where the terms are spread."""
        spread = _current.get()
        parts = 1 if spread is None else spread.parts
        held = size // parts
        chunk = next(c for c in range(min(chunk, held), 0, -1) if held % c == 0)
        return cls(parts, held // chunk, chunk)

    def split(self, stacked: PyTree) -> PyTree:
        """[w, ...] as [steps, terms of one step, ...]."""

        def one(leaf: Array) -> Array:
            apart = leaf.reshape(self.parts, self.steps, self.chunk, *leaf.shape[1:])
            return jnp.moveaxis(apart, 1, 0).reshape(self.steps, -1, *leaf.shape[1:])

        return jax.tree.map(one, stacked)

    def join(self, split: PyTree) -> PyTree:
        """What `split` took apart."""

        def one(leaf: Array) -> Array:
            apart = leaf.reshape(self.steps, self.parts, self.chunk, *leaf.shape[2:])
            return jnp.moveaxis(apart, 0, 1).reshape(-1, *leaf.shape[2:])

        return jax.tree.map(one, split)
