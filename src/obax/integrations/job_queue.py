"""A queue of jobs for the workers of a Dask cluster.

Dask starts the workers, restarts them and carries the messages. The queue is kept here, and not in
Dask's scheduler, for three reasons. A worker with other versions than the driver must get no job,
even if it joins late. The driver must know what runs where, for `obax watch`. And neighbouring
jobs, which often share a compiled program, should go to one worker. A worker that is gone gives its
job back.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from .._support.messages import UserError
from . import dask

if TYPE_CHECKING:
    from distributed import Client

MAX_LOSSES = 20
"""How many workers a job may lose before the run ends."""


def results(
    client: Client,
    function: Callable[..., Any],
    jobs: Mapping[str, tuple[Any, ...]],
    *,
    welcome: Callable[[list[str]], Mapping[str, str]] = lambda addresses: {},
    on_change: Callable[[list[dask.Seat]], None] = lambda seats: None,
) -> Iterator[tuple[str, Any]]:
    """Yield name and result of `function(*job)` for every job, in the order of completion.

    `welcome` gets the addresses of workers before their first job, and returns the trouble of those
    that cannot be used. `on_change` gets the state of all workers. Trouble with a worker that is
    there at the start is an error; a worker with trouble that joins later gets no job.
    """
    queue = JobQueue(client, function, jobs, welcome)
    try:
        while queue.waiting or queue.running:
            present = dask.present(client)
            finished = queue.collect(present)
            if queue.failure is None:
                queue.register_workers(present)
                queue.assign()
            on_change([dataclasses.replace(seat) for seat in queue.seats.values()])
            # Results come before an error: what is done must be kept.
            yield from finished
            if queue.failure is not None:
                raise queue.failure
            if not finished:
                dask.wait(client, [future for _, future in queue.running.values()])
    finally:
        for _, future in queue.running.values():
            _cancel(client, future)


class JobQueue:
    """Jobs that wait, and the jobs that run on each worker."""

    def __init__(
        self,
        client: Client,
        function: Callable[..., Any],
        jobs: Mapping[str, tuple[Any, ...]],
        welcome: Callable[[list[str]], Mapping[str, str]],
    ):
        self.client, self.function, self.jobs, self.welcome = client, function, jobs, welcome
        self.waiting = list(jobs)
        self.order = {name: index for index, name in enumerate(jobs)}
        self.positions: dict[str, int] = {}
        self.running: dict[str, tuple[str, Any]] = {}
        self.seats: dict[str, dask.Seat] = {}
        self.losses: collections.Counter[str] = collections.Counter()
        self.failure: BaseException | None = None
        self.begun = False
        self.settings = dask.settings()

    def collect(self, present: Mapping[str, dask.Seat]) -> list[tuple[str, Any]]:
        """Return the results that are there; put jobs of workers that are gone back."""
        finished = []
        for address, (name, future) in list(self.running.items()):
            if address in present and future.status == "pending":
                continue
            seat = self.seats[address]
            seat.job = None
            del self.running[address]
            try:
                if address not in present:
                    raise OSError("the worker is gone")
                # Raises what the job raised, and another error if the worker is lost just now.
                finished.append((name, future.result(timeout=dask.TIMEOUT)))
                seat.done += 1
            except Exception as error:
                if future.status == "error" and not _killed(error):
                    self.failure = _named(error, name, seat)
                else:
                    self._put_back(name, future)
        self.seats = {address: s for address, s in self.seats.items() if address in present}
        return finished

    def register_workers(self, present: Mapping[str, dask.Seat]) -> None:
        """Check workers that are new, and add them."""
        new = [address for address in present if address not in self.seats]
        troubles = dask.troubles(self.client, new) if new else {}
        usable = [address for address in new if address not in troubles]
        troubles |= self.welcome(usable) if usable else {}
        for address in new:
            # A worker that was killed during the check is not added.
            if troubles.get(address) != dask.GONE:
                self.seats[address] = present[address]
                self.seats[address].trouble = troubles.get(address, "")
        troubled = [seat for seat in self.seats.values() if seat.trouble]
        if not self.begun and troubled:
            self.failure = UserError(_complaint(troubled))
        elif troubled and self.waiting and len(troubled) == len(self.seats):
            self.failure = dask.ClusterLost(_complaint(troubled))
        self.begun = self.begun or bool(self.seats)

    def assign(self) -> None:
        """Give a job to each worker that has none."""
        for address, seat in self.seats.items():
            if self.waiting and not self.failure and not seat.trouble and seat.job is None:
                seat.job = name = self._next_for(address)
                future = self.client.submit(
                    dask.perform,
                    self.settings,
                    self.function,
                    *self.jobs[name],
                    key=f"{name}-{uuid.uuid4().hex}",
                    workers=[address],
                )
                self.running[address] = name, future

    def _next_for(self, address: str) -> str:
        """Return the waiting job that follows the last one of the worker.

        Neighbours often share a program, which one worker then compiles once. New workers begin far
        from each other, so that they do not compile the same program at the same moment.
        """
        count = len(self.order)
        first = count * list(self.seats).index(address) // len(self.seats)
        position = self.positions.get(address, first)
        name = min(self.waiting, key=lambda job: (self.order[job] - position) % count)
        self.positions[address] = self.order[name]
        self.waiting.remove(name)
        return name

    def _put_back(self, name: str, future: Any) -> None:
        _cancel(self.client, future)
        self.losses[name] += 1
        self.waiting.append(name)
        if self.losses[name] > MAX_LOSSES:
            self.failure = dask.ClusterLost(
                f"{name} has lost {self.losses[name]} workers, one after the other: they were "
                f"killed, perhaps for the memory that it needs."
            )


def _killed(error: BaseException) -> bool:
    return isinstance(error, dask.distributed().KilledWorker)


def _cancel(client: Client, future: Any) -> None:
    if client.status == "running":
        with contextlib.suppress(Exception):
            future.cancel()


def _complaint(seats: Iterable[dask.Seat]) -> str:
    return " ".join(f"worker {seat.name} ({seat.host}): {seat.trouble}" for seat in seats)


def _named(error: BaseException, job: str, seat: dask.Seat) -> BaseException:
    """Return the error of a job with the names of job and worker."""
    where = f"{job} on worker {seat.name} ({seat.host})"
    if isinstance(error, UserError):
        return UserError(f"{where}: {error}")
    error.add_note(f"in {where}")
    return error
