"""`sweep`: many settings and seeds as one batch inside one scan."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Array, ArrayLike

from .._support import forked, functions, trees, validation
from .._support.compiling import compiled
from .._support.explicit import automatic, automatic_mesh
from .._support.packing import Packing
from .._support.spread import Spread
from .._support.trees import PyTree
from ..algorithms import Algorithm, Info
from ..algorithms.record import with_edges
from .places import apart, on_every_device, sweep_devices
from .stacks import Record, S, at, check_given, check_stacked, length, recording_step
from .trust import warn_of_sweep

if TYPE_CHECKING:
    from distributed import Client

# Frames between a warning and whoever called `sweep`, the decorator's among them.
OURS = 4


@automatic_mesh()
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

    - `algorithms`: algorithms that differ in their numbers only (step sizes, K, window weights,
      bounds of the domain); what they share is compiled once. What is not a number, such as the
      size of the window, must be the same: sweep over such things with several calls.
    - `state`: one start for all, from any of the algorithms; or, with `seeds`, starts stacked on a
      leading axis, one for each seed.
    - `rounds`: as in `run`; with `seeds`, with one more leading axis in front, one entry per seed.
    - `record`: as in `run`.
    - `client`: a `dask.distributed.Client`; the workers of its cluster share the work, in batches
      of `batch` settings x seeds (by default one for each worker) that are compiled for once.
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
    forked.check()
    validation.flag(seeds, "seeds")
    single = isinstance(algorithms, Algorithm)
    if not single:
        validation.instance(algorithms, Sequence, "algorithms", "algorithms, one or several")
    family = [algorithms] if isinstance(algorithms, Algorithm) else [*algorithms]
    for one in family:
        validation.instance(one, Algorithm, "algorithms", "algorithms such as obax.OAGD(...)")
        check_given(one, state, record)
    record = functions.shared(record)
    numbers, shared = _stack(family)
    horizon = length(rounds)
    if seeds and (lengths := {len(leaf) for leaf in jax.tree.leaves(rounds)}) != {horizon}:
        raise ValueError(
            f"rounds must have one leading length, the number of seeds, but the leaves have "
            f"{sorted(lengths)}."
        )
    one_seed = at(rounds, 0) if seeds else rounds
    check_stacked(state.round_spec, one_seed)
    length(one_seed)
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
    if client is not None:
        from .workers import sweep_on_workers

        states, history = sweep_on_workers(
            numbers, shared, len(family), state, rounds, seeds, record, client, batch
        )
        return _checked(family, single, states, history)
    devices = sweep_devices(mesh, axis, len(family) * (horizon if seeds else 1))
    if devices is None:
        state, rounds = automatic((state, rounds))
    else:
        given = on_every_device((numbers, shared, state, rounds), devices.mesh)
        numbers, shared, state, rounds = given
    states, history = _sweep(numbers, shared, state, rounds, record, seeds, len(family), devices)
    return _checked(family, single, states, history)


def _checked(family: list[Algorithm], single: bool, states: S, history: Info) -> tuple[S, Info]:
    """What was asked for, once what cannot be trusted has been said."""
    states, history = at((states, history), 0) if single else (states, history)
    if trees.is_concrete(history.solver_residual):
        warn_of_sweep(history, family[0].remedy, OURS)
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
    devices: Spread | None = None,
) -> tuple[S, Info]:
    """All settings x seeds as one flat batch inside one scan: XLA on CPU is about twice as fast on
    [settings * seeds, d] arrays as on [settings, seeds, d]."""
    replicas = length(rounds) if seeds else 1
    numbers = jax.tree.map(lambda leaf: jnp.repeat(leaf, replicas, axis=0), numbers)
    seed_of = jnp.tile(jnp.arange(replicas), settings)
    if state.t.ndim == 1:
        states = at(state, seed_of)
    else:
        batch = settings * replicas
        states = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (batch, *leaf.shape)), state)

    def step(numbers: PyTree, state: S, round: PyTree) -> tuple[S, Info]:
        return recording_step(eqx.combine(numbers, shared), record)(state, round)

    example = at(rounds, (0, 0) if seeds else 0)
    packing = Packing(jax.eval_shape(step, *at((numbers, states), 0), example)[1])

    def packed_step(numbers: PyTree, state: S, round: PyTree) -> tuple[S, PyTree]:
        state, info = step(numbers, state, round)
        return state, packing.pack(info)

    def play(numbers: PyTree, states: S, seed_of: Array, rounds: PyTree) -> tuple[S, Info]:
        def body(states: S, round: PyTree) -> tuple[S, PyTree]:
            batch = at(round, seed_of) if seeds else round
            each = jax.vmap(packed_step, in_axes=(0, 0, 0 if seeds else None))
            return each(numbers, states, batch)

        states, packed = jax.lax.scan(body, states, rounds)
        return states, jax.tree.map(lambda leaf: jnp.swapaxes(leaf, 0, 1), packing.unpack(packed))

    if seeds:
        rounds = jax.tree.map(lambda leaf: jnp.swapaxes(leaf, 0, 1), rounds)
    states, history = apart(play, devices)(numbers, states, seed_of, rounds)
    domain_of = lambda numbers: eqx.combine(numbers, shared).problem.domain  # noqa: E731
    history = jax.vmap(lambda own, one: with_edges(one, domain_of(own)))(numbers, history)
    if not seeds:
        return states, history
    return jax.tree.map(
        lambda leaf: leaf.reshape(settings, replicas, *leaf.shape[1:]), (states, history)
    )


def _stack(family: list[Algorithm]) -> tuple[PyTree, PyTree]:
    """The numbers in which the algorithms differ, stacked, and the rest, which they share."""
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
