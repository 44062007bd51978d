"""The workers of a Dask cluster: how they are started, reached, asked who they are and told.

Between the processes of a cluster Dask uses pickle: all of them must trust each other. What obax
sends is plain (names, numbers, arrays, and the functions of `sweep`), and nothing that was pickled
is ever read from a disk.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
import os
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from types import ModuleType
from typing import TYPE_CHECKING, Any

from .._support.errors import UserError
from .._support.versions import source, versions

if TYPE_CHECKING:
    from distributed import Client

TIMEOUT = 10.0
"""Seconds for a scheduler to answer, at the start and when it has been lost."""
GONE = "it is gone."
# XLA sizes its pool of threads by NPROC.
ONE_CORE = {"NPROC": "1", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
# What changes the numbers of a program that is the same.
SETTINGS = (
    "jax_enable_x64",
    "jax_numpy_dtype_promotion",
    "jax_default_matmul_precision",
    "jax_disable_most_optimizations",
)


class ClusterLost(UserError):
    """The scheduler is gone, or a job has lost too many workers: what was finished is safe."""


@dataclasses.dataclass
class Seat:
    """A worker as the driver sees it."""

    name: str
    host: str
    job: str | None = None
    done: int = 0
    trouble: str = ""
    """Why it gets no job."""


def distributed() -> ModuleType:
    """Dask's package, or a `UserError` that says how to get it."""
    try:
        import distributed
    except ImportError as error:
        raise UserError(f"workers need Dask ({error}): pip install 'obax[dask]'.") from error
    return distributed


