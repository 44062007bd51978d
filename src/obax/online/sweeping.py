"""`sweep`: many settings and seeds as one batch inside one scan, or in batches on Dask workers."""

import uuid
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, PartitionSpec
from jaxtyping import Array, ArrayLike

from .._support import trees
from .._support.checks import check, instance_of
from .._support.compiling import compiled
from .._support.function_identity import interned
from .._support.packing import Rows
from .._support.sharding import TermSharding
from .._support.trees import PyTree
from ..algorithms import Algorithm, Info
from ..algorithms.record import with_edges
from .arguments import (
    Record,
    S,
    at,
    check_given,
    check_rounds,
    length,
    recorded_step,
    refuse_explicit,
)
from .diagnostics import warn_of_sweep

if TYPE_CHECKING:
    from distributed import Client

T = TypeVar("T")
SEVERAL = Annotated[Any, instance_of(Sequence, "algorithms, one or several")]
ONE = Annotated[Any, instance_of(Algorithm, "algorithms such as obax.OAGD(...)")]


def sweep(
    algorithms: Algorithm | Sequence[Algorithm],
    state: S,
    rounds: PyTree,
    *,
    seeds: bool = False,
    record: Record | None = None,
    client: "Client | None" = None,
    batch: int | None = None,
    mesh: Mesh | None = None,
    axis: str | None = None,
) -> tuple[S, Info]:
    """Play many settings and/or seeds in one compiled call.

    **Arguments:**

    - `algorithms`: algorithms that differ in numbers only (step sizes, K, window weights, bounds of
      the domain); they are compiled once. Everything else, such as the size of the window, must be
      the same: sweep over such things with several calls.
    - `state`: one start for all, from any of the algorithms; or, with `seeds`, starts stacked on a
      leading axis, one for each seed.
    - `rounds`: as in `run`; with `seeds`, with one more leading axis in front, one entry per seed.
    - `record`: as in `run`.
    - `client`: a `dask.distributed.Client`; the workers of its cluster share the work, in batches
      of `batch` settings x seeds (by default one batch for each worker). Each worker compiles once.
      The results are those of the sweep without `client` to rounding, because XLA vectorises
      batches of other sizes in another order; they are the same bits for the same `batch`.
    - `mesh`, `axis`: devices, and the axis of the mesh over which settings x seeds are divided. No
      device waits for another.

    **Returns:** states and histories with leading axes (settings, seeds), each only where asked
    for. A rejected round shows in `history.accepted`; it never ends the sweep.

    >>> import obax
    >>> problem = obax.Problem(outer=lambda x, y, round: 0.5 * (x - round) ** 2)
    >>> settings = [obax.OGD(problem, outer_step_size=size) for size in (0.5, 1.0)]
    >>> state = settings[0].init(0.0, None, jnp.zeros(()))
    >>> _, history = obax.sweep(settings, state, jnp.array([1.0, 1.0]))
    >>> print(history.played_value)
    [[0.5   0.125]
     [0.5   0.   ]]
    """
    single = isinstance(algorithms, Algorithm)
    given = [algorithms] if single else check(algorithms, "algorithms", SEVERAL)
    family = [check(one, "algorithms", ONE) for one in given]
    numbers, shared = _stack(family)
    check_given(state=state, record=record, seeds=seeds)
    record = None if record is None else interned(record)
    horizon = length(rounds)
    if seeds and (lengths := {len(leaf) for leaf in jax.tree.leaves(rounds)}) != {horizon}:
        raise ValueError(
            f"rounds must have one leading length, the number of seeds, but the leaves have "
            f"{sorted(lengths)}."
        )
    check_rounds(state, at(rounds, 0) if seeds else rounds)
    if state.t.ndim and (not seeds or len(state.t) != horizon):
        raise ValueError(
            f"state must be one state, or with seeds=True one for each of the seeds in rounds, "
            f"but it holds {len(state.t)}, with seeds={seeds} and rounds of leading length "
            f"{horizon}."
        )
    if client is not None and not hasattr(client, "nthreads"):
        raise ValueError(f"client must be a dask.distributed.Client, but got {client!r}.")
    if client is not None and mesh is not None:
        raise ValueError("client and mesh must not both be given: workers have their own devices.")
    if batch is not None and client is None:
        raise ValueError("batch goes with client: without workers a sweep is one batch.")
    work = numbers, shared, state, rounds, record, seeds
    if client is not None:
        states, history = _sweep_on_workers(client, batch, len(family), *work)
    else:
        devices = _devices(mesh, axis, len(family) * (horizon if seeds else 1))
        if devices is None:
            refuse_explicit(state, rounds)
        else:
            from .mesh import Axes

            work = *Axes(devices.mesh, None, None).everywhere(work[:4]), record, seeds
        states, history = _sweep(*work, len(family), devices)
    states, history = at((states, history), 0) if single else (states, history)
    if trees.is_concrete(history.solver_residual):
        warn_of_sweep(history, family[0].remedy, stacklevel=2)
    return states, history


