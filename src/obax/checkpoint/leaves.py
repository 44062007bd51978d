"""Leaves of a state as bytes, and back."""

import math
import zipfile

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
from jax.experimental import multihost_utils

from .._support import atomic
from .._support.trees import PyTree
from .manifest import BROKEN, PLAIN, CheckpointError, DamagedError, Meta


def read(file: zipfile.ZipFile, entry: Meta, name: str) -> PyTree:
    """A leaf as NumPy, or the plain value."""
    if "file" not in entry:
        return entry["value"]
    try:
        blob = file.read(entry["file"])
    except BROKEN as error:
        raise DamagedError(f"{name} is damaged: {error}.") from error
    if atomic.checksum(blob) != entry["sha256"]:
        raise DamagedError(f"{name} is damaged: the checksum of {entry['path']} does not match.")
    dtype = _dtype(entry["dtype"].removeprefix("key:").split(":")[-1])
    if len(blob) != dtype.itemsize * math.prod(entry["shape"]):
        raise DamagedError(f"{name} is damaged: {entry['path']} has the wrong size.")
    array = np.frombuffer(blob, dtype)
    # frombuffer reads little-endian as written; a copy is writable and of the machine's order.
    return array.astype(dtype.newbyteorder("=")).reshape(entry["shape"])


def restored(file: zipfile.ZipFile, entry: Meta, like: PyTree, leaf: str, name: str) -> PyTree:
    """A leaf as `like` has it; an error that names it where the two do not fit."""
    if isinstance(like, PLAIN) != ("file" not in entry):
        raise CheckpointError(f"{name}: {leaf} is an array in one and a plain value in the other.")
    if "file" not in entry:
        return entry["value"]
    _, dtype, shape = as_array(like, leaf)
    if (entry["dtype"], entry["shape"]) != (dtype, shape):
        message = f"{leaf} is {entry['dtype']}{entry['shape']}, but like has {dtype}{shape}."
        if {entry["dtype"], dtype} == {"float32", "float64"}:
            message += " One of the two was made with jax_enable_x64 and the other without."
        raise CheckpointError(f"{name}: {message}")
    array = read(file, entry, name)
    if entry["dtype"].startswith("key:"):
        return jax.random.wrap_key_data(jnp.asarray(array), impl=entry["dtype"].split(":")[1])
    return array if isinstance(like, np.ndarray) else jnp.asarray(array)


def as_array(leaf: PyTree, name: str) -> tuple[np.ndarray, str, list[int]]:
    """The bytes of a leaf, with its dtype and shape as the manifest has them."""
    prefix = ""
    if hasattr(leaf, "dtype") and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        prefix = f"key:{jax.random.key_impl(leaf)}:"
        leaf = jax.random.key_data(leaf)
    if not hasattr(leaf, "dtype"):
        raise CheckpointError(
            f"state{name} must be an array or a plain value, but is {type(leaf).__name__}."
        )
    if is_shared(leaf) and not leaf.is_fully_replicated:
        leaf = multihost_utils.process_allgather(leaf, tiled=True)
    array = np.ascontiguousarray(np.asarray(leaf))
    if array.dtype.kind not in "biufc" and not hasattr(ml_dtypes, array.dtype.name):
        raise CheckpointError(
            f"state{name} must be an array of numbers, but its dtype is {array.dtype}."
        )
    dtype = f"{prefix}{array.dtype.name}"
    return array.astype(array.dtype.newbyteorder("<")), dtype, list(np.shape(leaf))


def is_shared(state: PyTree) -> bool:
    """Whether an array of the state lies over several processes."""
    arrays = [leaf for leaf in jax.tree.leaves(state) if isinstance(leaf, jax.Array)]
    return not all(leaf.is_fully_addressable for leaf in arrays)


def _dtype(name: str) -> np.dtype:
    try:
        found: np.dtype | None = np.dtype(name)
    except (TypeError, ValueError, SyntaxError):
        found = None
    if found is not None and found.kind in "biufc":
        return found.newbyteorder("<")
    if not isinstance(getattr(ml_dtypes, name, None), type):
        raise DamagedError(f"a checkpoint names the dtype {name!r}, which obax never writes.")
    return np.dtype(getattr(ml_dtypes, name))
