"""Workers of a Dask cluster: how they are started, reached, checked and used.

Dask uses pickle between the processes of a cluster, so all of them must trust each other. obax
sends plain values (names, numbers, arrays, and the functions of `sweep`), and never reads anything
pickled from a disk.
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

from .._support.messages import UserError
from .._support.names import source, versions

if TYPE_CHECKING:
    from distributed import Client

TIMEOUT = 10.0
"""Seconds that a scheduler has to answer, at the start and after the connection is lost."""
GONE = "it is gone."
# NPROC determines the number of threads of XLA.
ONE_CORE = {"NPROC": "1", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
# Settings that change the numbers of an unchanged program.
SETTINGS = (
    "jax_enable_x64",
    "jax_numpy_dtype_promotion",
    "jax_default_matmul_precision",
    "jax_disable_most_optimizations",
)


class ClusterLost(UserError):
    """The scheduler is gone, or a job has lost too many workers; finished jobs are saved."""


@dataclasses.dataclass
class Seat:
    """A worker as the driver sees it."""

    name: str
    host: str
    job: str | None = None
    done: int = 0
    trouble: str = ""
    """Why the worker gets no job."""


def distributed() -> ModuleType:
    """Return the module `distributed`, or raise a `UserError` that says how to install it."""
    try:
        import distributed
    except ImportError as error:
        raise UserError(f"workers need Dask ({error}): pip install 'obax[dask]'.") from error
    return distributed


@contextlib.contextmanager
def local(workers: int) -> Iterator[Client]:
    """Start a cluster of processes on this machine that is reached over loopback only.

    The processes share compiled programs while the cluster exists.
    """
    dask_distributed = distributed()
    import dask

    if workers < 1:
        raise UserError(f"workers must be at least 1, but got {workers}.")
    spawn = "distributed.nanny.pre-spawn-environ"
    with tempfile.TemporaryDirectory(prefix="obax-workers-") as place:
        compiled = {"JAX_COMPILATION_CACHE_DIR": os.path.join(place, "compiled")}  # noqa: PTH118
        # By default JAX keeps only programs that took a second to compile; most take less.
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
                # Dask stores nothing here, and its limit would end jobs that fit into memory.
                memory_limit=0,
                silence_logs=logging.CRITICAL,
            ) as cluster,
            dask_distributed.Client(cluster, timeout=TIMEOUT, set_as_default=False) as client,
        ):
            yield client


@contextlib.contextmanager
def connect(address: str) -> Iterator[Client]:
    """Connect to the cluster whose scheduler has this address."""
    dask_distributed = distributed()
    with _quiet():
        try:
            # A client would wait for ever for a process that listens and does not answer.
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
    """Store on this worker a value that many jobs need, so that it is sent once."""
    _KEPT[token] = value


def kept(token: str) -> Any:
    """Return the value that `keep` stored on this worker."""
    return _KEPT[token]


def drop(token: str) -> None:
    """Delete the value that `keep` stored on this worker."""
    _KEPT.pop(token, None)


def on_workers(
    client: Client, function: Callable[..., Any], *arguments: Any, workers: Iterable[str]
) -> dict[str, Any]:
    """Return the result of a function on each worker, or the exception that it raised."""
    return client.run(function, *arguments, workers=list(workers), on_error="return")


def identity() -> dict[str, str]:
    """Return the versions that must agree between processes for the numbers to agree."""
    current = versions()
    # The third number of Python's version does not change results.
    return current | {"python": current["python"].rpartition(".")[0], "source": source()}


def troubles(client: Client, addresses: list[str]) -> dict[str, str]:
    """Return what is wrong with workers, by address: other versions, or no obax."""
    ours, troubles = identity(), {}
    for address, reply in on_workers(client, identity, workers=addresses).items():
        if isinstance(reply, OSError):
            troubles[address] = GONE
            continue
        if isinstance(reply, Exception):
            troubles[address] = (
                f"it cannot load what it must run ({reply}): obax is missing there, or older; "
                f"install obax {ours['obax']} with the extra dask."
            )
            continue
        names = [name for name in ours if reply.get(name) != ours[name]]
        if names:
            theirs = ", ".join(f"{name} {reply.get(name)} ({ours[name]} here)" for name in names)
            troubles[address] = f"it has other versions: {theirs}; install the same ones."
    return troubles


def present(client: Client) -> dict[str, Seat]:
    """Return the workers that the scheduler knows now, by address."""
    begun = time.monotonic()
    while True:
        try:
            workers = client.scheduler_info(n_workers=-1)["workers"]
            return {
                address: Seat(str(worker["name"]), str(worker["host"]))
                for address, worker in workers.items()
            }
        except (OSError, AttributeError, RuntimeError, KeyError) as error:
            # A client that reconnects cannot ask the scheduler; a closed one knows no workers.
            if client.status == "closed" or time.monotonic() - begun > TIMEOUT:
                raise ClusterLost("the Dask scheduler is gone.") from error
            time.sleep(0.1)


def wait(client: Client, futures: list[Any], seconds: float = 1.0) -> None:
    """Wait until a job has ended, at most a second: workers come and go meanwhile."""
    if not futures:
        time.sleep(seconds / 4)
        return
    # A timeout, and a job that failed or was lost, are handled by the caller.
    ends = (TimeoutError, OSError, RuntimeError, distributed().CancelledError)
    with contextlib.suppress(*ends), client.as_current():
        distributed().wait(futures, timeout=seconds, return_when="FIRST_COMPLETED")


def settings() -> dict[str, Any]:
    """Return the settings of JAX in this process that change numbers."""
    import jax

    # Some settings are attributes, which a `with` block may have changed.
    missing = object()
    values = {name: getattr(jax.config, name, missing) for name in SETTINGS}
    return {n: jax.config.read(n) if value is missing else value for n, value in values.items()}


def perform(settings: dict[str, Any], function: Callable[..., Any], *job: Any) -> Any:
    """Run a job on this worker, with one core and the settings of JAX of the driver."""
    for name, value in ONE_CORE.items():
        # For clusters that others started; this works if JAX has not computed here yet.
        os.environ.setdefault(name, value)
    import jax

    # For this job alone where possible: a worker may be a thread of another program.
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
    """Silence Dask's log; what matters is reported in one line, by an exception."""
    # Each logger of Dask has a level and a handler of its own.
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
