"""A small server: loopback only, two addresses, read only, however many connections hang on it."""

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

from .data import snapshot

HOST = "127.0.0.1"
PATIENCE = 10.0
"""Seconds that a connection may say nothing."""
MOST_CONNECTIONS = 64
"""At a time: of more, the oldest goes, so that whoever is slow keeps nobody out."""


def page() -> tuple[bytes, str]:
    """The page, and a policy under which nothing but its own script and style can run or load."""
    text = resources.files(__package__).joinpath("page.html").read_text(encoding="utf-8")

    def digest(tag: str) -> str:
        found = re.search(rf"<{tag}>(.*?)</{tag}>", text, re.S)
        assert found is not None
        return base64.b64encode(hashlib.sha256(found[1].encode()).digest()).decode()

    policy = (
        f"default-src 'none'; connect-src 'self'; script-src 'sha256-{digest('script')}'; "
        f"style-src 'sha256-{digest('style')}'; base-uri 'none'; form-action 'none'; "
        f"frame-ancestors 'none'"
    )
    return text.encode(), policy


class Server(ThreadingHTTPServer):
    """One thread for each connection, and never more than `MOST_CONNECTIONS`."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, *given: Any) -> None:
        self._open: dict[socket.socket, None] = {}
        self._guard = threading.Lock()
        super().__init__(*given)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Begin with this connection, at the cost of the oldest."""
        with self._guard:
            self._open[request] = None
            surplus = list(self._open)[: len(self._open) - MOST_CONNECTIONS]
            for oldest in surplus:
                del self._open[oldest]
        for oldest in surplus:
            _hang_up(oldest)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        """Done with this connection."""
        with self._guard:
            self._open.pop(request, None)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Whoever hangs up while being answered is no error of ours."""


def _hang_up(connection: socket.socket) -> None:
    # The thread that waits for it then ends by itself.
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)


def serve(folder: Path, port: int = 0) -> ThreadingHTTPServer:
    """A server for one folder, not yet running: call `serve_forever`. Port 0 takes a free one."""
    body, policy = page()

    class Handler(BaseHTTPRequestHandler):
        server_version = "obax"
        sys_version = ""
        timeout = PATIENCE

        def do_GET(self) -> None:
            # Another site that had its name point here would still send its own name.
            host = self.headers.get("Host", "")
            if host.rsplit(":", 1)[0] not in (HOST, "localhost"):
                self._answer(403, b"Only for this machine.\n", "text/plain")
            elif self.path == "/":
                self._answer(200, body, "text/html; charset=utf-8")
            elif self.path == "/data.json":
                data = json.dumps(snapshot(folder)).encode()
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
