"""Jobs on the workers of a Dask cluster.

The driver keeps the list of jobs and gives each worker one at a time, so that it knows what runs
where; Dask starts the workers, restarts them and carries the messages. A worker that is gone gives
its job back; one with other versions than the driver gets none.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from .._support.errors import UserError
from . import dask

if TYPE_CHECKING:
    from distributed import Client

LOSSES = 20
"""How many workers a job may lose before it is blamed for it."""


def results(
    client: Client,
    function: Callable[..., Any],
    jobs: Mapping[str, tuple[Any, ...]],
    *,
    welcome: Callable[[list[str]], Mapping[str, str]] = lambda addresses: {},
    on_change: Callable[[list[dask.Seat]], None] = lambda seats: None,
) -> Iterator[tuple[str, Any]]:
    """`function(*job)` of every job, by its name, in the order in which they come back.

    `welcome` is given the addresses of workers before their first job and says which of them have
    what trouble; `on_change` is told who does what. Trouble with the workers that are there at the
    start is an error; a worker that comes later is only left alone.
    """
    desk = Desk(client, function, jobs, welcome)
    try:
        while desk.waiting or desk.running:
            present = dask.present(client)
            finished = desk.collect(present)
            if desk.failure is None:
                desk.call_the_roll(present)
                desk.hand_out()
            on_change([dataclasses.replace(seat) for seat in desk.seats.values()])
            # Also before a failure: what is done is done.
            yield from finished
            if desk.failure is not None:
                raise desk.failure
            if not finished:
                dask.wait(client, [future for _, future in desk.running.values()])
    finally:
        for _, future in desk.running.values():
            _cancel(client, future)


class Desk:
    """Where jobs lie: those that wait, and who has which."""

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
        self.places: dict[str, int] = {}
        self.running: dict[str, tuple[str, Any]] = {}
        self.seats: dict[str, dask.Seat] = {}
        self.losses: collections.Counter[str] = collections.Counter()
        self.failure: BaseException | None = None
        self.begun = False
        self.settings = dask.settings()

    def collect(self, present: Mapping[str, dask.Seat]) -> list[tuple[str, Any]]:
        """Results that are there; jobs of workers that are gone wait again."""
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
                # Raises what the job raised, and otherwise if the worker goes at this moment.
                finished.append((name, future.result(timeout=dask.TIMEOUT)))
                seat.done += 1
            except Exception as error:
                if future.status == "error" and not _killed(error):
                    self.failure = _named(error, name, seat)
                else:
                    self._take_back(name, future)
        self.seats = {a: seat for a, seat in self.seats.items() if a in present}
        return finished

    def call_the_roll(self, present: Mapping[str, dask.Seat]) -> None:
        """Workers that are new: who are they, and have they what they need?"""
        new = [address for address in present if address not in self.seats]
        troubles = dask.troubles(self.client, new) if new else {}
        sound = [address for address in new if address not in troubles]
        troubles |= self.welcome(sound) if sound else {}
        for address in new:
            # Killed while it was asked: not there.
            if troubles.get(address) != dask.GONE:
                self.seats[address] = present[address]
                self.seats[address].trouble = troubles.get(address, "")
        troubled = [seat for seat in self.seats.values() if seat.trouble]
        if not self.begun and troubled:
            self.failure = UserError(_complaint(troubled))
        elif troubled and self.waiting and len(troubled) == len(self.seats):
            self.failure = dask.ClusterLost(_complaint(troubled))
        self.begun = self.begun or bool(self.seats)

    def hand_out(self) -> None:
        """One job to each worker that has none."""
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
        """The waiting job that comes next after the worker's last one, so that neighbours, which
        often share a program, go to one worker; those who are new begin far from each other, and
        do not compile the same thing at the same moment."""
        count = len(self.order)
        first = count * list(self.seats).index(address) // len(self.seats)
        place = self.places.get(address, first)
        name = min(self.waiting, key=lambda job: (self.order[job] - place) % count)
        self.places[address] = self.order[name]
        self.waiting.remove(name)
        return name

    def _take_back(self, name: str, future: Any) -> None:
        _cancel(self.client, future)
        self.losses[name] += 1
        self.waiting.append(name)
        if self.losses[name] > LOSSES:
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
    where = f"{job} on worker {seat.name} ({seat.host})"
    if isinstance(error, UserError):
        return UserError(f"{where}: {error}")
    error.add_note(f"in {where}")
    return error
