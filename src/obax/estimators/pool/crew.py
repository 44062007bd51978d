"""Shards side by side, each on a thread of its own: the kernel does not hold Python's lock."""

import concurrent.futures
import os
from collections.abc import Callable, Sequence


def cores() -> int:
    """That this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class Crew:
    """Threads that stay from one call to the next; a forked process gets its own."""

    def __init__(self, size: int):
        self._size, self._process = size, -1
        self._threads: concurrent.futures.ThreadPoolExecutor | None = None

    def run(self, jobs: Sequence[Callable[[], None]]) -> None:
        """All of them, the first on this thread; an error of one is raised when all have ended."""
        if len(jobs) < 2:
            for job in jobs:
                job()
            return
        if self._threads is None or self._process != os.getpid():
            self._threads = concurrent.futures.ThreadPoolExecutor(self._size, "obax-pool")
            self._process = os.getpid()
        others = [self._threads.submit(job) for job in jobs[1:]]
        try:
            jobs[0]()
        finally:
            concurrent.futures.wait(others)
        for other in others:
            other.result()
