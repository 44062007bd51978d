"""Checks of what drivers are given, and rounds that are stacked on axis 0."""

from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import equinox as eqx
import jax
import numpy as np
from jax.sharding import AxisType
from jaxtyping import Array

from .._support.checks import Kind, instance_of, one_of
from .._support.trees import PyTree
from ..algorithms import Algorithm, Info
from ..algorithms.base import State

S = TypeVar("S", bound=State)
Record = Callable[[PyTree], PyTree]
# What the arguments of drivers must be; those without an entry are flags.
KINDS = {
    "algorithm": instance_of(Algorithm, "an algorithm such as obax.OAGD(...)"),
    "state": instance_of(State, "a state, which algorithm.init makes"),
    "record": Kind("a function state -> pytree", lambda v: v is None or callable(v)),
    "on_rejected": one_of("raise", "skip"),
}
FLAG = instance_of((bool, np.bool_), "True or False")


def check_given(**arguments: object) -> None:
    """Raise a `ValueError` if an argument of a driver is not what it must be."""
    for name, value in arguments.items():
        if fault := KINDS.get(name, FLAG).fault(value):
            raise ValueError(f"{name} {fault}.")


def recorded_step(
    algorithm: Algorithm, state: S, round: PyTree, record: Record | None
) -> tuple[S, Info]:
    """Play a round, with `record(state)` of the new state in `info.recorded`."""
    state, info = algorithm.step(state, round)
    if record is None:
        return state, info
    is_unset = lambda node: node is None  # noqa: E731
    return state, eqx.tree_at(lambda i: i.recorded, info, record(state), is_leaf=is_unset)


def check_rounds(state: State, rounds: PyTree) -> int:
    """Return the number of stacked rounds.

    Raise a `ValueError` where they are not stacked, or not like the example round.
    """
    spec = state.round_spec
    one_by_one = isinstance(rounds, Iterator) or (
        isinstance(rounds, list | tuple) and jax.tree.structure(rounds) != spec.treedef
    )
    if one_by_one:
        raise ValueError(
            f"rounds must be one pytree like the example_round, stacked on axis 0, but is a "
            f"{type(rounds).__name__} of rounds: use obax.play(algorithm, state, rounds), which "
            f"takes them one by one, or stack them, jax.tree.map(lambda *all: jnp.stack(all), "
            f"*rounds)."
        )
    spec.check(rounds, stacked=True)
    return length(rounds)


def length(rounds: PyTree) -> int:
    """Return the number of stacked rounds, at least one."""
    leaves = jax.tree.leaves(rounds)
    if not all(map(np.ndim, leaves)):
        raise ValueError("rounds must be arrays stacked on axis 0, but has one without axes.")
    if not leaves or leaves[0].shape[0] == 0:
        raise ValueError("rounds must hold at least one round, but is empty.")
    return leaves[0].shape[0]


def at(rounds: PyTree, index: int | slice | tuple[int, int] | Array) -> PyTree:
    """Return one of stacked rounds; or some of them, still stacked."""
    return jax.tree.map(lambda leaf: leaf[index], rounds)


def refuse_explicit(*trees: PyTree) -> None:
    """Raise a `ValueError` for arrays on a mesh with axes of the type Explicit.

    With these, the default of `jax.make_mesh`, every operation of every loss would have to state
    its output sharding.
    """
    meshes: list[Any] = [jax.sharding.get_abstract_mesh()]
    for leaf in jax.tree.leaves(trees):
        if isinstance(leaf, jax.Array) and not isinstance(leaf, jax.core.Tracer):
            meshes.append(getattr(leaf.sharding, "mesh", None))
    for mesh in meshes:
        if AxisType.Explicit in getattr(mesh, "axis_types", ()):
            raise ValueError(
                f"a mesh must have axes of the type Auto, but {mesh.axis_names} are Explicit, the "
                f"default of jax.make_mesh; use jax.sharding.Mesh(devices, names), or leave the "
                f"arrays on the host and pass the mesh to the driver, as in run(..., mesh=mesh)."
            )
