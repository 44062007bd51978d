"""A polite stop: asked to end, a stream finishes its batch, saves and says how to go on."""

import os
import select
import signal
from types import FrameType
from typing import BinaryIO

SIGNALS = ("SIGINT", "SIGTERM", "SIGHUP")


class Stop:
    """Whether somebody asked to stop, by a signal; asked twice, the process ends at once.

    Handlers only take note: nothing is interrupted between reading rows and writing what was
    predicted of them. Whoever waits for input is woken through a pipe.
    """

    def __init__(self) -> None:
        self.signal: int | None = None
        self._woken, self._wake = os.pipe()
        self._before = {
            number: signal.signal(number, self._note)
            for number in (getattr(signal, name) for name in SIGNALS if hasattr(signal, name))
            # Started with nohup, or in the background of a script: what is ignored stays ignored.
            if signal.getsignal(number) is not signal.SIG_IGN
        }

    def __bool__(self) -> bool:
        return self.signal is not None

    def wait(self, descriptor: int) -> bool:
        """Until there is something to read from `descriptor`, or nothing any more; `False` if it is
        time to stop."""
        if self:
            return False
        ready, _, _ = select.select([descriptor, self._woken], [], [])
        return not self and descriptor in ready

    def close(self) -> None:
        """Signals do again what they did before."""
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._before = {}
        for descriptor in (self._woken, self._wake):
            os.close(descriptor)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self:
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)
        self.signal = number
        os.write(self._wake, b"x")


def is_closed(out: BinaryIO) -> bool:
    """Whether whoever read from a pipe or socket has gone."""
    try:
        descriptor = out.fileno()
    except OSError:
        return False
    poll = select.poll()
    poll.register(descriptor, 0)
    return any(event & (select.POLLERR | select.POLLHUP) for _, event in poll.poll(0))
