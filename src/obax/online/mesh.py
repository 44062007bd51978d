"""Rounds, window and batches over the devices of a mesh; the same `step`, divided by the compiler.

The window's w terms, the buffer of past rounds and what an estimator carries for each of them are
divided over `window_axis`: each of N devices holds w / N of them. The batch of a round, axis 0 of
its leaves, is divided over `batch_axis`. Variables are sharded as the arrays of the given state
are, or else replicated. `jit` then divides the work, and the numbers are those of one device, to
rounding: one sum over devices for an average of gradients, and one for a Hessian-vector product.
"""

import dataclasses
import json
from collections.abc import Iterable, Iterator
from typing import Annotated, Any, Generic, NamedTuple, cast

import equinox as eqx
import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array, ArrayLike

from .._support import trees
from .._support.checks import check, instance_of
from .._support.compiling import compiled
from .._support.files import checksum
from .._support.function_identity import fingerprint
from .._support.sharding import TermSharding, same, sharding_terms, together
from .._support.trees import PyTree
from ..algorithms import Algorithm, Info
from ..algorithms.base import State
from ..checkpoint import digest, seek
from ..hypergradient import Remedy
from ..problem import Problem
from ..rounds import RoundSpec
from ..window import Window
from .arguments import S, check_given, check_rounds, refuse_explicit
from .diagnostics import on_host

REPLICATED = PartitionSpec()


def axis_size(mesh: Mesh, axis: str, name: str) -> int:
    """Return the size of an axis of a mesh."""
    if axis not in mesh.axis_names:
        axes = ", ".join(map(repr, mesh.axis_names))
        raise ValueError(f"{name} must be one of the axes of the mesh, {axes}, but got {axis!r}.")
    return mesh.shape[axis]


def check_divides(size: int, parts: int, axis: str, what: str) -> None:
    """Raise a `ValueError` if `size` things cannot be divided evenly over an axis."""
    if size % parts:
        below = size - size % parts
        multiples = " or ".join(str(number) for number in (below, below + parts) if number)
        raise ValueError(
            f"{what}, must be a multiple of the {parts} devices of {axis}, but is {size}; "
            f"{multiples} would do."
        )


def put(
    leaf: ArrayLike, sharding: NamedSharding, shape: tuple[int, ...] | None = None, name: str = ""
) -> Array:
    """Put an array on the devices of a sharding.

    Each of several processes has the whole of it, or its own part of an array of this shape.
    """
    if sharding.is_fully_addressable or not _is_local(leaf):
        return jax.device_put(leaf, sharding)
    shape = np.shape(leaf) if shape is None else shape
    slices = zip(*sharding.addressable_devices_indices_map(shape).values(), strict=True)
    # How much of each dimension belongs to this process: slices that differ do not overlap.
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


def _is_local(leaf: ArrayLike) -> bool:
    """Return whether this process has all of an array."""
    return not isinstance(leaf, jax.Array) or leaf.is_fully_addressable


