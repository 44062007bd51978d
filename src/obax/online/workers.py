"""A sweep cut into batches for the workers of a Dask cluster."""

from __future__ import annotations

import functools
import uuid
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from .._support.trees import PyTree
from ..algorithms import Info
from ..integrations import dask, job_queue
from .stacks import Record, S, at, length

if TYPE_CHECKING:
    from distributed import Client


def sweep_on_workers(
    numbers: PyTree,
    shared: PyTree,
    settings: int,
    state: S,
    rounds: PyTree,
    seeds: bool,
    record: Record | None,
    client: Client,
    batch: int | None,
) -> tuple[S, Info]:
    """Play all settings and seeds on the workers, and return what `sweep` returns. `numbers` are
    those in which the settings differ, stacked, and `shared` is the rest of the algorithm.

    Every batch has the same shape, so that a worker compiles once: the last ones repeat what they
    lack, and what is repeated is left out of the result.
    """
    replicas = length(rounds) if seeds else 1
    total = settings * replicas
    if batch is None:
        batch = -(-total // max(1, len(client.nthreads())))
    if batch < 1:
        raise ValueError(f"batch must be at least 1, but got {batch}.")
    rows = _cuts(settings, max(1, batch // replicas))
    columns = _cuts(replicas, min(batch, replicas))
    token = uuid.uuid4().hex
    sent = _to_host((numbers, shared, state, rounds, record))
    # A list of seeds only where there is an axis of them.
    jobs = {
        f"sweep-{token[:8]}-{i}-{j}": (token, row.tolist(), column.tolist() if seeds else None)
        for i, row in enumerate(rows)
        for j, column in enumerate(columns)
    }

    def welcome(addresses: list[str]) -> dict[str, str]:
        # Sent once to each worker, also to those that come later or come back.
        found = dask.on_workers(client, dask.keep, token, sent, workers=addresses)
        return {
            address: dask.GONE if isinstance(error, OSError) else f"it cannot take this: {error}."
            for address, error in found.items()
            if error is not None
        }

    try:
        found = dict(job_queue.results(client, play_batch, jobs, welcome=welcome))
    finally:
        if client.status == "running":
            client.run(forget, token, on_error="ignore")
    batches = [found[name] for name in jobs]
    if seeds:
        width = len(columns)
        starts = range(0, len(batches), width)
        batches = [_joined(batches[start : start + width], 1, replicas) for start in starts]
    return jax.tree.map(jnp.asarray, _joined(batches, 0, settings))


def play_batch(token: str, settings: list[int], seeds: list[int] | None) -> PyTree:
    """Play some settings on some seeds on a worker, and return arrays of the host."""
    from .sweep import _sweep

    numbers, shared, state, rounds, record = _on_device(token)
    numbers = at(numbers, jnp.asarray(settings))
    if seeds is not None:
        index = jnp.asarray(seeds)
        rounds = at(rounds, index)
        state = at(state, index) if state.t.ndim else state
    found = _sweep(numbers, shared, state, rounds, record, seeds is not None, len(settings))
    return jax.tree.map(np.asarray, found)


@functools.lru_cache(maxsize=1)
def _on_device(token: str) -> Any:
    """Return what `_to_host` made, put on the device once for all batches, so that compiled
    functions are found again."""
    restore = lambda leaf: jnp.asarray(leaf) if isinstance(leaf, np.ndarray) else leaf  # noqa: E731
    return jax.tree.map(restore, dask.kept(token))


def forget(token: str) -> None:
    """Drop a sweep on a worker."""
    dask.drop(token)
    _on_device.cache_clear()


def _to_host(tree: PyTree) -> PyTree:
    """Return a tree with arrays of NumPy: a worker reads them before it knows whether it computes
    in double precision."""
    return jax.tree.map(
        lambda leaf: np.asarray(leaf) if isinstance(leaf, jax.Array) else leaf, tree
    )


def _cuts(count: int, size: int) -> np.ndarray:
    """Return indices in rows of one length; the last row repeats its last index."""
    rows = -(-count // size)
    return np.minimum(np.arange(rows * size), count - 1).reshape(rows, size)


def _joined(trees: list[PyTree], axis: int, count: int) -> PyTree:
    """Return the batches side by side, without what was repeated."""

    def join(*leaves: np.ndarray) -> np.ndarray:
        return np.take(np.concatenate(leaves, axis), np.arange(count), axis)

    return jax.tree.map(join, *trees)
