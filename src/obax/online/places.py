"""Arrays where a sharding says, from one process or from several."""

from collections.abc import Callable
from typing import TypeVar

import equinox as eqx
import jax
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array, ArrayLike

from .._support.spread import Spread
from .._support.trees import PyTree

T = TypeVar("T")


def axis_of(mesh: Mesh, axis: str, name: str) -> int:
    """The size of an axis of a mesh."""
    if axis not in mesh.axis_names:
        have = ", ".join(repr(known) for known in mesh.axis_names)
        raise ValueError(f"{name} must be one of the axes of the mesh, {have}, but got {axis!r}.")
    return mesh.shape[axis]


def divides(size: int, parts: int, axis: str, what: str) -> None:
    """Raise a `ValueError` if `size` things cannot be divided evenly over an axis."""
    if size % parts:
        below = size - size % parts
        would = [number for number in (below, below + parts) if number]
        raise ValueError(
            f"{what}, must be a multiple of the {parts} devices of {axis}, but is {size}; "
            f"{' or '.join(map(str, would))} would do."
        )


def put(leaf: ArrayLike, place: NamedSharding) -> Array:
    """An array that every process has whole, or that lies over all of them, where it belongs."""
    if place.is_fully_addressable or not is_local(leaf):
        return jax.device_put(leaf, place)
    whole = np.asarray(leaf)
    return jax.make_array_from_callback(whole.shape, place, lambda index: whole[index])


def local_part(leaf: ArrayLike, place: NamedSharding, shape: tuple[int, ...], name: str) -> Array:
    """An array from what this process has of it, a part or the whole."""
    if place.is_fully_addressable or not is_local(leaf):
        return jax.device_put(leaf, place)
    parts = zip(*place.addressable_devices_indices_map(shape).values(), strict=True)
    # How much of each dimension lies here: slices that differ do not overlap.
    own = tuple(
        sum(len(range(*part)) for part in {one.indices(size) for one in some})
        for some, size in zip(parts, shape, strict=True)
    )
    if np.shape(leaf) not in (own, shape):
        raise ValueError(
            f"{name} must have the shape {list(own)}, the part of this process, or {list(shape)}, "
            f"all of it, but has {list(np.shape(leaf))}."
        )
    return jax.make_array_from_process_local_data(place, np.asarray(leaf), shape)


def on_host(leaf: ArrayLike) -> np.ndarray:
    """The whole of an array; one that lies over several processes is asked for by all of them."""
    if isinstance(leaf, jax.Array) and not (leaf.is_fully_addressable or leaf.is_fully_replicated):
        return np.asarray(multihost_utils.process_allgather(leaf, tiled=True))
    return np.asarray(leaf)


def sweep_devices(mesh: Mesh | None, axis: str | None, batch: int) -> Spread | None:
    """The axis over which a sweep of so many settings x seeds is divided, if one was given."""
    if (mesh is None) != (axis is None):
        raise ValueError(f"mesh and axis must be given together, but got mesh={mesh}, axis={axis}.")
    if mesh is None or axis is None:
        return None
    parts = axis_of(mesh, axis, "axis")
    divides(batch, parts, f"axis {axis!r}", "settings x seeds")
    return Spread(Mesh(mesh.devices, mesh.axis_names), axis)


def on_every_device(tree: PyTree, mesh: Mesh) -> PyTree:
    """The arrays of a tree, whole on every device."""
    everywhere = NamedSharding(mesh, PartitionSpec())
    return jax.tree.map(lambda leaf: put(leaf, everywhere) if eqx.is_array(leaf) else leaf, tree)


def apart(play: Callable[..., T], devices: Spread | None) -> Callable[..., T]:
    """A function of batches and rounds, each device with its part of the batches and all rounds.

    By hand, not by the compiler: that would let every device wait for the slowest in every step of
    a loop whose length depends on the numbers.
    """
    if devices is None:
        return play
    part, everywhere = PartitionSpec(devices.axis), PartitionSpec()
    return jax.shard_map(
        play,
        mesh=devices.mesh,
        in_specs=(part, part, part, everywhere),
        out_specs=part,
        check_vma=False,
    )


def is_local(leaf: ArrayLike) -> bool:
    """Whether this process has all of an array."""
    return not isinstance(leaf, jax.Array) or leaf.is_fully_addressable
