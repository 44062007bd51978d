"""Downloads that are whole or not there: write aside, check, flush to disk, rename."""

import contextlib
import dataclasses
import hashlib
import http.client
import os
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

from .._support import atomic

TIMEOUT_SECONDS = 30.0
CHUNK = 1 << 18
OnProgress = Callable[[int, int | None], None]
# Several times the largest file that we know: a server gone wrong does not fill the disk.
LARGEST = 1 << 30


class DataError(OSError):
    """A data file is missing, damaged, or not what it should be; the message says what to do."""


@dataclasses.dataclass(frozen=True)
class Source:
    """Where a publisher has a file, the name it is kept under and the SHA-256 of what is kept.

    `convert` makes what is kept from what was downloaded, where the two differ; `by_hand` then says
    how a person does it.
    """

    url: str
    file: str
    sha256: str
    convert: Callable[[bytes], bytes] | None = None
    by_hand: str = ""


def download(source: Source, folder: Path, on_progress: OnProgress | None = None) -> Path:
    """Fetch a file into the folder and check it. A crash at any point leaves no file behind."""
    target = folder / source.file
    folder.mkdir(parents=True, exist_ok=True)
    _sweep_up(folder)
    handle, name = tempfile.mkstemp(prefix=f".{source.file}.", suffix=".part", dir=folder)
    aside = Path(name)
    try:
        with os.fdopen(handle, "w+b") as file, _progress(source.file, on_progress) as progress:
            _transfer(source.url, file, progress)
            file.flush()
            os.fsync(file.fileno())
        if source.convert is not None:
            atomic.write_bytes(aside, _converted(source, aside.read_bytes()))
        if (found := checksum(aside)) != source.sha256:
            raise DataError(
                f"what {source.url} gave is not the known {source.file}: expected SHA-256 "
                f"{source.sha256}, but found {found}. Nothing was kept. Try again later; if it "
                f"stays so, the publisher has changed the file."
            )
        aside.chmod(0o644)
        aside.replace(target)
    except DataError as error:
        raise DataError(
            f"{error} To do it by hand: get {source.url}"
            f"{source.by_hand and f', {source.by_hand},'} and put it into {folder}, or into a "
            f"folder that OBAX_DATA names, as {source.file}, SHA-256 {source.sha256}."
        ) from error.__cause__
    finally:
        aside.unlink(missing_ok=True)
    return target


def checksum(path: Path) -> str:
    """The SHA-256 of a file, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _transfer(url: str, file: IO[bytes], progress: OnProgress) -> None:
    try:
        with urllib.request.urlopen(url, timeout=TIMEOUT_SECONDS) as response:
            length = response.headers.get("Content-Length")
            total = int(length) if length and length.isdigit() else None
            done = 0
            while chunk := response.read(CHUNK):
                file.write(chunk)
                done += len(chunk)
                progress(done, total)
                if done > LARGEST:
                    raise DataError(
                        f"{url} sends more than {LARGEST} bytes: given up, nothing was kept."
                    )
    except DataError:
        raise
    # URLError and time-outs are OSErrors too.
    except (OSError, http.client.HTTPException) as error:
        reason = getattr(error, "reason", None) or error
        raise DataError(f"{url} could not be downloaded: {reason}.") from error
    if total is not None and done != total:
        raise DataError(
            f"{url} broke off after {done} of {total} bytes. Nothing was kept; try again."
        )


def _converted(source: Source, data: bytes) -> bytes:
    assert source.convert is not None
    try:
        return source.convert(data)
    except ValueError as error:
        raise DataError(
            f"what {source.url} gave cannot be read: {error} Nothing was kept."
        ) from error


@contextlib.contextmanager
def _progress(name: str, on_progress: OnProgress | None) -> Iterator[OnProgress]:
    if on_progress is not None:
        yield on_progress
        return
    if not sys.stderr.isatty():
        yield lambda done, total: None
        return
    # rich is slow to import and only needed here.
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn(name), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task(name, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def _sweep_up(folder: Path) -> None:
    """Remove what downloads killed long ago left; a younger one may still be under way."""
    for leftover in folder.glob(".*.part"):
        with contextlib.suppress(OSError):
            if time.time() - leftover.stat().st_mtime > 24 * 3600:
                leftover.unlink()
