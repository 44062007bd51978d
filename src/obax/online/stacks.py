"""Rounds stacked on axis 0, and a step that records more than its info."""

from collections.abc import Callable, Iterator
from typing import TypeVar

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array

from .._support import validation
from .._support.trees import PyTree
from ..algorithms import Algorithm, Info
from ..algorithms.base import State
from ..rounds import RoundSpec

S = TypeVar("S", bound=State)
Record = Callable[[PyTree], PyTree]


def recording_step(
    algorithm: Algorithm, record: Record | None
) -> Callable[[S, PyTree], tuple[S, Info]]:
    """`algorithm.step`, with what `record` says of the new state in `info.recorded`."""

    def step(state: S, round: PyTree) -> tuple[S, Info]:
        state, info = algorithm.step(state, round)
        if record is None:
            return state, info
        is_unset = lambda node: node is None  # noqa: E731
        return state, eqx.tree_at(lambda i: i.recorded, info, record(state), is_leaf=is_unset)

    return step


def check_given(algorithm: object, state: object, record: object = None) -> None:
    """Raise a `ValueError` for what is no algorithm, no state, or no function."""
    validation.instance(algorithm, Algorithm, "algorithm", "an algorithm such as obax.OAGD(...)")
    validation.instance(state, State, "state", "a state, which algorithm.init makes")
    if record is not None:
        validation.function(record, "record", "state -> pytree")


def check_stacked(spec: RoundSpec, rounds: PyTree) -> None:
    """Raise a `ValueError` where rounds are not stacked, or not like the example round."""
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


def length(rounds: PyTree) -> int:
    """The number of stacked rounds, at least one."""
    leaves = jax.tree.leaves(rounds)
    if not all(np.ndim(leaf) for leaf in leaves):
        raise ValueError("rounds must be arrays stacked on axis 0, but has one without axes.")
    if not leaves or leaves[0].shape[0] == 0:
        raise ValueError("rounds must hold at least one round, but is empty.")
    return leaves[0].shape[0]


def at(rounds: PyTree, index: int | slice | tuple[int, int] | Array) -> PyTree:
    """One of stacked rounds; or some of them, still stacked."""
    return jax.tree.map(lambda leaf: leaf[index], rounds)