class Axes(NamedTuple):
    """A mesh, and its axes for the window and for the batch of a round."""

    mesh: Mesh
    window: str | None
    batch: PyTree

    @classmethod
    def of(cls, mesh: Mesh | None, window_axis: str | None, batch_axis: PyTree) -> "Axes | None":
        """Return the axes given to a driver, checked; `None` without a mesh."""
        named = [] if window_axis is None else [("window_axis", window_axis)]
        named += [("batch_axis", axis) for axis in jax.tree.leaves(batch_axis)]
        if mesh is None:
            for name, _ in named:
                raise ValueError(f"{name} needs mesh, a jax.sharding.Mesh, but mesh is None.")
            return None
        check(mesh, "mesh", Annotated[Any, instance_of(Mesh, "a jax.sharding.Mesh")])
        for name, axis in named:
            axis_size(mesh, axis, name)
        processes = {device.process_index for device in mesh.devices.flat}
        here, count = jax.process_index(), jax.process_count()
        if processes != {here} and len(processes) < count:
            raise ValueError(
                f"mesh must have devices of this process alone (process {here}) or of all {count} "
                f"processes, but has those of {sorted(processes)}."
            )
        refuse_explicit()
        # With axes of the type Explicit, the default of `jax.make_mesh`, every operation of a loss
        # would have to state its output sharding; with Auto the compiler finds it.
        return cls(Mesh(mesh.devices, mesh.axis_names), window_axis, batch_axis)

    @property
    def terms(self) -> TermSharding | None:
        """How the terms of a window are divided."""
        return None if self.window is None else TermSharding(self.mesh, self.window)

    @property
    def several(self) -> bool:
        """Whether several processes play together."""
        return not self.sharding().is_fully_addressable

    def sharding(self, spec: PartitionSpec = REPLICATED) -> NamedSharding:
        """Return a sharding over the mesh."""
        return NamedSharding(self.mesh, spec)

    def everywhere(self, tree: PyTree) -> PyTree:
        """Return a tree with its arrays replicated on every device."""
        replicated = self.sharding()
        return jax.tree.map(
            lambda leaf: put(leaf, replicated) if eqx.is_array(leaf) else leaf, tree
        )

    def round_specs(self, spec: RoundSpec) -> PyTree:
        """Return how the leaves of a round are sharded: their axis 0 over the batch axis."""
        is_axis = lambda node: node is None or isinstance(node, str)  # noqa: E731
        example = spec.example()
        axis_of_leaf = jax.tree.broadcast(self.batch, example, is_leaf=is_axis)
        axes = iter(jax.tree.leaves(axis_of_leaf, is_leaf=is_axis))

        def one(name: str, leaf: jax.ShapeDtypeStruct) -> PartitionSpec:
            axis = next(axes)
            if axis is None or not leaf.shape:
                return REPLICATED
            what = f"the batch of {name}, axis 0 of {list(leaf.shape)}"
            check_divides(leaf.shape[0], self.mesh.shape[axis], f"batch_axis {axis!r}", what)
            return PartitionSpec(axis)

        return trees.map_with_name(one, example, "round")

    def put_rounds(self, rounds: PyTree, spec: RoundSpec, *, stacked: bool) -> PyTree:
        """Put a round, or stacked ones, on the mesh, and check them.

        Of several processes, each gives its own part of the batch, or the whole of it.
        """
        if trees.structure(rounds) != spec.treedef:
            spec.check(rounds, stacked=stacked)
        specs = jax.tree.leaves(self.round_specs(spec), is_leaf=_is_spec)
        leaves = []
        named = jax.tree_util.tree_leaves_with_path(rounds)
        for (path, leaf), (shape, _), part in zip(named, spec.leaves, specs, strict=True):
            part = PartitionSpec(None, *part) if stacked else part
            whole = (*np.shape(leaf)[:1], *shape) if stacked else shape
            name = trees.leaf_name(path, "rounds" if stacked else "round")
            leaves.append(put(leaf, self.sharding(part), whole, name))
        on_devices = spec.treedef.unflatten(leaves)
        spec.check(on_devices, stacked=stacked)
        return on_devices

    def shared_rounds(
        self, algorithm: Algorithm, state: State, rounds: PyTree
    ) -> tuple[PyTree, int]:
        """Return stacked rounds on the mesh and their number, the same in all processes.

        Each of several processes may have given a part.
        """
        with together(self.several):
            rounds = self.put_rounds(rounds, state.round_spec, stacked=True)
            horizon = check_rounds(state, rounds)
        same("the number of rounds", horizon, self.several)
        self.agree(algorithm, state)
        return rounds, horizon

    def agree(self, algorithm: Algorithm, state: State) -> None:
        """Raise a `ValueError` in all processes if their algorithms or states are not the same."""
        if not self.several:
            return
        parts = json.dumps(fingerprint(algorithm), sort_keys=True).encode()
        # An array that is sharded over all processes is the same for them anyway.
        own = [leaf for leaf in jax.tree.leaves(state) if _is_local(leaf)]
        states = digest(own, [leaf.dtype for leaf in own])
        for name, hashed in {"algorithm": checksum(parts)[:16], "state": states}.items():
            same(name, f"one with the checksum {hashed}", self.several)


