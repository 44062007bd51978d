"""Atomic writes, and a lock for the one process that may write to a folder.

A file is written beside its place, flushed to disk and renamed, so that a crash leaves the old
file or the new one. The lock is advisory (filelock's, on a file `.lock` in the folder) and is
released by the system when its process ends; the content of the file only names that process.
Within a process a folder may be locked several times, as by a driver whose caller leaves a loop and
plays on.
"""

import contextlib
import hashlib
import json
import os
import platform
import tempfile
import time
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from .messages import UserError

if TYPE_CHECKING:
    from filelock import FileLock

LOCK_NAME = ".lock"


class LockedError(UserError, ValueError):
    """Another process writes to the folder."""


@contextlib.contextmanager
def named_errors(name: str | Path) -> Iterator[None]:
    """Give errors of the system, such as that of a full disk, the name of the file.

    Most have no name, others that of a temporary file.
    """
    try:
        yield
    except OSError as error:
        if error.errno is None:
            raise
        raise OSError(error.errno, error.strerror, str(name)) from error


def write_bytes(path: Path, data: bytes) -> None:
    """Replace `path` by `data`. A crash at any point leaves the old file or the new one."""
    with named_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".part", dir=path.parent)
        temporary = Path(name)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            temporary.chmod(0o644)
            temporary.replace(path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
    # The rename itself must reach the disk too.
    sync_folder(path.parent)


def sync_folder(path: Path) -> None:
    """Have the names in a folder reach the disk; not every system lets a folder be opened."""
    with contextlib.suppress(OSError):
        folder = os.open(path, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def write_text(path: Path, text: str) -> None:
    """Replace `path` by `text`, in UTF-8."""
    write_bytes(path, text.encode())


def remove_leftovers(folder: Path, older_than: float = 0.0) -> None:
    """Remove temporary files that a killed process had not renamed.

    Where nothing locks the folder, leave what is younger than so many seconds: its writer may still
    be at work.
    """
    for leftover in folder.rglob(".*.part"):
        # Another process may remove it at the same time.
        with contextlib.suppress(FileNotFoundError):
            # A clock that is behind must not keep what is to go in any case.
            if not older_than or time.time() - leftover.stat().st_mtime > older_than:
                leftover.unlink()


def checksum(data: bytes) -> str:
    """Return the SHA-256, in hexadecimal."""
    return hashlib.sha256(data).hexdigest()


# The lock of each folder, by process: a fork holds nothing. A lock counts how often it is held.
_locks: dict[tuple[int, Path], "FileLock"] = {}
_releases: "weakref.WeakKeyDictionary[object, weakref.finalize]" = weakref.WeakKeyDictionary()


def lock_folder(folder: Path, owner: object) -> None:
    """Let nobody else write to `folder` for as long as `owner` lives, or until `unlock_folder`."""
    # It loads asyncio, which takes longer than the rest of this package.
    from filelock import FileLock, Timeout

    path, process = folder.resolve() / LOCK_NAME, os.getpid()
    lock = _locks.setdefault((process, path), FileLock(path, 0, 0o644, thread_local=False))
    try:
        lock.acquire()
    except Timeout:
        raise LockedError(
            f"{folder} is being written to by {_owner(path)}. Wait until it has ended, or end it, "
            f"or choose another folder."
        ) from None
    if lock.lock_counter == 1:
        who = {"process": process, "host": platform.node()}
        try:
            with named_errors(path):
                path.write_text(json.dumps(who))
        except OSError:
            lock.release()
            raise
    _releases[owner] = weakref.finalize(owner, _release, lock, process)


def unlock_folder(owner: object) -> None:
    """Release what `owner` has locked; a second call does nothing."""
    if owner in _releases:
        _releases[owner]()


def _release(lock: "FileLock", process: int) -> None:
    if process == os.getpid():
        lock.release()


def _owner(lock_file: Path) -> str:
    try:
        who = json.loads(lock_file.read_text())
        return f"process {who['process']} on {who['host']}"
    except (OSError, ValueError, KeyError, TypeError):
        return "another process"
