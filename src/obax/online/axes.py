"""Which axis of a mesh takes what, and whether all processes mean the same."""

import json
from typing import NamedTuple

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from .._support import trees, validation
from .._support.atomic import checksum
from .._support.fingerprint import fingerprint
from .._support.processes import same
from .._support.spread import Spread
from .._support.trees import PyTree
from ..algorithms import Algorithm
from ..algorithms.base import State
from ..checkpoint import digest
from ..rounds import RoundSpec
from .places import axis_of, divides, is_local, local_part

WHOLE = PartitionSpec()


class Axes(NamedTuple):
    """Which axis of a mesh takes what."""

    mesh: Mesh
    window: str | None
    batch: PyTree

    @classmethod
    def of(cls, mesh: Mesh | None, window_axis: str | None, batch_axis: PyTree) -> "Axes | None":
        """The axes as they were given to a driver, if the mesh has them; `None` without a mesh."""
        named = [("window_axis", window_axis)]
        named += [("batch_axis", axis) for axis in jax.tree.leaves(batch_axis)]
        if mesh is None:
            for name, axis in named:
                if axis is not None:
                    raise ValueError(f"{name} needs mesh, a jax.sharding.Mesh, but mesh is None.")
            return None
        validation.instance(mesh, Mesh, "mesh", "a jax.sharding.Mesh")
        for name, axis in named:
            if axis is not None:
                axis_of(mesh, axis, name)
        _check_processes(mesh)
        # Arrays say how they lie and the compiler finds the rest. With axes of the type Explicit,
        # the default of jax.make_mesh, every operation of a loss would have to say it.
        return cls(Mesh(mesh.devices, mesh.axis_names), window_axis, batch_axis)

    @property
    def spread(self) -> Spread | None:
        """How the terms of a window are spread."""
        return None if self.window is None else Spread(self.mesh, self.window)

    @property
    def several(self) -> bool:
        """Whether several processes play together."""
        return not self.at().is_fully_addressable

    def at(self, spec: PartitionSpec = WHOLE) -> NamedSharding:
        """Where an array lies; without a specification, whole on every device."""
        return NamedSharding(self.mesh, spec)

    def round_specs(self, spec: RoundSpec) -> PyTree:
        """How the leaves of a round lie: their axis 0, if they have one, over the batch axis."""
        is_axis = lambda node: node is None or isinstance(node, str)  # noqa: E731
        example = spec.example()
        given = jax.tree.broadcast(self.batch, example, is_leaf=is_axis)
        axes = iter(jax.tree.leaves(given, is_leaf=is_axis))

        def one(name: str, leaf: jax.ShapeDtypeStruct) -> PartitionSpec:
            axis = next(axes)
            if axis is None or not leaf.shape:
                return WHOLE
            what = f"the batch of {name}, axis 0 of {list(leaf.shape)}"
            divides(leaf.shape[0], self.mesh.shape[axis], f"batch_axis {axis!r}", what)
            return PartitionSpec(axis)

        return trees.map_with_name(one, example, "round")

    def put_rounds(self, rounds: PyTree, spec: RoundSpec, *, stacked: bool) -> PyTree:
        """A round, or stacked ones, where the axes say.

        Of several processes, each gives its own part of the batch, or the whole of it.
        """
        if trees.structure(rounds) != spec.treedef:
            spec.check(rounds, stacked=stacked)
        specs = jax.tree.leaves(self.round_specs(spec), is_leaf=is_spec)
        leaves = []
        named = jax.tree_util.tree_leaves_with_path(rounds)
        for (path, leaf), (shape, _), part in zip(named, spec.leaves, specs, strict=True):
            part = PartitionSpec(None, *part) if stacked else part
            whole = (*np.shape(leaf)[:1], *shape) if stacked else shape
            name = trees.leaf_name(path, "rounds" if stacked else "round")
            leaves.append(local_part(leaf, self.at(part), whole, name))
        return spec.treedef.unflatten(leaves)


def agree(algorithm: Algorithm, state: State, axes: Axes) -> None:
    """Raise a `ValueError` in all processes if one of them plays something else than the others."""
    if not axes.several:
        return
    plays = json.dumps(fingerprint(algorithm), sort_keys=True).encode()
    # What lies over all of them is one already.
    own = [leaf for leaf in jax.tree.leaves(state) if is_local(leaf)]
    for name, hashed in (
        ("algorithm", checksum(plays)[:16]),
        ("state", digest(own, [leaf.dtype for leaf in own])),
    ):
        same(name, f"one with the checksum {hashed}", axes.several)


def is_spec(node: object) -> bool:
    """For trees of specifications, which JAX takes for tuples."""
    return isinstance(node, PartitionSpec)


def _check_processes(mesh: Mesh) -> None:
    """Raise a `ValueError` for a mesh over some of several processes."""
    there = {device.process_index for device in mesh.devices.flat}
    here, count = jax.process_index(), jax.process_count()
    if there != {here} and len(there) < count:
        raise ValueError(
            f"mesh must have devices of this process alone (process {here}) or of all {count} "
            f"processes, but has those of {sorted(there)}."
        )
