"""Meshes with axes of the type Explicit, the default of `jax.make_mesh`.

There every operation must say how its result lies where that is not plain, in every loss that a
person writes too. The drivers take such arrays and meshes for what they are with axes of the type
Auto, where the compiler finds it: no number moves.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import jax
from jax.sharding import AxisType, Mesh, NamedSharding

from .trees import PyTree


def automatic(tree: PyTree) -> PyTree:
    """The tree with arrays on the same devices of a mesh with axes of the type Auto."""
    return jax.tree.map(automatic_leaf, tree)


def automatic_leaf(leaf: PyTree) -> PyTree:
    """An array likewise; anything else as it is."""
    if not isinstance(leaf, jax.Array) or isinstance(leaf, jax.core.Tracer):
        return leaf
    place = leaf.sharding
    if not isinstance(place, NamedSharding) or not _is_explicit(place.mesh):
        return leaf
    mesh = Mesh(place.mesh.devices, place.mesh.axis_names)
    return jax.device_put(leaf, NamedSharding(mesh, place.spec))


def explicit_mesh() -> Mesh | None:
    """The mesh that `jax.set_mesh` has set, with axes of the type Auto, if some are Explicit."""
    if not _is_explicit(jax.sharding.get_abstract_mesh()):
        return None
    try:
        mesh = jax.sharding.get_mesh()
    except ValueError:
        # Inside a function that a person compiles, whose mesh is theirs to choose.
        return None
    return Mesh(mesh.devices, mesh.axis_names)


@contextmanager
def automatic_mesh() -> Iterator[None]:
    """Inside, a mesh set by `jax.set_mesh` has axes of the type Auto."""
    mesh = explicit_mesh()
    if mesh is None:
        yield
        return
    with jax.set_mesh(mesh):
        yield


def _is_explicit(mesh: object) -> bool:
    return AxisType.Explicit in getattr(mesh, "axis_types", ())