@contextlib.contextmanager
def local(workers: int) -> Iterator[Client]:
    """A cluster of so many processes on this machine, reached over loopback only.

    They share what they compile, for as long as the cluster lives."""
    dask_distributed = distributed()
    import dask

    if workers < 1:
        raise UserError(f"workers must be at least 1, but got {workers}.")
    spawn = "distributed.nanny.pre-spawn-environ"
    with tempfile.TemporaryDirectory(prefix="obax-workers-") as place:
        compiled = {"JAX_COMPILATION_CACHE_DIR": os.path.join(place, "compiled")}  # noqa: PTH118
        # By default JAX keeps only what took a second to compile: most of a part took less.
        compiled["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0.05"
        compiled["JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES"] = "0"
        if "JAX_COMPILATION_CACHE_DIR" in os.environ:
            compiled = {}
        environment = dask.config.get(spawn, {}) | ONE_CORE | compiled
        with (
            dask.config.set({spawn: environment}),
            _quiet(),
            dask_distributed.LocalCluster(
                n_workers=workers,
                threads_per_worker=1,
                host="127.0.0.1",
                dashboard_address="127.0.0.1:0",
                local_directory=place,
                # Nothing is stored in Dask; a half of the memory each would end what fits today.
                memory_limit=0,
                silence_logs=logging.CRITICAL,
            ) as cluster,
            dask_distributed.Client(cluster, timeout=TIMEOUT, set_as_default=False) as client,
        ):
            yield client


@contextlib.contextmanager
def connect(address: str) -> Iterator[Client]:
    """A client of the cluster whose scheduler has this address."""
    dask_distributed = distributed()
    with _quiet():
        try:
            # A client waits for ever for somebody who listens and says nothing.
            asyncio.run(_greet(address))
            client = dask_distributed.Client(address, timeout=TIMEOUT, set_as_default=False)
        except (OSError, ValueError, TimeoutError) as error:
            raise UserError(
                f"no Dask scheduler answers at {address} ({TIMEOUT:.0f} s; "
                f"{str(error) or 'nothing was said'}). Is it "
                f"running, and is the address of the form tcp://HOST:PORT?"
            ) from error
        with client:
            yield client


async def _greet(address: str) -> None:
    async with asyncio.timeout(TIMEOUT):
        comm = await distributed().comm.connect(address, timeout=TIMEOUT)
        await comm.close()


_KEPT: dict[str, Any] = {}


def keep(token: str, value: Any) -> None:
    """On a worker: hold what all jobs of a kind need, so that it is sent once."""
    _KEPT[token] = value


def kept(token: str) -> Any:
    """On a worker: what `keep` was given."""
    return _KEPT[token]


def drop(token: str) -> None:
    """On a worker: let it go."""
    _KEPT.pop(token, None)


def on_workers(
    client: Client, function: Callable[..., Any], *arguments: Any, workers: Iterable[str]
) -> dict[str, Any]:
    """What a function says on each worker, or the exception that came instead."""
    return client.run(function, *arguments, workers=list(workers), on_error="return")


def identity() -> dict[str, str]:
    """Of this process: what must be the same everywhere for the numbers to be the same."""
    found = versions()
    # The third number of Python's version changes no number of ours.
    return found | {"python": found["python"].rpartition(".")[0], "source": source()}


def troubles(client: Client, addresses: list[str]) -> dict[str, str]:
    """What is wrong with workers, by address: other versions, or no obax."""
    ours, troubles = identity(), {}
    for address, found in on_workers(client, identity, workers=addresses).items():
        if isinstance(found, OSError):
            troubles[address] = GONE
            continue
        if isinstance(found, Exception):
            troubles[address] = (
                f"it cannot load what it must run ({found}): obax is missing there, or older; "
                f"install obax {ours['obax']} with the extra dask."
            )
            continue
        names = [name for name in ours if found.get(name) != ours[name]]
        if names:
            theirs = ", ".join(f"{name} {found.get(name)} ({ours[name]} here)" for name in names)
            troubles[address] = f"it has other versions: {theirs}; install the same ones."
    return troubles


def present(client: Client) -> dict[str, Seat]:
    """The workers that the scheduler knows now, by address."""
    begun = time.monotonic()
    while True:
        try:
            found = client.scheduler_info(n_workers=-1)["workers"]
            return {
                address: Seat(str(worker["name"]), str(worker["host"]))
                for address, worker in found.items()
            }
        except (OSError, AttributeError, RuntimeError, KeyError) as error:
            # While it connects again a client has nobody to ask; then it is closed, and knows of
            # no workers at all.
            if client.status == "closed" or time.monotonic() - begun > TIMEOUT:
                raise ClusterLost("the Dask scheduler is gone.") from error
            time.sleep(0.1)


def wait(client: Client, futures: list[Any], seconds: float = 1.0) -> None:
    """Until one has ended, or for a second: workers come and go meanwhile."""
    if not futures:
        time.sleep(seconds / 4)
        return
    # Neither a second that has passed nor a job that failed or was lost is for here to tell.
    ends = (TimeoutError, OSError, RuntimeError, distributed().CancelledError)
    with contextlib.suppress(*ends), client.as_current():
        distributed().wait(futures, timeout=seconds, return_when="FIRST_COMPLETED")


def settings() -> dict[str, Any]:
    """How JAX is set in this process, where that changes numbers."""
    import jax

    # Some are attributes, which a `with` block may have changed, and some are not.
    missing = object()
    found = {name: getattr(jax.config, name, missing) for name in SETTINGS}
    return {n: jax.config.read(n) if value is missing else value for n, value in found.items()}


def perform(settings: dict[str, Any], function: Callable[..., Any], *job: Any) -> Any:
    """On a worker: one core, and JAX set as it is in the driver."""
    for name, value in ONE_CORE.items():
        # For clusters that others started: in time if JAX has not computed here yet.
        os.environ.setdefault(name, value)
    import jax

    # Where it can be done for this job alone it is: a worker may be a thread of somebody's process.
    with contextlib.ExitStack() as stack:
        for name, value in settings.items():
            for_now = getattr(jax, name.removeprefix("jax_"), None)
            if for_now is not None:
                stack.enter_context(for_now(value))
            elif jax.config.read(name) != value:
                jax.config.update(name, value)
        return function(*job)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Without Dask's log: what matters of it is said in one line, by an exception."""
    # Dask gives each of its loggers a level and a handler of its own.
    loggers = [
        logger
        for name, logger in logging.root.manager.loggerDict.items()
        if name.split(".")[0] in ("distributed", "tornado") and isinstance(logger, logging.Logger)
    ]
    before = [logger.disabled for logger in loggers]
    for logger in loggers:
        logger.disabled = True
    try:
        yield
    finally:
        for logger, state in zip(loggers, before, strict=True):
            logger.disabled = state
