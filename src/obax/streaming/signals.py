"""Orderly stops: a stream that receives a signal finishes its batch and saves."""

import os
import select
import signal
from types import FrameType
from typing import BinaryIO

SIGNALS = ("SIGINT", "SIGTERM", "SIGHUP")


class Stop:
    """Whether a signal asked the process to stop; a second one ends it at once.

    The handlers only set a flag, so that nothing is interrupted between reading rows and writing
    their predictions. A pipe wakes whoever waits for input.
    """

    def __init__(self) -> None:
        self.signal: int | None = None
        self._wake_reader, self._wake_writer = os.pipe()
        self._previous = {
            number: signal.signal(number, self._handle)
            for number in (getattr(signal, name) for name in SIGNALS if hasattr(signal, name))
            # Under nohup or in the background of a script, ignored signals stay ignored.
            if signal.getsignal(number) is not signal.SIG_IGN
        }

    def __bool__(self) -> bool:
        return self.signal is not None

    def wait(self, descriptor: int) -> bool:
        """Wait until `descriptor` is readable or at its end; return `False` if asked to stop."""
        if self:
            return False
        ready, _, _ = select.select([descriptor, self._wake_reader], [], [])
        return not self and descriptor in ready

    def close(self) -> None:
        """Restore the previous signal handlers."""
        for number, handler in self._previous.items():
            signal.signal(number, handler)
        self._previous = {}
        for descriptor in (self._wake_reader, self._wake_writer):
            os.close(descriptor)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self:
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)
        self.signal = number
        os.write(self._wake_writer, b"x")


def reader_has_gone(out: BinaryIO) -> bool:
    """Return whether `out` is a pipe or socket that nobody reads any more."""
    try:
        descriptor = out.fileno()
    except OSError:
        return False
    poll = select.poll()
    poll.register(descriptor, 0)
    return any(event & (select.POLLERR | select.POLLHUP) for _, event in poll.poll(0))
