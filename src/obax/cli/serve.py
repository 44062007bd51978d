"""The commands `obax serve` and `obax watch`."""

import asyncio
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .._support.messages import UserError

if TYPE_CHECKING:
    from ..serve.model import Saves, ServedModel

TOKEN = "OBAX_TOKEN"
MISSING = 'obax serve and obax watch need Starlette and uvicorn: pip install "obax[serve]".'
Port = Annotated[int, typer.Option(min=0, max=65535, help="0 takes a free one.")]


def serve(
    source: Annotated[
        Path | None,
        typer.Argument(metavar="[PATH]", help="A model's file, or a folder of such files."),
    ] = None,
    new: Annotated[
        str | None,
        typer.Option(help="Begin an empty model if there is none: classifier or regressor."),
    ] = None,
    name: Annotated[str | None, typer.Option(help="The name of the new model.")] = None,
    key: Annotated[
        str | None,
        typer.Option(metavar="COLUMN", help="With --new: a pool, one model per value."),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="With --new: an option of the model."),
    ] = None,
    host: Annotated[str, typer.Option(help="The address to listen on.")] = "127.0.0.1",
    port: Port = 8080,
    journal: Annotated[
        bool,
        typer.Option("--journal", help="Answer when a request is on the disk: none is ever lost."),
    ] = False,
    checkpoint_rows: Annotated[
        int, typer.Option(min=1, help="Rows between two checkpoints.")
    ] = 10_000,
    checkpoint_seconds: Annotated[
        float, typer.Option(min=0.1, help="Seconds between two checkpoints.")
    ] = 60.0,
    max_bytes: Annotated[int, typer.Option(min=1024, help="The largest request.")] = 8 << 20,
    max_requests: Annotated[int, typer.Option(min=1, help="Requests at a time.")] = 128,
) -> None:
    """Serve models over HTTP: predict, learn, follow."""
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
        _lock(path.parent)
        return [ServedModel(name, _new_model(new, key, settings), path, saves)]
    if source is None:
        raise UserError("obax serve needs a model's file or folder, or --new and --name.")
    if source.is_file():
        _lock(source.parent)
        return [ServedModel(source.stem, None, source, saves)]
    paths = sorted(source.glob(f"*{SUFFIX}")) if source.is_dir() else []
    if not paths:
        raise UserError(f"{source} is neither a model's file nor a folder with *{SUFFIX} files.")
    if all(path.stem.isdigit() for path in paths):
        # The checkpoints of a stream: the stream alone may change them.
        model, _ = read_model(paths[-1])
        return [ServedModel(source.resolve().name, model, None, saves)]
    _lock(source)
    # What a killed server was writing.
    files.remove_leftovers(source)
    return [ServedModel(path.stem, None, path, saves) for path in paths]


_locked: list[Any] = []


def _lock(folder: Path) -> None:
    """Let no other process write to a folder until this one ends."""
    from .._support import files

    class Holder:
        pass

    _locked.append(Holder())
    files.lock_folder(folder, _locked[-1])


def _new_model(task: str, key: str | None, settings: list[str]) -> Any:
    from ..estimators import Pool, StreamingClassifier, StreamingRegressor
    from .stream import model_options

    models = {"classifier": StreamingClassifier, "regressor": StreamingRegressor}
    if task not in models:
        raise UserError(f"--new must be classifier or regressor, but is {task!r}.")
    model: Any = models[task](**model_options(models[task], task, settings))
    return model if key is None else Pool(model, key)


def watch(
    folder: Annotated[
        Path,
        typer.Argument(
            metavar="DIR",
            help="The folder of `obax run`, `obax stream --checkpoint` or `obax.callbacks.Watch`.",
        ),
    ],
    port: Port = 8765,
    browser: Annotated[bool, typer.Option("--open", help="Open the page in a browser.")] = False,
) -> None:
    """Show a running job or stream on a page of this machine."""
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
