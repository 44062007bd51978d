"""Terms of a window that are sharded over devices, and processes that compute together.

`jit` divides what is computed from sharded arrays, so the mathematics stays as it is. Here is what
must be written differently where the leading axis of stacked terms is sharded: a slot is read by a
gather and set by a selection, both of which stay on the devices that hold it, and chunks take as
many terms from each device.

A process that stops alone leaves the others in a sum that never completes, and at its exit JAX
waits for them: all hang for minutes without a message. So where one of them may stop alone (at its
part of the rounds, at the disk, in a callback), they tell each other before they go on.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array, Bool

from .trees import PyTree

# The bytes of what stopped a process that are sent. Every message has this size, so that processes
# that are not at the same point read each other's messages instead of waiting.
MESSAGE_BYTES = 400


class TermSharding(NamedTuple):
    """Terms of a window over an axis of a mesh."""

    mesh: Mesh
    axis: str

    @property
    def parts(self) -> int:
        """Over how many devices, or groups of them, the terms are sharded."""
        return self.mesh.shape[self.axis]


_current: ContextVar[TermSharding | None] = ContextVar("term sharding", default=None)


@contextmanager
def sharding_terms(terms: TermSharding | None) -> Iterator[None]:
    """Shard the terms of windows in what is traced inside the block."""
    token = _current.set(terms)
    try:
        yield
    finally:
        _current.reset(token)


def is_sharded() -> bool:
    """Return whether terms are sharded over devices in what is being traced."""
    return _current.get() is not None


def slots_of(slots: int) -> int:
    """Return how many slots a buffer of past rounds has. Where terms are sharded there is one more,
    for the current round, so that w terms and not w - 1 are divided among the devices."""
    return slots + is_sharded()


def entry(stacked: PyTree, index: int | Array) -> PyTree:
    """Return one entry of stacked ones. From a sharded axis a gather is one sum over devices; a
    slice would bring the whole axis to every device."""
    if not is_sharded():
        return jax.tree.map(lambda leaf: leaf[index], stacked)
    return jax.tree.map(lambda leaf: jnp.take(leaf, jnp.asarray(index), 0, mode="clip"), stacked)


def replace_entry(stacked: Array, index: int | Array, new: Array, where: Bool[Array, ""]) -> Array:
    """Return the stacked entries with one replaced, if `where`, without moving any between
    devices."""
    place = jnp.arange(len(stacked), dtype=jnp.result_type(index)) == index
    return jnp.where((place & where).reshape((-1,) + (1,) * (stacked.ndim - 1)), new, stacked)


def shard_terms(tree: PyTree) -> PyTree:
    """Return stacked numbers or arrays, one for each term, sharded as their terms are."""
    return _constrained(tree, divide=True)


def replicate(tree: PyTree) -> PyTree:
    """Return stacked numbers or arrays that every device has for all terms, or for a few."""
    return _constrained(tree, divide=False)


def _constrained(tree: PyTree, *, divide: bool) -> PyTree:
    terms = _current.get()
    if terms is None:
        return tree

    def one(leaf: Array) -> Array:
        # The compiler decides how a batch inside a term is sharded.
        rest = [PartitionSpec.UNCONSTRAINED] * (leaf.ndim - 1)
        spec = PartitionSpec(terms.axis if divide else None, *rest)
        return jax.lax.with_sharding_constraint(leaf, NamedSharding(terms.mesh, spec))

    return jax.tree.map(one, tree)


class Chunks(NamedTuple):
    """Stacked terms in equal chunks, each with the same number of terms of each device."""

    parts: int
    steps: int
    chunk: int

    @classmethod
    def of(cls, size: int, chunk: int) -> "Chunks":
        """Return chunks of at most so many terms; on each device, where terms are sharded."""
        terms = _current.get()
        parts = 1 if terms is None else terms.parts
        own = size // parts
        chunk = next(c for c in range(min(chunk, own), 0, -1) if own % c == 0)
        return cls(parts, own // chunk, chunk)

    def split(self, stacked: PyTree) -> PyTree:
        """Return [w, ...] as [steps, terms of one step, ...]."""

        def one(leaf: Array) -> Array:
            apart = leaf.reshape(self.parts, self.steps, self.chunk, *leaf.shape[1:])
            return jnp.moveaxis(apart, 1, 0).reshape(self.steps, -1, *leaf.shape[1:])

        return jax.tree.map(one, stacked)

    def join(self, split: PyTree) -> PyTree:
        """Return what `split` took apart."""

        def one(leaf: Array) -> Array:
            apart = leaf.reshape(self.steps, self.parts, self.chunk, *leaf.shape[2:])
            return jnp.moveaxis(apart, 0, 1).reshape(-1, *leaf.shape[2:])

        return jax.tree.map(one, split)


class ProcessError(RuntimeError):
    """Another process of the same computation has stopped, or is not at the same point."""


@contextmanager
def together(several: bool) -> Iterator[None]:
    """Stop all processes where one of them fails: `with together(several): ...`

    The process that fails inside raises its own error, and all others a `ProcessError` that repeats
    it. All that wait for each other must come here, so nothing inside may wait for the others. An
    interrupt from the keyboard does not wait for any process.
    """
    error: Exception | None = None
    try:
        yield
    except Exception as raised:
        error = raised
    if several:
        own = _message(error)
        messages = exchange(own)
        stopped = [f"process {index} {text}" for index, text in enumerate(messages) if text]
        # The end of the rounds is no error if it is the end for all.
        alone = isinstance(error, StopIteration) and {*messages} != {own}
        if stopped and (error is None or alone):
            reasons = "; ".join(stopped).rstrip(".")
            raise ProcessError(f"{reasons}. All processes stop here.") from None
    if error is not None:
        raise error


def same(name: str, own: object, several: bool) -> None:
    """Raise a `ValueError` in all processes if they do not have the same."""
    values = exchange(str(own)) if several else []
    if len({*values}) > 1:
        each = ", ".join(f"process {index} has {value}" for index, value in enumerate(values))
        raise ValueError(f"{name} must be the same in all processes, but {each}.")


def exchange(message: str) -> list[str]:
    """Return the messages of all processes, by their numbers; all of them must call this."""
    from jax.experimental import multihost_utils

    raw = message.encode()[:MESSAGE_BYTES]
    padded = np.frombuffer(raw.ljust(MESSAGE_BYTES, b"\0"), np.uint8)
    try:
        messages = multihost_utils.process_allgather(padded)
    except jax.errors.JaxRuntimeError as error:
        raise ProcessError(
            f"a process of this computation is gone, or did not come in time ({error})."
        ) from error
    return [bytes(row).rstrip(b"\0").decode(errors="replace") for row in messages]


def _message(error: Exception | None) -> str:
    if error is None:
        return ""
    if isinstance(error, StopIteration):
        return "has no more rounds, while others have"
    return f"has stopped: {type(error).__name__}: {error}"
