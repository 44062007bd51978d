"""The application of `obax serve` and `obax watch`: addresses and what answers them."""

import asyncio
import base64
import contextlib
import functools
import hashlib
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

from prometheus_client import generate_latest
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from .. import __version__
from . import page
from .dashboard import page_of_model
from .guard import Bounds, Guard
from .metrics import Metrics, numbers
from .model import ServedModel
from .protocol import Json, RequestError, error_response, to_json

EVENT_SECONDS = 1.0
PAUSE = 20
"""How many times as long as a page took to make it is shown again: that of a pool with 50,000 keys
takes a second."""
MAX_LISTENERS = 16
"""How many clients may listen to events at a time."""
Handler = Callable[[Request], Awaitable[Response]]


def application(models: Sequence[ServedModel], bounds: Bounds, stop: asyncio.Event) -> Guard:
    """Return the application that serves some models; `stop` ends its streams of events."""
    return Guard(Server(models, stop).app(), bounds)


def watch_application(folder: Path, bounds: Bounds) -> Guard:
    """Return the application that shows a folder."""
    routes = _page_routes(_json(lambda request: page.read(folder)))
    return Guard(Starlette(routes=routes, exception_handlers=HANDLERS), bounds)


def _json(answer: Callable[[Request], Any]) -> Handler:
    """Return a handler that answers with the plain values that `answer` returns."""

    async def handler(request: Request) -> Response:
        return Json(answer(request))

    return handler


def _page_routes(data: Handler) -> list[Route]:
    body, policy = page_and_policy()

    async def index(request: Request) -> Response:
        headers = {"Content-Security-Policy": policy}
        return Response(body, media_type="text/html", headers=headers)

    return [Route("/", index), Route("/data.json", data)]


def page_and_policy() -> tuple[bytes, str]:
    """Return the page, and a policy that allows its own script and style only."""
    body = resources.files(__package__).joinpath("page.html").read_bytes()
    digests = {
        tag: base64.b64encode(hashlib.sha256(content).digest()).decode()
        for tag, content in re.findall(rb"<(script|style)>(.*?)</\1>", body, re.S)
    }
    policy = (
        f"default-src 'none'; connect-src 'self'; script-src 'sha256-{digests[b'script']}'; "
        f"style-src 'sha256-{digests[b'style']}'; base-uri 'none'; form-action 'none'; "
        f"frame-ancestors 'none'"
    )
    return body, policy