class OnMesh(eqx.Module):
    """An algorithm whose step keeps the sharding of the state. Drivers use it like an algorithm."""

    algorithm: Algorithm
    terms: TermSharding | None = eqx.field(static=True)
    everywhere: NamedSharding = eqx.field(static=True)
    shardings: tuple[NamedSharding, ...] = eqx.field(static=True)

    @property
    def problem(self) -> Problem:
        """The problem of the algorithm."""
        return self.algorithm.problem

    @property
    def remedy(self) -> Remedy:
        """The remedy of the algorithm."""
        return self.algorithm.remedy

    def step(self, state: S, round: PyTree) -> tuple[S, Info]:
        """Play one round."""
        with sharding_terms(self.terms):
            state, info = self.algorithm.step(self._constrained(state), round)
        return self._constrained(state), jax.tree.map(self._replicated, info)

    def attempt(self, state: S, round: PyTree) -> PyTree:
        """Return what a round would do, for the reason of a rejection."""
        return _attempt(self.algorithm, state, round, self.terms)

    def _constrained(self, state: S) -> S:
        pairs = zip(jax.tree.leaves(state), self.shardings, strict=True)
        leaves = [jax.lax.with_sharding_constraint(*pair) for pair in pairs]
        return trees.structure(state).unflatten(leaves)

    def _replicated(self, leaf: Array) -> Array:
        return leaf if leaf.ndim else jax.lax.with_sharding_constraint(leaf, self.everywhere)


def on_mesh(algorithm: Algorithm, state: S, axes: Axes) -> tuple[Algorithm, S]:
    """Return the algorithm and the state, from anywhere, on a mesh."""
    plain, divided = (_shapes(algorithm, state, terms) for terms in (None, axes.terms))
    if axes.window is not None:
        _check_window(algorithm, plain, axes.mesh.shape[axes.window], axes.window)
    kinds = [(state.round_spec.example(), axes.round_specs(state.round_spec))]
    for var in (state.outer_var, state.inner_var):
        kinds.append((var, jax.tree.map(lambda leaf: _spec_of(leaf, axes.mesh), var)))
    leaves, shardings = [], []
    for field in dataclasses.fields(state):
        if field.metadata.get("static"):
            continue
        own, before, after = (getattr(one, field.name) for one in (state, plain, divided))
        stacked = own.rounds if field.name == "past" and own is not None else own
        specs = _specs_like(stacked, kinds)
        columns = [jax.tree.leaves(tree) for tree in (own, before, after)]
        # After its rounds a buffer has masks, which are replicated.
        specs += [REPLICATED] * (len(columns[0]) - len(specs))
        for leaf, few, many, spec in zip(*columns, specs, strict=True):
            if few.shape == many.shape:
                spec = _spec_of(leaf, axes.mesh)
            else:
                spec = PartitionSpec(axes.window, *spec)
                if leaf.shape == few.shape:
                    leaf = np.concatenate([on_host(leaf), np.zeros_like(on_host(leaf[:1]))])
            shardings.append(axes.sharding(spec))
            leaves.append(put(leaf, shardings[-1]))
    if axes.terms is not None and hasattr(algorithm, "chunk"):
        # So many terms on each device.
        more = {"chunk": algorithm.chunk * axes.terms.parts}
        algorithm = dataclasses.replace(algorithm, **more)
    # Drivers only call `step` and `attempt`.
    placed = cast(Algorithm, OnMesh(algorithm, axes.terms, axes.sharding(), tuple(shardings)))
    return placed, trees.structure(divided).unflatten(leaves)


def collect(algorithm: Algorithm, state: S) -> S:
    """Return a state that is sharded over a mesh as one on the host, as without a mesh.

    Of several processes, all must call this, and all get the state.
    """
    if isinstance(algorithm, OnMesh):
        algorithm = algorithm.algorithm
    check_given(algorithm=algorithm, state=state)
    plain = _shapes(algorithm, state, None)
    leaves = [
        on_host(leaf)[: few.shape[0]] if few.shape else on_host(leaf)
        for leaf, few in zip(jax.tree.leaves(state), jax.tree.leaves(plain), strict=True)
    ]
    return trees.structure(plain).unflatten(leaves)


