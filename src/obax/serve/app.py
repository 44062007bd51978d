"""The application of `obax serve` and `obax watch`: addresses and what answers them."""

import asyncio
import base64
import contextlib
import hashlib
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

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
from .protocol import RequestError, to_json

EVENT_SECONDS = 1.0
MAX_LISTENERS = 16
"""How many clients may listen to events at a time."""


class Json(Response):
    """An answer in standard JSON."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        """Return the bytes of plain values."""
        return to_json(content)


def application(models: Sequence[ServedModel], bounds: Bounds, stop: asyncio.Event) -> Guard:
    """Return the application that serves some models; `stop` ends its streams of events."""
    server = Server(models, stop)
    return Guard(server.app(), bounds)


def watch_application(folder: Path, bounds: Bounds) -> Guard:
    """Return the application that shows a folder."""

    async def data(request: Request) -> Response:
        return Json(page.read(folder))

    return Guard(Starlette(routes=_page_routes(data), exception_handlers=HANDLERS), bounds)


def _page_routes(data: Callable[[Request], Awaitable[Response]]) -> list[Route]:
    body, policy = page_and_policy()

    async def index(request: Request) -> Response:
        headers = {"Content-Security-Policy": policy}
        return Response(body, media_type="text/html", headers=headers)

    return [Route("/", index), Route("/data.json", data)]


def page_and_policy() -> tuple[bytes, str]:
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


class Server:
    """Models by their names, and the handlers of requests."""

    def __init__(self, models: Sequence[ServedModel], stop: asyncio.Event):
        self.models = {model.name: model for model in models}
        self.metrics = Metrics(models)
        self._stop, self._listeners = stop, 0

    def app(self) -> Starlette:
        """Return the application."""
        model = "/v2/models/{model}"
        routes = [
            Route(f"{model}/infer", self.infer, methods=["POST"]),
            Route(f"{model}/learn", self.learn, methods=["POST"]),
            Route("/v2", self.server_metadata),
            Route("/v2/health/live", self.health),
            Route("/v2/health/ready", self.health),
            Route("/v2/models", self.list_models),
            Route(model, self.model_metadata),
            Route(f"{model}/ready", self.model_ready),
            Route(f"{model}/events", self.events),
            Route("/metrics", self.prometheus),
            *_page_routes(self.page_data),
        ]
        return Starlette(routes=routes, exception_handlers=HANDLERS | {RequestError: self.failed},
                         lifespan=self.lifespan)  # fmt: skip

    @contextlib.asynccontextmanager
    async def lifespan(self, app: Starlette) -> AsyncIterator[None]:
        """Save models from time to time, and once more after the last request."""
        for model in self.models.values():
            await model.save()
        savers = [
            asyncio.create_task(model.save_from_time_to_time()) for model in self.models.values()
        ]
        try:
            yield
        finally:
            for saver in savers:
                saver.cancel()
            # One that was writing a checkpoint has finished or given up before the last is written.
            await asyncio.gather(*savers, return_exceptions=True)
            for model in self.models.values():
                await model.save()

    async def infer(self, request: Request) -> Response:
        """Predict rows."""
        return await self._answer(request, "infer")

    async def learn(self, request: Request) -> Response:
        """Learn rows, or rows that wait for their labels."""
        return await self._answer(request, "learn")

    async def _answer(self, request: Request, operation: str) -> Response:
        begun = time.perf_counter()
        served = self._served(request)
        answer = await getattr(served, operation)(request.scope["obax.body"])
        self.metrics.answered(served.name, operation, time.perf_counter() - begun)
        return Json(answer)

    async def server_metadata(self, request: Request) -> Response:
        """Say what this server is."""
        extensions = ["learn", "events", "metrics"]
        return Json({"name": "obax", "version": __version__, "extensions": extensions})

    async def health(self, request: Request) -> Response:
        """Say that the server runs; models are read before it listens."""
        return Json({"live": True, "ready": True})

    async def list_models(self, request: Request) -> Response:
        """Say which models there are."""
        return Json({"models": [{"name": name} for name in self.models]})

    async def model_metadata(self, request: Request) -> Response:
        """Say what a model takes and gives."""
        served = self._served(request)
        names = [*([] if served.pool is None else [served.pool.key]), *served.model.feature_names_]
        # A feature may hold numbers, words or dates; numbers are the usual ones.
        inputs = [{"name": str(name), "datatype": "FP64", "shape": [-1]} for name in names]
        outputs = [{"name": "prediction", "datatype": "FP64" if served.numbers else "BYTES",
                    "shape": [-1]}]  # fmt: skip
        if not served.numbers:
            outputs.append({"name": "probabilities", "datatype": "FP64", "shape": [-1, -1]})
        return Json({"name": served.name, "versions": ["1"], "platform": "obax",
                     "inputs": inputs, "outputs": outputs})  # fmt: skip

    async def model_ready(self, request: Request) -> Response:
        """Say that a model is there."""
        return Json({"name": self._served(request).name, "ready": True})

    async def prometheus(self, request: Request) -> Response:
        """Return the metrics."""
        return Response(self.metrics.text(), media_type="text/plain; version=0.0.4")

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
                        async with asyncio.timeout(EVENT_SECONDS):
                            await self._stop.wait()
            finally:
                self._listeners -= 1

        return StreamingResponse(lines(), media_type="text/event-stream")

    async def page_data(self, request: Request) -> Response:
        """Return what the page shows of one model, the first unless another is asked for."""
        name = request.query_params.get("model", next(iter(self.models)))
        if name not in self.models:
            raise HTTPException(404, f"there is no model {name!r}")
        contents = await asyncio.to_thread(page_of_model, self.models[name])
        return Json(contents | {"models": list(self.models), "model": name})

    async def failed(self, request: Request, error: Exception) -> Response:
        """Answer a request that cannot be answered."""
        assert isinstance(error, RequestError)
        self.metrics.failed(error.status)
        headers = {"Retry-After": "1"} if error.status == 503 else None
        return Json({"error": str(error)}, error.status, headers)

    def _served(self, request: Request) -> ServedModel:
        name = request.path_params["model"]
        if name not in self.models:
            known = ", ".join(self.models)
            raise RequestError(f"there is no model {name!r}; there are: {known}.", 404)
        return self.models[name]


async def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return Json({"error": error.detail}, error.status_code, error.headers)


async def _unexpected_error(request: Request, error: Exception) -> Response:
    return Json({"error": f"{type(error).__name__} inside the server"}, 500)


HANDLERS: dict[Any, Any] = {HTTPException: _http_error, Exception: _unexpected_error}
