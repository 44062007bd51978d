"""A small server: loopback only, two addresses, read only."""

import base64
import hashlib
import json
import re
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import resources
from pathlib import Path

from .data import snapshot

HOST = "127.0.0.1"


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


def serve(folder: Path, port: int = 0) -> ThreadingHTTPServer:
    """A server for one folder, not yet running: call `serve_forever`. Port 0 takes a free one."""
    body, policy = page()

    class Handler(BaseHTTPRequestHandler):
        server_version = "obax"
        sys_version = ""

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

    return ThreadingHTTPServer((HOST, port), Handler)