class Server:
    """Models by their names, and the handlers of requests."""

    def __init__(self, models: Sequence[ServedModel], stop: asyncio.Event):
        self.models = {model.name: model for model in models}
        self.metrics = Metrics(models)
        self._stop, self._listeners = stop, 0
        self._pages: dict[str, tuple[float, dict[str, Any]]] = {}
        """When the page of a model is made anew, and what it shows until then."""

    def app(self) -> Starlette:
        """Return the application."""
        routes: list[Route] = []
        for model in ("/v2/models/{model}", "/v2/models/{model}/versions/1"):
            for operation in ("infer", "learn"):
                handler = functools.partial(self.answer, operation)
                routes.append(Route(f"{model}/{operation}", handler, methods=["POST"]))
            routes += [
                Route(model, _json(self.describe)),
                Route(f"{model}/ready", _json(self.ready)),
                Route(f"{model}/events", self.events),
            ]
        about = {"name": "obax", "version": __version__, "extensions": ["learn", "events"]}
        names = {"models": [{"name": name} for name in self.models]}
        routes += [
            Route("/v2", _json(lambda request: about)),
            # Models are read before the server listens: whoever is live is ready.
            Route("/v2/health/live", _json(lambda request: {"live": True})),
            Route("/v2/health/ready", _json(lambda request: {"ready": True})),
            Route("/v2/models", _json(lambda request: names)),
            Route("/metrics", self.prometheus),
            *_page_routes(self.page_data),
        ]
        handlers = HANDLERS | {HTTPException: self.failed}
        return Starlette(routes=routes, exception_handlers=handlers, lifespan=self.lifespan)

    @contextlib.asynccontextmanager
    async def lifespan(self, app: Starlette) -> AsyncIterator[None]:
        """Save models from time to time, and once more after the last request."""
        models = self.models.values()
        for model in models:
            await model.save()
        savers = [asyncio.create_task(model.save_from_time_to_time()) for model in models]
        try:
            yield
        finally:
            for saver in savers:
                saver.cancel()
            for model in models:
                await model.save()

    async def answer(self, operation: str, request: Request) -> Response:
        """Predict or learn rows, as the `operation` says."""
        begun = time.perf_counter()
        served = self._served(request)
        call = served.infer if operation == "infer" else served.learn
        answer = await call(request.scope["obax.body"])
        latency = self.metrics.latency.labels(served.name, operation)
        latency.observe(time.perf_counter() - begun)
        return Json(answer)

    def describe(self, request: Request) -> dict[str, Any]:
        """Return what a model takes and gives."""
        served = self._served(request)
        inputs = [
            {"name": name, "datatype": kind, "shape": [-1]} for name, kind in served.inputs.items()
        ]
        datatype = "FP64" if served.numbers else "BYTES"
        outputs = [{"name": "prediction", "datatype": datatype, "shape": [-1]}]
        if not served.numbers:
            outputs.append({"name": "probabilities", "datatype": "FP64", "shape": [-1, -1]})
        tensors = {"inputs": inputs, "outputs": outputs}
        return {"name": served.name, "versions": ["1"], "platform": "obax"} | tensors

    def ready(self, request: Request) -> dict[str, Any]:
        """Return that a model is there."""
        return {"name": self._served(request).name, "ready": True}

    async def prometheus(self, request: Request) -> Response:
        """Return the metrics."""
        text = generate_latest(self.metrics.registry)
        return Response(text, media_type="text/plain; version=0.0.4")

    async def events(self, request: Request) -> Response:
        """Send the numbers of a model every second, as server-sent events."""
        served = self._served(request)
        if self._listeners >= MAX_LISTENERS:
            raise RequestError("too many clients listen; try again later.", 503)

        async def lines() -> AsyncIterator[bytes]:
            self._listeners += 1
            try:
                while not self._stop.is_set():
                    yield b"data: " + to_json(numbers(served)) + b"\n\n"
                    with contextlib.suppress(TimeoutError):
                        await asyncio.wait_for(self._stop.wait(), EVENT_SECONDS)
            finally:
                self._listeners -= 1

        return StreamingResponse(lines(), media_type="text/event-stream")

    async def page_data(self, request: Request) -> Response:
        """Return what the page shows of one model, the first unless another is asked for."""
        name = request.query_params.get("model", next(iter(self.models)))
        served = self._served(request, name)
        until, contents = self._pages.get(name, (0.0, {}))
        begun = time.monotonic()
        if begun >= until:
            contents = await asyncio.to_thread(page_of_model, served)
            ended = time.monotonic()
            self._pages[name] = ended + PAUSE * (ended - begun), contents
        return Json(contents | {"models": list(self.models), "model": name})

    async def failed(self, request: Request, error: Any) -> Response:
        """Answer a request that cannot be answered, and count it."""
        self.metrics.errors.labels(str(error.status_code)).inc()
        return error_response(error)

    def _served(self, request: Request, name: str | None = None) -> ServedModel:
        name = name or request.path_params["model"]
        if name not in self.models:
            known = ", ".join(self.models)
            raise RequestError(f"there is no model {name!r}; there are: {known}.", 404)
        return self.models[name]


async def _error(request: Request, error: Exception) -> Response:
    if not isinstance(error, HTTPException):
        error = HTTPException(500, f"{type(error).__name__} inside the server")
    return error_response(error)


HANDLERS: dict[Any, Any] = {HTTPException: _error, Exception: _error}
