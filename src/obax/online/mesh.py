"""Rounds, window and batches over the devices of a mesh; the same `step`, divided by the compiler.

The window's w terms, the ring buffer of past rounds and what an estimator carries for each of them
lie over `window_axis`: each of N devices holds w / N of them. The batch of a round, axis 0 of its
leaves, lies over `batch_axis`. Variables lie as the arrays of the given state do, or else whole on
every device. `jit` then divides the work and leaves the numbers those of one device, to rounding:
one sum over devices for an average of gradients, and one for a Hessian-vector product.
"""

import dataclasses
from typing import Generic, NamedTuple, cast

import equinox as eqx
import jax
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array

from .._support import trees, validation
from .._support.compiling import compiled
from .._support.spread import Spread, spreading
from .._support.trees import PyTree
from .._support.typed import typed
from ..algorithms import Algorithm, Info
from ..algorithms.base import State
from ..checkpoint import Folder, Meta
from ..past import RingBuffer
from ..problem import Problem
from ..rounds import RoundSpec
from ..window import Window
from .places import axis_of, divides, local_part, on_host, put
from .stacks import S

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
        # Arrays say how they lie and the compiler finds the rest. With axes of the type Explicit,
        # the default of jax.make_mesh, every operation of a loss would have to say it.
        return cls(Mesh(mesh.devices, mesh.axis_names), window_axis, batch_axis)

    @property
    def spread(self) -> Spread | None:
        """How the terms of a window are spread."""
        return None if self.window is None else Spread(self.mesh, self.window)

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
        specs = jax.tree.leaves(self.round_specs(spec), is_leaf=_is_spec)
        leaves = []
        for leaf, (shape, _), part in zip(jax.tree.leaves(rounds), spec.leaves, specs, strict=True):
            part = PartitionSpec(None, *part) if stacked else part
            whole = (*np.shape(leaf)[:1], *shape) if stacked else shape
            leaves.append(local_part(leaf, self.at(part), whole))
        return spec.treedef.unflatten(leaves)


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


class LiveOnMesh(Generic[S]):
    """A state that moves from round to round on a mesh; what `Live` is on one device."""

    def __init__(self, algorithm: Algorithm, state: S, axes: Axes):
        self.plain, self.axes = algorithm, axes
        self.algorithm, self.state = on_mesh(algorithm, state, axes)

    def play(self, round: PyTree) -> tuple[S, Info, bool]:
        """The state after a round, the info, and whether the round was accepted."""
        round = self.axes.put_rounds(round, self.state.round_spec, stacked=False)
        self.state.round_spec.check(round)
        self.state, info = _step(self.algorithm, self.state, round)
        self._info = info
        return self.state, info, bool(info.accepted)

    def residual(self) -> float:
        """That of the last round's solver."""
        return float(self._info.solver_residual)

    def refused(self) -> int:
        """How many past rounds left the window in the last one."""
        return int(self._info.refused_terms)

    def save(self, folder: Folder, round: int, meta: Meta) -> None:
        """A checkpoint as a run without a mesh writes it, once; no process goes on before."""
        state = collect(self.plain, self.state)
        if jax.process_index() == 0:
            folder.save(round, state, meta)
        if jax.process_count() > 1:
            multihost_utils.sync_global_devices(f"obax checkpoint {round}")


@compiled
def _step(algorithm: Algorithm, state: S, round: PyTree) -> tuple[S, Info]:
    return algorithm.step(state, round)


@compiled
def _attempt(algorithm: Algorithm, state: S, round: PyTree, spread: Spread | None) -> PyTree:
    with spreading(spread):
        return algorithm.attempt(state, round)


def _fields(state: State) -> list[dataclasses.Field]:
    return [field for field in dataclasses.fields(state) if not field.metadata.get("static")]


def _is_spec(node: object) -> bool:
    return isinstance(node, PartitionSpec)


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
            return jax.tree.leaves(specs, is_leaf=_is_spec)
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