@compiled
def _sweep(
    numbers: PyTree,
    shared: PyTree,
    state: S,
    rounds: PyTree,
    record: Record | None,
    seeds: bool,
    settings: int,
    devices: TermSharding | None = None,
) -> tuple[S, Info]:
    """Play all settings x seeds as one flat batch inside one scan.

    XLA on CPU is about twice as fast on [settings * seeds, d] arrays as on [settings, seeds, d].
    """
    replicas = length(rounds) if seeds else 1
    numbers = jax.tree.map(lambda leaf: jnp.repeat(leaf, replicas, axis=0), numbers)
    seed_of = jnp.tile(jnp.arange(replicas), settings)
    if state.t.ndim == 1:
        states = at(state, seed_of)
    else:
        batch = settings * replicas
        states = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (batch, *leaf.shape)), state)
    rows = Rows()

    def step(numbers: PyTree, state: S, round: PyTree) -> tuple[S, PyTree]:
        state, info = recorded_step(eqx.combine(numbers, shared), state, round, record)
        return state, rows.pack(info)

    def play(numbers: PyTree, states: S, seed_of: Array, rounds: PyTree) -> tuple[S, Info]:
        def body(states: S, round: PyTree) -> tuple[S, PyTree]:
            batch = at(round, seed_of) if seeds else round
            return jax.vmap(step, in_axes=(0, 0, 0 if seeds else None))(numbers, states, batch)

        states, packed = jax.lax.scan(body, states, rounds)
        return states, jax.tree.map(lambda leaf: jnp.swapaxes(leaf, 0, 1), rows.unpack(packed))

    if seeds:
        rounds = jax.tree.map(lambda leaf: jnp.swapaxes(leaf, 0, 1), rounds)
    states, history = _on_each_device(play, devices)(numbers, states, seed_of, rounds)
    domain_of = lambda numbers: eqx.combine(numbers, shared).problem.domain  # noqa: E731
    history = jax.vmap(lambda own, one: with_edges(one, domain_of(own)))(numbers, history)
    if not seeds:
        return states, history
    return jax.tree.map(
        lambda leaf: leaf.reshape(settings, replicas, *leaf.shape[1:]), (states, history)
    )


