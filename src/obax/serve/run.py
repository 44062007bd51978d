"""Run an application on a socket until a signal asks it to end."""

import asyncio
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn
from uvicorn.protocols.http.auto import AutoHTTPProtocol

from .._support.messages import UserError

DRAIN_SECONDS = 30
"""How long requests that are in progress at the end may take."""
FIRST_REQUEST_SECONDS = 10.0
"""How long a connection may stay open before its first request has come."""
MAX_CONNECTIONS = 256
"""How many connections may be open at a time; of more, the oldest that have sent no request are
closed."""


class TimedProtocol(AutoHTTPProtocol):  # type: ignore[misc, valid-type]
    """uvicorn's protocol with bounds on connections that send no request, which it has none for."""

    def connection_made(self, transport: asyncio.Transport) -> None:
        """Start the clock of a connection, and close the oldest idle one if there are too many."""
        super().connection_made(transport)
        self.opened = self.loop.time()
        self._timer = self.loop.call_later(FIRST_REQUEST_SECONDS, self.close_if_idle)
        if len(self.connections) > MAX_CONNECTIONS:
            idle = [other for other in self.connections if other.cycle is None]
            if idle:
                min(idle, key=lambda other: other.opened).close_if_idle()

    def connection_lost(self, error: Exception | None) -> None:
        """Stop the clock."""
        self._timer.cancel()
        super().connection_lost(error)

    def close_if_idle(self) -> None:
        """Close the connection if it has sent no request."""
        if self.cycle is None:
            self.connections.discard(self)
            self.transport.abort()


class Running(uvicorn.Server):
    """A server that tells the application at once that it is to end."""

    def __init__(self, config: uvicorn.Config, stop: asyncio.Event):
        super().__init__(config)
        self._stop = stop

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End streams of events, wait for requests, then let the application save."""
        self._stop.set()
        await super().shutdown(sockets)


def listen(host: str, port: int) -> socket.socket:
    """Return a socket; port 0 takes a free one."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=256)
    except OSError as error:
        raise UserError(f"cannot listen on {host}:{port}: {error.strerror or error}.") from error


def server(app: Any, stop: asyncio.Event) -> Running:
    """Return a server for an application."""
    config = uvicorn.Config(
        app,
        http=TimedProtocol,
        log_level="warning",
        access_log=False,
        server_header=False,
        lifespan="on",
        timeout_keep_alive=10,
        timeout_graceful_shutdown=DRAIN_SECONDS,
        limit_concurrency=512,
    )
    return Running(config, stop)


def run(app: Any, stop: asyncio.Event, listener: socket.socket, ready: Callable[[], None]) -> None:
    """Serve until SIGTERM or SIGINT; then finish what is in progress, save, and return."""
    with _signals_end_quietly():
        running = server(app, stop)
        ready()
        running.run(sockets=[listener])
    if not running.started:
        raise UserError("the server could not start.")


@contextmanager
def _signals_end_quietly() -> Iterator[None]:
    """Ignore the signals that the server raises again after it has ended in good order."""
    numbers = (signal.SIGTERM, signal.SIGINT)
    previous = [signal.signal(number, lambda *_: None) for number in numbers]
    try:
        yield
    finally:
        for number, handler in zip(numbers, previous, strict=True):
            signal.signal(number, handler)
