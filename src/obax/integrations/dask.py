"""Jobs on the workers of a Dask cluster.

The driver keeps the list of jobs and gives each worker one at a time, so that it knows what runs
where; Dask starts the workers, restarts them and carries the messages. A worker that is gone gives
its job back; one with other versions than the driver gets none.

Between the processes of a cluster Dask uses pickle: all of them must trust each other. What obax
sends is plain (names, numbers, arrays, and the functions of `sweep`), and nothing that was pickled
is ever read from a disk.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import logging
import os
import tempfile
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import ModuleType
from typing import TYPE_CHECKING, Any

from .._support.errors import UserError
from .._support.versions import source, versions

if TYPE_CHECKING:
    from distributed import Client

TIMEOUT = 10.0
"""Seconds for a scheduler to answer, at the start and when it has been lost."""
LOSSES = 20
"""How many workers a job may lose before it is blamed for it."""
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
                dashboard_address=None,
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
            client = dask_distributed.Client(address, timeout=TIMEOUT, set_as_default=False)
        except (OSError, ValueError) as error:
            raise UserError(
                f"no Dask scheduler answers at {address} ({TIMEOUT:.0f} s; {error}). Is it "
                f"running, and is the address of the form tcp://HOST:PORT?"
            ) from error
        with client:
            yield client


def results(
    client: Client,
    function: Callable[..., Any],
    jobs: Mapping[str, tuple[Any, ...]],
    *,
    welcome: Callable[[list[str]], Mapping[str, str]] = lambda addresses: {},
    on_change: Callable[[list[Seat]], None] = lambda seats: None,
) -> Iterator[tuple[str, Any]]:
    """`function(*job)` of every job, by its name, in the order in which they come back.

    `welcome` is given the addresses of workers before their first job and says which of them have
    what trouble; `on_change` is told who does what. Trouble with the workers that are there at the
    start is an error; a worker that comes later is only left alone.
    """
    waiting, losses = list(jobs), collections.Counter[str]()
    running: dict[str, tuple[str, Any]] = {}
    seats: dict[str, Seat] = {}
    first, settings = True, _settings()

    def give_back(address: str, future: Any) -> None:
        name = running.pop(address)[0]
        losses[name] += 1
        if losses[name] > LOSSES:
            raise ClusterLost(
                f"{name} has lost {losses[name]} workers, one after the other: they were killed, "
                f"perhaps for the memory that it needs."
            )
        waiting.insert(0, name)
        with contextlib.suppress(Exception):
            future.cancel()

    try:
        while waiting or running:
            finished, present = [], _present(client)
            for address, (name, future) in list(running.items()):
                if future.status == "finished" and address in present:
                    finished.append((name, future.result(timeout=TIMEOUT)))
                    del running[address]
                    seats[address].done, seats[address].job = seats[address].done + 1, None
                elif future.status == "error" and not _killed(error := future.exception()):
                    raise _named(error, name, seats[address])
                elif future.status != "pending" or address not in present:
                    give_back(address, future)
                    seats[address].job = None
            seats = {address: seat for address, seat in seats.items() if address in present}
            new = [address for address in present if address not in seats]
            if new:
                troubles = _troubles(client, new)
                sound = [address for address in new if address not in troubles]
                troubles = {**troubles, **(welcome(sound) if sound else {})}
                for address in new:
                    seats[address] = present[address]
                    seats[address].trouble = troubles.get(address, "")
                if troubles and first:
                    raise UserError(_complaint(seats.values()))
                first = False
            for address, seat in seats.items():
                if waiting and not seat.trouble and seat.job is None:
                    seat.job = name = waiting.pop(0)
                    future = client.submit(
                        _perform,
                        settings,
                        function,
                        *jobs[name],
                        key=f"{name}-{uuid.uuid4().hex}",
                        workers=[address],
                    )
                    running[address] = name, future
            on_change([dataclasses.replace(seat) for seat in seats.values()])
            if waiting and seats and all(seat.trouble for seat in seats.values()):
                raise ClusterLost(_complaint(seats.values()))
            yield from finished
            if not finished:
                _wait([future for _, future in running.values()])
    finally:
        if client.status == "running":
            for _, future in running.values():
                with contextlib.suppress(Exception):
                    future.cancel()


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


def _troubles(client: Client, addresses: list[str]) -> dict[str, str]:
    """What is wrong with workers, by address: other versions, or no obax."""
    ours, troubles = identity(), {}
    for address, found in on_workers(client, identity, workers=addresses).items():
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


def _present(client: Client) -> dict[str, Seat]:
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


def _wait(futures: list[Any], seconds: float = 1.0) -> None:
    """Until one has ended, or for a second: workers come and go meanwhile."""
    if not futures:
        time.sleep(seconds / 4)
        return
    with contextlib.suppress(Exception):
        distributed().wait(futures, timeout=seconds, return_when="FIRST_COMPLETED")


def _killed(error: BaseException) -> bool:
    return isinstance(error, distributed().KilledWorker)


def _complaint(seats: Iterable[Seat]) -> str:
    troubled = [seat for seat in seats if seat.trouble]
    return " ".join(f"worker {seat.name} ({seat.host}): {seat.trouble}" for seat in troubled)


def _named(error: BaseException, job: str, seat: Seat) -> BaseException:
    where = f"{job} on worker {seat.name} ({seat.host})"
    if isinstance(error, UserError):
        return UserError(f"{where}: {error}")
    error.add_note(f"in {where}")
    return error


def _settings() -> dict[str, Any]:
    import jax

    # Some are attributes, which a `with` block may have changed, and some are not.
    missing = object()
    found = {name: getattr(jax.config, name, missing) for name in SETTINGS}
    return {n: jax.config.read(n) if value is missing else value for n, value in found.items()}


def _perform(settings: dict[str, Any], function: Callable[..., Any], *job: Any) -> Any:
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
