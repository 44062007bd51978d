"""Bounds on requests: who may ask, how much, how many at a time, and how long they may take."""

import asyncio
import base64
import dataclasses
import hmac
import ipaddress
from typing import Any

from starlette.requests import ClientDisconnect, Request

from .protocol import RequestError, error_response

OPEN_PATHS = ("/v2/health/live", "/v2/health/ready")
"""What probes of a cluster ask, without a token."""


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
        """Answer a request, or pass it on with its whole body as `scope["obax.body"]`."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        self._requests += 1
        try:
            request = Request(scope, receive)
            self._check(request)
            scope["obax.body"] = await self._body(request) if request.method == "POST" else b""
            await self.app(scope, receive, send)
        except RequestError as error:
            # The rest of the request is not read.
            answer = error_response(error)
            answer.headers["Connection"] = "close"
            if error.status_code == 401:
                answer.headers["WWW-Authenticate"] = 'Basic realm="obax"'
            await answer(scope, receive, send)
        except ClientDisconnect:
            pass
        finally:
            self._requests -= 1

    def _check(self, request: Request) -> None:
        """Raise a `RequestError` if a request must not be read."""
        bounds, headers = self.bounds, request.headers
        if bounds.local and not _is_local(headers.get("host", "")):
            raise RequestError("only for this machine", 403)
        if bounds.token is not None and request.url.path not in OPEN_PATHS:
            token = _token(headers.get("authorization", ""))
            if not hmac.compare_digest(token.encode(), bounds.token.encode()):
                raise RequestError("the token is missing or wrong", 401)
        if self._requests > bounds.requests:
            raise RequestError("too many requests at a time; try again later", 503)
        length = headers.get("content-length", "0")
        self._check_size(int(length) if length.isdigit() else 0)

    def _check_size(self, size: int) -> None:
        if size > self.bounds.body_bytes:
            raise RequestError(f"the request is larger than {self.bounds.body_bytes:,} bytes", 413)

    async def _body(self, request: Request) -> bytes:
        """Return the body; raise a `RequestError` if it is too large or comes too slowly."""
        body = bytearray()
        try:
            async with asyncio.timeout(self.bounds.seconds):
                async for part in request.stream():
                    body += part
                    self._check_size(len(body))
        except TimeoutError:
            text = f"the request took longer than {self.bounds.seconds:g} s"
            raise RequestError(text, 408) from None
        return bytes(body)


def _token(authorization: str) -> str:
    """Return the bearer token, or the password of basic authentication."""
    scheme, _, value = authorization.partition(" ")
    if scheme.lower() != "basic":
        return value.strip() if scheme.lower() == "bearer" else ""
    try:
        return base64.b64decode(value, validate=True).decode().partition(":")[2]
    except ValueError:
        return ""


def _is_local(host: str) -> bool:
    name = host if host.endswith("]") else host.rsplit(":", 1)[0]
    return is_loopback(name.strip("[]"))


def is_loopback(address: str) -> bool:
    """Return whether an address or name is that of this machine alone."""
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return address == "localhost"
