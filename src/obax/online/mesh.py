"""Rounds, window and batches over the devices of a mesh; the same `step`, divided by the compiler.

The window's w terms, the ring buffer of past rounds and what an estimator carries for each of them
lie over `window_axis`: each of N devices holds w / N of them. The batch of a round, axis 0 of its
leaves, lies over `batch_axis`. Variables lie as the arrays of the given state do, or else whole on
every device. `jit` then divides the work and leaves the numbers those of one device, to rounding:
one sum over devices for an average of gradients, and one for a Hessian-vector product.
"""

import dataclasses
from typing import cast

import equinox as eqx
import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array

from .._support import trees
from .._support.compiling import compiled
from .._support.spread import Spread, spreading
from .._support.trees import PyTree
from .._support.typed import typed
from ..algorithms import Algorithm, Info
from ..algorithms.base import State
from ..hypergradient import Remedy
from ..past import RingBuffer
from ..problem import Problem
from ..window import Window
from .axes import WHOLE, Axes, is_spec
from .places import divides, on_host, put
from .stacks import S


class OnMesh(eqx.Module):
    """An algorithm whose step keeps its state where it lies; drivers take it for an algorithm."""

    algorithm: Algorithm
    spread: Spread | None = eqx.field(static=True)
    everywhere: NamedSharding = eqx.field(static=True)
    places: tuple[NamedSharding, ...] = eqx.field(static=True)

    @property
    def problem(self) -> Problem:
        """The algorithm's."""
        return self.algorithm.problem

    @property
    def remedy(self) -> Remedy:
        """The algorithm's."""
        return self.algorithm.remedy

    def step(self, state: S, round: PyTree) -> tuple[S, Info]:
        """One round."""
        with spreading(self.spread):
            state, info = self.algorithm.step(self._kept(state), round)
        return self._kept(state), jax.tree.map(self._noted, info)

    def attempt(self, state: S, round: PyTree) -> PyTree:
        """What a round would do, for a look at what was rejected."""
        return _attempt(self.algorithm, state, round, self.spread)

    def _kept(self, state: S) -> S:
        pinned = zip(jax.tree.leaves(state), self.places, strict=True)
        leaves = [jax.lax.with_sharding_constraint(*pair) for pair in pinned]
        return trees.structure(state).unflatten(leaves)

    def _noted(self, leaf: Array) -> Array:
        return leaf if leaf.ndim else jax.lax.with_sharding_constraint(leaf, self.everywhere)


def on_mesh(algorithm: Algorithm, state: S, axes: Axes) -> tuple[Algorithm, S]:
    """The algorithm and the state, from anywhere, where the axes say."""
    plain, wide = layouts(algorithm, state, axes.spread)
    if axes.window is not None:
        _check_window(algorithm, plain, axes.mesh.shape[axes.window], axes.window)
    given = jax.tree.map(lambda leaf: _given(leaf, axes.mesh), (state.outer_var, state.inner_var))
    kinds = [
        (state.round_spec.example(), axes.round_specs(state.round_spec)),
        (state.outer_var, given[0]),
        (state.inner_var, given[1]),
    ]
    leaves, places = [], []
    for field in _fields(state):
        name = field.name
        held, before, after = (getattr(one, name) for one in (state, plain, wide))
        like = _specs_like(held.rounds if isinstance(held, RingBuffer) else held, kinds)
        columns = [jax.tree.leaves(tree) for tree in (held, before, after)]
        # Behind its rounds a buffer has what every device knows of all of its slots.
        like += [WHOLE] * (len(columns[0]) - len(like))
        for leaf, few, many, spec in zip(*columns, like, strict=True):
            if few.shape == many.shape:
                spec = _given(leaf, axes.mesh)
            else:
                spec = PartitionSpec(axes.window, *spec)
                if leaf.shape == few.shape:
                    leaf = np.concatenate([on_host(leaf), np.zeros_like(on_host(leaf[:1]))])
            places.append(axes.at(spec))
            leaves.append(put(leaf, places[-1]))
    if axes.spread is not None and hasattr(algorithm, "chunk"):
        # So many terms on each device.
        more = {"chunk": algorithm.chunk * axes.spread.parts}
        algorithm = dataclasses.replace(algorithm, **more)
    # Drivers only call `step` and `attempt`.
    placed = cast(Algorithm, OnMesh(algorithm, axes.spread, axes.at(), tuple(places)))
    return placed, trees.structure(wide).unflatten(leaves)


