"""The server of `obax watch`: read only, on this machine only, with a limit on connections."""

import base64
import contextlib
import hashlib
import json
import re
import socket
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import resources
from pathlib import Path
from typing import Any

from .page import read

HOST = "127.0.0.1"
TIMEOUT = 10.0
"""Seconds after which a silent connection is closed."""
MAX_CONNECTIONS = 64
"""With more at a time the oldest is closed, so that slow clients do not block others."""


def page() -> tuple[bytes, str]:
    """Return the page, and a policy that allows its own script and style only."""
    text = resources.files(__package__).joinpath("page.html").read_text(encoding="utf-8")

    def digest(tag: str) -> str:
        match = re.search(rf"<{tag}>(.*?)</{tag}>", text, re.S)
        assert match is not None
        return base64.b64encode(hashlib.sha256(match[1].encode()).digest()).decode()

    policy = (
        f"default-src 'none'; connect-src 'self'; script-src 'sha256-{digest('script')}'; "
        f"style-src 'sha256-{digest('style')}'; base-uri 'none'; form-action 'none'; "
        f"frame-ancestors 'none'"
    )
    return text.encode(), policy


class Server(ThreadingHTTPServer):
    """A server with one thread for each connection, and at most `MAX_CONNECTIONS` of them."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, *arguments: Any) -> None:
        self.open_connections: dict[socket.socket, None] = {}
        self._lock = threading.Lock()
        super().__init__(*arguments)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Handle a connection; close the oldest ones if there are too many."""
        with self._lock:
            self.open_connections[request] = None
            surplus = list(self.open_connections)[: len(self.open_connections) - MAX_CONNECTIONS]
            for oldest in surplus:
                del self.open_connections[oldest]
        for oldest in surplus:
            _disconnect(oldest)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        """Forget a connection that is closed."""
        with self._lock:
            self.open_connections.pop(request, None)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore clients that disconnect during an answer."""


def _disconnect(connection: socket.socket) -> None:
    # This ends the thread that waits for it.
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)


def serve(folder: Path, port: int = 0) -> ThreadingHTTPServer:
    """Return a server for a folder; call `serve_forever` to run it. Port 0 takes a free one."""
    body, policy = page()

    class Handler(BaseHTTPRequestHandler):
        server_version = "obax"
        sys_version = ""
        timeout = TIMEOUT

        def do_GET(self) -> None:
            # A site whose name was made to point to this machine still sends its own name.
            host = self.headers.get("Host", "")
            if host.rsplit(":", 1)[0] not in (HOST, "localhost"):
                self._answer(403, b"Only for this machine.\n", "text/plain")
            elif self.path == "/":
                self._answer(200, body, "text/html; charset=utf-8")
            elif self.path == "/data.json":
                data = json.dumps(read(folder)).encode()
                self._answer(200, data, "application/json")
            else:
                self._answer(404, b"Nothing here.\n", "text/plain")

        do_HEAD = do_GET

        def _answer(self, status: int, data: bytes, kind: str) -> None:
            self.send_response(status)
            for name, value in {
                "Content-Type": kind,
                "Content-Length": str(len(data)),
                "Content-Security-Policy": policy,
                "X-Content-Type-Options": "nosniff",
                "Referrer-Policy": "no-referrer",
                "Cache-Control": "no-store",
            }.items():
                self.send_header(name, value)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(data)

        def log_message(self, format: str, *args: object) -> None:
            pass

    return Server((HOST, port), Handler)
