"""Work on two processors, and streams that are read once in each process."""

import functools
import multiprocessing
import os
from collections.abc import Callable, Iterator, Sequence

from .data import Stream
from .sources import ROWS, NotHere, stream

PROCESSES = min(2, os.cpu_count() or 1)


@functools.lru_cache(maxsize=8)
def here(name: str, limit: int = ROWS) -> Stream | None:
    """A stream, read once; `None` where its data is not on this machine."""
    try:
        return stream(name, limit)
    except NotHere:
        return None


def _call(task: tuple[Callable, int, tuple]) -> tuple[int, object]:
    function, number, arguments = task
    return number, function(*arguments)


def in_parallel(
    function: Callable, tasks: Sequence[tuple], processes: int = PROCESSES
) -> Iterator[tuple[tuple, object]]:
    """Each task and `function(*task)`, as they get ready. Processes are spawned: a model that has
    run must not be forked."""
    if processes == 1 or len(tasks) < 2:
        for task in tasks:
            yield task, function(*task)
        return
    with multiprocessing.get_context("spawn").Pool(processes) as pool:
        jobs = [(function, number, task) for number, task in enumerate(tasks)]
        for number, result in pool.imap_unordered(_call, jobs):
            yield tasks[number], result