class LiveOnMesh(Generic[S]):
    """A state that moves from round to round on a mesh; see `Live` for one device."""

    def __init__(self, algorithm: Algorithm, state: S, axes: Axes):
        self.axes = axes
        self.algorithm, self.state = on_mesh(algorithm, state, axes)

    def play(self, round: PyTree) -> tuple[S, Info, bool]:
        """Return state and info after a round, and whether it was accepted."""
        round = self.axes.put_rounds(round, self.state.round_spec, stacked=False)
        self.state, self.info = _step(self.algorithm, self.state, round)
        return self.state, self.info, bool(self.info.accepted)

    def refuses(self) -> bool:
        """Return whether past rounds left the window in the last round."""
        return bool(self.info.refused_terms)

    def number(self, field: str) -> float:
        """Return a number of the last info."""
        return float(getattr(self.info, field))


class SharedSource(Iterator[PyTree]):
    """The rounds of a source of which each of several processes has a part, put together.

    A process whose source ends, fails, or gives a round that does not fit stops all of them.
    """

    def __init__(self, source: Iterable[PyTree], axes: Axes, spec: RoundSpec):
        self._source, self._axes, self._spec = source, axes, spec
        self._rounds: Iterator[PyTree] | None = None

    def seek(self, round: int) -> None:
        """Go to this round, counted from 0."""
        with together(self._axes.several):
            self._rounds = seek(self._source, round)

    def __next__(self) -> PyTree:
        with together(self._axes.several):
            if self._rounds is None:
                self._rounds = iter(self._source)
            return self._axes.put_rounds(next(self._rounds), self._spec, stacked=False)


@compiled
def _step(algorithm: Algorithm, state: S, round: PyTree) -> tuple[S, Info]:
    return algorithm.step(state, round)


@compiled
def _attempt(algorithm: Algorithm, state: S, round: PyTree, terms: TermSharding | None) -> PyTree:
    with sharding_terms(terms):
        return algorithm.attempt(state, round)


def _shapes(algorithm: Algorithm, state: S, terms: TermSharding | None) -> S:
    """Return the shapes of a state whose window is divided like this; `None` without a mesh."""
    start = state.outer_var, state.inner_var, state.buffers
    with sharding_terms(terms):
        return jax.eval_shape(
            lambda x, y, b: algorithm.first_state(x, y, b, state.round_spec), *start
        )


def _spec_of(leaf: PyTree, mesh: Mesh) -> PartitionSpec:
    """Return how an array is sharded over this mesh already; otherwise replicated."""
    sharding = getattr(leaf, "sharding", None)
    if not isinstance(sharding, NamedSharding) or not isinstance(sharding.mesh, Mesh):
        return REPLICATED
    other = sharding.mesh
    same_devices = np.array_equal(other.devices, mesh.devices)
    return sharding.spec if same_devices and other.axis_names == mesh.axis_names else REPLICATED


def _specs_like(stacked: PyTree, kinds: list[tuple[PyTree, PyTree]]) -> list[PartitionSpec]:
    """Return how entries of stacked leaves are sharded: as the round or variable of their shape."""
    leaves = jax.tree.leaves(stacked)
    shapes = [leaf.shape[1:] for leaf in leaves]
    for example, specs in kinds:
        if [leaf.shape for leaf in jax.tree.leaves(example)] == shapes:
            return jax.tree.leaves(specs, is_leaf=_is_spec)
    return [REPLICATED] * len(leaves)


def _check_window(algorithm: Algorithm, state: State, parts: int, axis: str) -> None:
    """Raise a `ValueError` if the terms of a state's window cannot be divided evenly."""
    if state.past is None:
        raise ValueError(
            f"window_axis needs a window of more than one round to put over the {parts} devices of "
            f"{axis!r}, but the state keeps no past rounds; take a window of {max(parts, 2)}, or "
            f"batch_axis alone."
        )
    what = "the rounds kept (window.size, or capacity)"
    window = getattr(algorithm, "window", None)
    terms = {window.size} if isinstance(window, Window) else set()
    for kept in sorted({state.past.slots + 1} | terms, reverse=True):
        check_divides(kept, parts, f"window_axis {axis!r}", what)


def _is_spec(node: object) -> bool:
    """Return whether a node is a specification, which JAX takes for a tuple."""
    return isinstance(node, PartitionSpec)
