"""Maps and sums over rounds that fit into memory: vmapped, a chunk at a time."""

import functools
from collections.abc import Callable

import equinox as eqx
import jax
import jax.custom_batching
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._support import trees
from .._support.trees import PyTree


def map_chunks(function: Callable[..., PyTree], stacked: tuple[PyTree, ...], chunk: int) -> PyTree:
    """`function(*one)` for every entry of the stacked trees."""
    length = length_of(stacked)
    if chunk >= length:
        return jax.vmap(function)(*stacked)
    starts, overlap = _chunk_starts(length, chunk)

    def part(start: Array) -> PyTree:
        return jax.vmap(function)(*_slice(stacked, start, chunk))

    def joined(leaf: Array) -> Array:
        # No -1: a follower that is not there has leaves of size zero.
        whole = leaf[:-1].reshape((len(starts) - 1) * chunk, *leaf.shape[2:])
        return jnp.concatenate([whole, leaf[-1, overlap:]])

    return jax.tree.map(joined, jax.lax.map(part, starts))


def sum_chunks(function: Callable[..., PyTree], stacked: tuple[PyTree, ...], chunk: int) -> PyTree:
    """The sum of `function(*one)` over all entries, never holding more than a chunk."""
    length = length_of(stacked)

    def sum_of(part: PyTree, counted: Array | None) -> PyTree:
        def total(leaf: Array) -> Array:
            if counted is not None:
                leaf = jnp.where(counted.reshape(-1, *(1,) * (leaf.ndim - 1)), leaf, 0)
            return jnp.sum(leaf, axis=0)

        return jax.tree.map(total, jax.vmap(function)(*part))

    if chunk >= length:
        return sum_of(stacked, None)
    starts, overlap = _chunk_starts(length, chunk)

    def part(start: Array) -> PyTree:
        fresh = (start < length - chunk) | (jnp.arange(chunk) >= overlap)
        return sum_of(_slice(stacked, start, chunk), fresh)

    return jax.tree.map(lambda leaf: jnp.sum(leaf, axis=0), jax.lax.map(part, starts))


def length_of(tree: PyTree) -> int:
    """T, the length of the leading axis."""
    return jax.tree.leaves(tree)[0].shape[0]


def norms(tree: PyTree) -> Float[Array, " T"]:
    """The Euclidean norm of each entry of a stacked tree."""
    return jax.vmap(trees.norm)(tree)


def _chunk_starts(length: int, chunk: int) -> tuple[Array, int]:
    """Where chunks of one size start. The last is moved back to end with the rounds, so that there
    is one shape to compile; by how much it overlaps the one before it."""
    starts = np.minimum(np.arange(0, length, chunk), length - chunk)
    return jnp.asarray(starts), -length % chunk


def _slice(tree: PyTree, start: Array, size: int) -> PyTree:
    return jax.tree.map(lambda leaf: jax.lax.dynamic_slice_in_dim(leaf, start, size), tree)


def compiled(function: Callable[..., PyTree]) -> Callable[..., PyTree]:
    """`eqx.filter_jit`, and under `vmap` one entry after the other.

    With jaxlib 0.10.2 a batch that shares its rounds is wrong from output 32,768 on, in silence
    (docs/jax-versions.md); a function here is wide enough by its rounds to lose nothing by it.
    """

    @eqx.filter_jit
    @functools.wraps(function)
    def run(*arguments: PyTree) -> PyTree:
        arrays, rest = eqx.partition(arguments, eqx.is_array)
        one = jax.custom_batching.sequential_vmap(
            lambda arrays: function(*eqx.combine(arrays, rest))
        )
        return one(arrays)

    return run
