"""Bounds on requests: who may ask, how much, how many at a time, and how long they may take."""

import asyncio
import base64
import binascii
import dataclasses
import hmac
import ipaddress
from typing import Any

from .protocol import to_json

OPEN_PATHS = ("/v2/health/live", "/v2/health/ready")
"""What probes of a cluster ask, without a token."""
SECURITY_HEADERS = [
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cache-control", b"no-store"),
]


@dataclasses.dataclass(frozen=True)
class Bounds:
    """What a server accepts."""

    token: str | None = None
    """What a client must send, as a bearer token or as the password of basic authentication."""
    local: bool = True
    """Whether requests must name this machine: a site whose name was made to point here does
    not."""
    body_bytes: int = 8 << 20
    """The largest request."""
    requests: int = 128
    """How many requests may be in progress at a time."""
    seconds: float = 30.0
    """How long a request may take to arrive."""


class Guard:
    """An ASGI application that passes on what is within the bounds."""

    def __init__(self, app: Any, bounds: Bounds):
        self.app, self.bounds = app, bounds
        self._requests = 0

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer a request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers = {name.lower(): value for name, value in scope["headers"]}
        refused = self._refused(scope["path"], headers)
        if refused is not None:
            await _answer(send, *refused)
            return
        self._requests += 1
        try:
            await self._pass_on(scope, receive, send, headers)
        finally:
            self._requests -= 1

    def _refused(self, path: str, headers: dict[bytes, bytes]) -> tuple[int, str] | None:
        bounds = self.bounds
        if bounds.local and not _is_local(headers.get(b"host", b"").decode("latin-1")):
            return 403, "only for this machine"
        if path not in OPEN_PATHS and bounds.token is not None:
            given = _token(headers.get(b"authorization", b"").decode("latin-1"))
            if not hmac.compare_digest(given.encode(), bounds.token.encode()):
                return 401, "the token is missing or wrong"
        if self._requests >= bounds.requests:
            return 503, "too many requests at a time; try again later"
        length = headers.get(b"content-length", b"0")
        if length.isdigit() and int(length) > bounds.body_bytes:
            return 413, f"the request is larger than {bounds.body_bytes:,} bytes"
        return None

    async def _pass_on(
        self, scope: Any, receive: Any, send: Any, headers: dict[bytes, bytes]
    ) -> None:
        """Read a whole request within the bounds before it is handled."""
        parts: list[bytes] = []
        size, more = 0, scope["method"] == "POST"
        try:
            async with asyncio.timeout(self.bounds.seconds):
                while more:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        return
                    parts.append(message.get("body", b""))
                    size, more = size + len(parts[-1]), message.get("more_body", False)
                    if size > self.bounds.body_bytes:
                        text = f"the request is larger than {self.bounds.body_bytes:,} bytes"
                        await _answer(send, 413, text)
                        return
        except TimeoutError:
            await _answer(send, 408, f"the request took longer than {self.bounds.seconds:g} s")
            return
        scope["obax.body"] = b"".join(parts)
        await self.app(scope, receive, _with_headers(send))


def _with_headers(send: Any) -> Any:
    async def send_with_headers(message: Any) -> None:
        if message["type"] == "http.response.start":
            message["headers"] = [*message["headers"], *SECURITY_HEADERS]
        await send(message)

    return send_with_headers


async def _answer(send: Any, status: int, text: str) -> None:
    """Answer with an error in the form of the protocol; the rest of the request is not read."""
    body = to_json({"error": text})
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
        (b"connection", b"close"),
        *SECURITY_HEADERS,
    ]
    if status == 401:
        headers.append((b"www-authenticate", b'Basic realm="obax"'))
    if status == 503:
        headers.append((b"retry-after", b"1"))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def _token(authorization: str) -> str:
    """Return the bearer token, or the password of basic authentication."""
    scheme, _, value = authorization.partition(" ")
    if scheme.lower() == "bearer":
        return value.strip()
    if scheme.lower() == "basic":
        try:
            return base64.b64decode(value, validate=True).decode().partition(":")[2]
        except (binascii.Error, UnicodeDecodeError):
            return ""
    return ""


def _is_local(host: str) -> bool:
    name = host.rsplit(":", 1)[0] if not host.endswith("]") else host
    return name == "localhost" or is_loopback(name.strip("[]"))


def is_loopback(address: str) -> bool:
    """Return whether an address or name is that of this machine alone."""
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return address == "localhost"
