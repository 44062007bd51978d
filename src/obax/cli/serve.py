"""The commands `obax serve` and `obax watch`."""

import asyncio
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Argument, Option

from .._support.messages import UserError
from .screen import Assignments, Column, Count, documented

if TYPE_CHECKING:
    from ..serve.model import Saves, ServedModel

TOKEN = "OBAX_TOKEN"
MISSING = 'obax serve and obax watch need Starlette and uvicorn: pip install "obax[serve]".'
Port = Annotated[int, Option(min=0, max=65535)]


@documented
def serve(
    source: Annotated[Path | None, Argument(metavar="[PATH]")] = None,
    new: str | None = None,
    name: str | None = None,
    key: Column = None,
    settings: Assignments = None,
    host: str = "127.0.0.1",
    port: Port = 8080,
    journal: bool = False,
    checkpoint_rows: Count = 10_000,
    checkpoint_seconds: Annotated[float, Option(min=0.1)] = 60.0,
    max_bytes: Annotated[int, Option(min=1024)] = 8 << 20,
    max_requests: Count = 128,
) -> None:
    """Serve models over HTTP: predict, learn, follow.

    - `source`: A model's file, or a folder of such files.
    - `new`: Begin an empty model if there is none: classifier or regressor.
    - `name`: The name of the new model.
    - `key`: With --new: a pool, one model per value.
    - `settings`: With --new: an option of the model.
    - `host`: The address to listen on.
    - `port`: The port; 0 takes a free one.
    - `journal`: Answer when a request is on the disk: none is ever lost.
    - `checkpoint_rows`: Rows between two checkpoints.
    - `checkpoint_seconds`: Seconds between two checkpoints.
    - `max_bytes`: The largest request.
    - `max_requests`: Requests at a time.
    """
    try:
        from ..serve.app import application
        from ..serve.guard import Bounds, is_loopback
        from ..serve.model import Saves
        from ..serve.run import listen, run
    except ImportError as error:
        raise UserError(f"{MISSING} ({error})") from error

    token = os.environ.get(TOKEN) or None
    if not is_loopback(host) and token is None:
        raise UserError(
            f"{host} can be reached from other machines: set a token in the environment variable "
            f"{TOKEN}, which clients send as 'Authorization: Bearer TOKEN'."
        )
    saves = Saves(checkpoint_rows, checkpoint_seconds, journal)
    models = _models(source, new, name, key, settings or [], saves)
    bounds = Bounds(token, is_loopback(host), max_bytes, max_requests)
    stop = asyncio.Event()
    listener = listen(host, port)
    shown = listener.getsockname()[1]
    names = ", ".join(model.name for model in models)

    def ready() -> None:
        typer.echo(f"Serving {names} on http://{host}:{shown}/ (Ctrl-C saves and stops)")

    run(application(models, bounds, stop), stop, listener, ready)


def _models(
    source: Path | None,
    new: str | None,
    name: str | None,
    key: str | None,
    settings: list[str],
    saves: "Saves",
) -> "list[ServedModel]":
    """Return the models to serve. Their folder stays locked until the process ends."""
    from .._support import files
    from ..checkpoint.format import SUFFIX
    from ..serve.model import ServedModel, read_model

    if new is None and (name is not None or key is not None or settings):
        raise UserError("--name, --key and --set describe a new model; pass --new.")
    if new is not None:
        if name is None:
            raise UserError("--new needs the --name of the model.")
        path = (source or Path()) / f"{name}{SUFFIX}"
        path.parent.mkdir(parents=True, exist_ok=True)
        files.lock_folder(path.parent, _models)
        return [ServedModel(name, _new_model(new, key, settings), path, saves)]
    if source is None:
        raise UserError("obax serve needs a model's file or folder, or --new and --name.")
    if source.is_file():
        files.lock_folder(source.parent, _models)
        return [ServedModel(source.stem, None, source, saves)]
    paths = sorted(source.glob(f"*{SUFFIX}")) if source.is_dir() else []
    if not paths:
        raise UserError(f"{source} is neither a model's file nor a folder with *{SUFFIX} files.")
    if all(path.stem.isdigit() for path in paths):
        # The checkpoints of a stream: the stream alone may change them.
        model, _ = read_model(paths[-1])
        return [ServedModel(source.resolve().name, model, None, saves)]
    files.lock_folder(source, _models)
    # What a killed server was writing.
    files.remove_leftovers(source)
    return [ServedModel(path.stem, None, path, saves) for path in paths]


def _new_model(task: str, key: str | None, settings: list[str]) -> Any:
    from ..estimators import Pool, StreamingClassifier, StreamingRegressor
    from .stream import model_options

    models = {"classifier": StreamingClassifier, "regressor": StreamingRegressor}
    if task not in models:
        raise UserError(f"--new must be classifier or regressor, but is {task!r}.")
    model: Any = models[task](**model_options(models[task], task, settings))
    return model if key is None else Pool(model, key)


@documented
def watch(
    folder: Annotated[Path, Argument(metavar="DIR")],
    port: Port = 8765,
    browser: Annotated[bool, Option("--open")] = False,
) -> None:
    """Show a running job or stream on a page of this machine.

    - `folder`: The folder of `obax run`, `obax stream --checkpoint` or `obax.callbacks.Watch`.
    - `port`: The port; 0 takes a free one.
    - `browser`: Open the page in a browser.
    """
    import webbrowser

    from ..serve.page import WatchError, check_folder

    try:
        check_folder(folder)
    except WatchError as error:
        raise UserError(str(error)) from error
    try:
        from ..serve.app import watch_application
        from ..serve.guard import Bounds
        from ..serve.run import listen, run
    except ImportError as error:
        raise UserError(f"{MISSING} ({error})") from error
    listener = listen("127.0.0.1", port)
    address = f"http://127.0.0.1:{listener.getsockname()[1]}/"

    def ready() -> None:
        typer.echo(f"Showing {folder} on {address} (Ctrl-C stops)")
        if browser:
            webbrowser.open(address)

    run(watch_application(folder, Bounds()), asyncio.Event(), listener, ready)
