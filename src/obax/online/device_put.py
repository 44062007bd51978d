"""Arrays on the devices of a mesh, from one process or from several."""

import jax
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding
from jaxtyping import Array, ArrayLike


def axis_size(mesh: Mesh, axis: str, name: str) -> int:
    """Return the size of an axis of a mesh."""
    if axis not in mesh.axis_names:
        axes = ", ".join(repr(known) for known in mesh.axis_names)
        raise ValueError(f"{name} must be one of the axes of the mesh, {axes}, but got {axis!r}.")
    return mesh.shape[axis]


def check_divides(size: int, parts: int, axis: str, what: str) -> None:
    """Raise a `ValueError` if `size` things cannot be divided evenly over an axis."""
    if size % parts:
        below = size - size % parts
        multiples = [number for number in (below, below + parts) if number]
        raise ValueError(
            f"{what}, must be a multiple of the {parts} devices of {axis}, but is {size}; "
            f"{' or '.join(map(str, multiples))} would do."
        )


def is_local(leaf: ArrayLike) -> bool:
    """Return whether this process has all of an array."""
    return not isinstance(leaf, jax.Array) or leaf.is_fully_addressable


def put(leaf: ArrayLike, sharding: NamedSharding) -> Array:
    """Put an array that every process has whole, or that lies over all of them."""
    if sharding.is_fully_addressable or not is_local(leaf):
        return jax.device_put(leaf, sharding)
    whole = np.asarray(leaf)
    return jax.make_array_from_callback(whole.shape, sharding, lambda index: whole[index])


def put_local(leaf: ArrayLike, sharding: NamedSharding, shape: tuple[int, ...], name: str) -> Array:
    """Put an array of which this process has a part, or the whole."""
    if sharding.is_fully_addressable or not is_local(leaf):
        return jax.device_put(leaf, sharding)
    slices = zip(*sharding.addressable_devices_indices_map(shape).values(), strict=True)
    # How much of each dimension lies here: slices that differ do not overlap.
    own = tuple(
        sum(len(range(*part)) for part in {one.indices(size) for one in some})
        for some, size in zip(slices, shape, strict=True)
    )
    if np.shape(leaf) not in (own, shape):
        raise ValueError(
            f"{name} must have the shape {list(own)}, the part of this process, or {list(shape)}, "
            f"all of it, but has {list(np.shape(leaf))}."
        )
    return jax.make_array_from_process_local_data(sharding, np.asarray(leaf), shape)


def on_host(leaf: ArrayLike) -> np.ndarray:
    """Return the whole of an array; one that lies over several processes is asked for by all."""
    if isinstance(leaf, jax.Array) and not (leaf.is_fully_addressable or leaf.is_fully_replicated):
        return np.asarray(multihost_utils.process_allgather(leaf, tiled=True))
    return np.asarray(leaf)
