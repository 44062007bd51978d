"""Downloads: fetched into memory, checked, then written atomically.

Written by hand because what is kept may be converted from what is downloaded, and because messages
say how to get the file by hand; pooch has neither.
"""

import contextlib
import dataclasses
import http.client
import sys
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

from .._support import files

TIMEOUT_SECONDS = 30.0
CHUNK = 1 << 18
OnProgress = Callable[[int, int | None], None]
# Several times the largest known file, so that a faulty server cannot fill the memory.
LARGEST = 1 << 30


class DataError(OSError):
    """A data file is missing or damaged, or has unknown content; the message says what to do."""


@dataclasses.dataclass(frozen=True)
class Source:
    """The address of a publisher's file, and name and SHA-256 of the file that is kept.

    `convert` returns the bytes to keep for the bytes that were downloaded, where the two differ;
    `by_hand` then describes how to do the same by hand.
    """

    url: str
    file: str
    sha256: str
    convert: Callable[[bytes], bytes] | None = None
    by_hand: str = ""


def download(source: Source, folder: Path, on_progress: OnProgress | None = None) -> Path:
    """Download a file into a folder and check it. A crash at any point leaves no file behind."""
    folder.mkdir(parents=True, exist_ok=True)
    files.remove_leftovers(folder, older_than=24 * 3600)
    try:
        with _progress(source.file, on_progress) as progress:
            data = _transferred(source.url, progress)
        if source.convert is not None:
            data = _converted(source.convert, data, source.url)
        if (found := files.checksum(data)) != source.sha256:
            raise DataError(
                f"what {source.url} gave is not the known {source.file}: expected SHA-256 "
                f"{source.sha256}, but found {found}. Nothing was kept. Try again later; if it "
                f"stays so, the publisher has changed the file."
            )
    except DataError as error:
        raise DataError(
            f"{error} To do it by hand: get {source.url}"
            f"{source.by_hand and f', {source.by_hand},'} and put it into {folder}, or into a "
            f"folder that OBAX_DATA names, as {source.file}, SHA-256 {source.sha256}."
        ) from error.__cause__
    files.write_bytes(folder / source.file, data)
    return folder / source.file


def _transferred(url: str, progress: OnProgress) -> bytes:
    chunks, done = [], 0
    try:
        with urllib.request.urlopen(url, timeout=TIMEOUT_SECONDS) as response:
            length = response.headers.get("Content-Length")
            total = int(length) if length and length.isdigit() else None
            while chunk := response.read(CHUNK):
                chunks.append(chunk)
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
    return b"".join(chunks)


def _converted(convert: Callable[[bytes], bytes], data: bytes, url: str) -> bytes:
    try:
        return convert(data)
    except ValueError as error:
        raise DataError(f"what {url} gave cannot be read: {error} Nothing was kept.") from error


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