@typed
def collect(algorithm: Algorithm, state: S) -> S:
    """A state that lies over a mesh as one of the host, as a run without a mesh has it.

    Of several processes, all must ask for it, and all get it.
    """
    if isinstance(algorithm, OnMesh):
        algorithm = algorithm.algorithm
    plain, _ = layouts(algorithm, state, None)
    leaves = [
        on_host(leaf)[: few.shape[0]] if few.shape else on_host(leaf)
        for leaf, few in zip(jax.tree.leaves(state), jax.tree.leaves(plain), strict=True)
    ]
    return trees.structure(plain).unflatten(leaves)


def layouts(algorithm: Algorithm, state: S, spread: Spread | None) -> tuple[S, S]:
    """Shapes of a state without a mesh, and of one whose window is spread."""
    start, spec = (state.outer_var, state.inner_var, state.buffers), state.round_spec

    def shapes(over: Spread | None) -> PyTree:
        with spreading(over):
            return jax.eval_shape(lambda x, y, b: algorithm._fresh(x, y, b, spec), *start)

    return shapes(None), shapes(spread)


@compiled
def _attempt(algorithm: Algorithm, state: S, round: PyTree, spread: Spread | None) -> PyTree:
    with spreading(spread):
        return algorithm.attempt(state, round)


def _fields(state: State) -> list[dataclasses.Field]:
    return [field for field in dataclasses.fields(state) if not field.metadata.get("static")]


def _given(leaf: PyTree, mesh: Mesh) -> PartitionSpec:
    """How an array lies on this mesh already; otherwise whole."""
    place = getattr(leaf, "sharding", None)
    if not isinstance(place, NamedSharding) or not isinstance(place.mesh, Mesh):
        return WHOLE
    same = place.mesh.axis_names == mesh.axis_names and np.array_equal(
        place.mesh.devices, mesh.devices
    )
    return place.spec if same else WHOLE


def _specs_like(held: PyTree, kinds: list[tuple[PyTree, PyTree]]) -> list[PartitionSpec]:
    """How the entries of stacked leaves lie: like the round or variable that they are shaped as."""
    leaves = jax.tree.leaves(held)
    shapes = [leaf.shape[1:] for leaf in leaves]
    for example, specs in kinds:
        if [leaf.shape for leaf in jax.tree.leaves(example)] == shapes:
            return jax.tree.leaves(specs, is_leaf=is_spec)
    return [WHOLE] * len(leaves)


def _check_window(algorithm: Algorithm, state: State, parts: int, axis: str) -> None:
    """Raise a `ValueError` if the terms of a state's window cannot be divided evenly."""
    buffers = [held for held in vars(state).values() if isinstance(held, RingBuffer)]
    slots = {buffer.slots for buffer in buffers}
    if not slots:
        raise ValueError(
            f"window_axis needs a window of more than one round to put over the {parts} devices of "
            f"{axis!r}, but the state keeps no past rounds; take a window of {max(parts, 2)}, or "
            f"batch_axis alone."
        )
    what = "the rounds kept (window.size, or capacity)"
    window = getattr(algorithm, "window", None)
    terms = {window.size} if isinstance(window, Window) else set()
    for held in sorted({count + 1 for count in slots} | terms, reverse=True):
        divides(held, parts, f"window_axis {axis!r}", what)