def _sweep_on_workers(
    client: "Client", batch: int | None, settings: int, *work: Any
) -> tuple[PyTree, Info]:
    """Play all settings and seeds on the workers of a cluster.

    Every batch has the same shape, so that a worker compiles once: the last ones repeat settings or
    seeds to be full, and what is repeated is left out of the result.
    """
    from ..integrations import dask, job_queue

    *_, rounds, _, seeds = work
    replicas = length(rounds) if seeds else 1
    if batch is None:
        batch = -(-settings * replicas // max(1, len(client.nthreads())))
    if batch < 1:
        raise ValueError(f"batch must be at least 1, but got {batch}.")
    rows = _cuts(settings, max(1, batch // replicas))
    columns = _cuts(replicas, min(batch, replicas))
    token = uuid.uuid4().hex
    # A worker reads arrays of NumPy before it knows whether it computes in double precision.
    is_array = lambda leaf: isinstance(leaf, jax.Array)  # noqa: E731
    sent = jax.tree.map(lambda leaf: np.asarray(leaf) if is_array(leaf) else leaf, work)
    jobs = {
        f"sweep-{token[:8]}-{i}-{j}": (token, row.tolist(), column.tolist())
        for i, row in enumerate(rows)
        for j, column in enumerate(columns)
    }

    def welcome(addresses: list[str]) -> dict[str, str]:
        # Sent once to each worker, also to those that come later or come back.
        replies = dask.on_workers(client, dask.keep, token, sent, workers=addresses)
        return {
            address: dask.GONE if isinstance(error, OSError) else f"it cannot take this: {error}."
            for address, error in replies.items()
            if error is not None
        }

    try:
        finished = dict(job_queue.results(client, play_batch, jobs, welcome=welcome))
    finally:
        if client.status == "running":
            client.run(dask.drop, token, on_error="ignore")
    batches = [finished[name] for name in jobs]
    if seeds:
        width = len(columns)
        starts = range(0, len(batches), width)
        batches = [_joined(batches[start : start + width], 1, replicas) for start in starts]
    return jax.tree.map(jnp.asarray, _joined(batches, 0, settings))


def play_batch(token: str, settings: list[int], seeds: list[int]) -> PyTree:
    """Play some settings on some seeds on a worker, and return arrays of the host."""
    from ..integrations import dask

    # The functions in it are the same objects for all batches, and so are compiled once.
    numbers, shared, state, rounds, record, has_seeds = jax.tree.map(
        lambda leaf: jnp.asarray(leaf) if isinstance(leaf, np.ndarray) else leaf, dask.kept(token)
    )
    numbers = at(numbers, jnp.asarray(settings))
    if has_seeds:
        index = jnp.asarray(seeds)
        rounds = at(rounds, index)
        state = at(state, index) if state.t.ndim else state
    result = _sweep(numbers, shared, state, rounds, record, has_seeds, len(settings))
    return jax.tree.map(np.asarray, result)


def _cuts(count: int, size: int) -> np.ndarray:
    """Return indices in rows of one length; the last row repeats its last index."""
    rows = -(-count // size)
    return np.minimum(np.arange(rows * size), count - 1).reshape(rows, size)


def _joined(trees: list[PyTree], axis: int, count: int) -> PyTree:
    """Return the batches side by side, without what was repeated."""

    def join(*leaves: np.ndarray) -> np.ndarray:
        return np.take(np.concatenate(leaves, axis), np.arange(count), axis)

    return jax.tree.map(join, *trees)


def _devices(mesh: Mesh | None, axis: str | None, batch: int) -> TermSharding | None:
    """Return the axis over which a sweep of this many settings x seeds is divided, or `None`."""
    if (mesh is None) != (axis is None):
        raise ValueError(f"mesh and axis must be given together, but got mesh={mesh}, axis={axis}.")
    if mesh is None or axis is None:
        return None
    from .mesh import axis_size, check_divides

    check_divides(batch, axis_size(mesh, axis, "axis"), f"axis {axis!r}", "settings x seeds")
    return TermSharding(Mesh(mesh.devices, mesh.axis_names), axis)


def _on_each_device(play: Callable[..., T], devices: TermSharding | None) -> Callable[..., T]:
    """Return a function of batches and rounds that divides the batches over the devices.

    Each device has all rounds.

    Divided by hand and not by the compiler, which would let every device wait for the slowest in
    every step of a loop whose length depends on the numbers.
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


def _stack(family: list[Algorithm]) -> tuple[PyTree, PyTree]:
    """Return the numbers in which the algorithms differ, stacked, and the rest of them."""
    if not family:
        raise ValueError("algorithms must hold at least one algorithm, but is empty.")
    flat = [jax.tree_util.tree_leaves_with_path(algorithm) for algorithm in family]
    treedef = trees.structure(family[0])
    for index, algorithm in enumerate(family):
        if trees.structure(algorithm) != treedef:
            raise ValueError(
                f"algorithms must differ in numbers only, but algorithms[{index}] has another "
                f"structure than algorithms[0] (another problem, window size, mode, estimator or "
                f"optimiser); sweep over those with several calls."
            )
    stacked, shared = [], []
    for column in zip(*flat, strict=True):
        path, values = column[0][0], [leaf for _, leaf in column]
        numeric = all(eqx.is_array(value) or isinstance(value, int | float) for value in values)
        same = all(value is values[0] for value in values)
        if not numeric and not all(value == values[0] for value in values):
            raise ValueError(
                f"{trees.leaf_name(path, 'algorithms[i]')} must be the same or a number in all "
                f"algorithms, but is not; make schedules Equinox modules with array fields to "
                f"sweep over them."
            )
        keep = numeric and (eqx.is_array(values[0]) or not same)
        if keep:
            family[0].check_sweep(trees.leaf_name(path, ""))
        stacked.append(_stack_numbers(values) if keep else None)
        shared.append(None if keep else values[0])
    return jax.tree.unflatten(treedef, stacked), jax.tree.unflatten(treedef, shared)


def _stack_numbers(values: list[ArrayLike]) -> Array:
    if trees.is_concrete(values):
        # Stacking hundreds of device arrays one by one would take longer than a short sweep.
        return jnp.asarray(np.stack([np.asarray(value) for value in values]))
    return jnp.stack([jnp.asarray(value) for value in values])
