"""Atomic writes, and a lock for the one process that may write to a folder.

A file is written aside, flushed to disk and renamed, so that a crash leaves the old file or the new
one. The lock is advisory (`flock` on a file `.lock` in the folder) and is released by the kernel
when its process ends; the content of the file only tells which process that is. Within a process a
folder may be locked several times, as by a driver whose caller leaves a loop and plays on.
"""

import contextlib
import hashlib
import json
import os
import platform
import tempfile
import time
import warnings
import weakref
from collections.abc import Iterator
from pathlib import Path

from .messages import UserError

try:
    import fcntl
except ImportError:  # pragma: no cover - Windows: no other process is kept out there.
    fcntl = None  # type: ignore[assignment]

LOCK_NAME = ".lock"


@contextlib.contextmanager
def named_errors(name: str | Path) -> Iterator[None]:
    """Have errors of the system, such as that of a full disk, tell the file that people know: most
    tell none, others the one that is written aside."""
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
        aside = Path(name)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            aside.chmod(0o644)
            aside.replace(path)
        except BaseException:
            aside.unlink(missing_ok=True)
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


def remove_leftovers(folder: Path, older_than: float = 0.0) -> None:
    """Remove what a killed process had written aside and not renamed. Where nothing locks the
    folder, leave what is younger than so many seconds: its writer may still be at work."""
    for leftover in folder.rglob(".*.part"):
        # Another process may sweep at the same time.
        with contextlib.suppress(FileNotFoundError):
            # A clock that is behind must not keep what is to go in any case.
            if not older_than or time.time() - leftover.stat().st_mtime > older_than:
                leftover.unlink()


def write_text(path: Path, text: str) -> None:
    """Replace `path` by `text`, in UTF-8."""
    write_bytes(path, text.encode())


def checksum(data: bytes) -> str:
    """SHA-256, in hexadecimal."""
    return hashlib.sha256(data).hexdigest()


_held: dict[tuple[int, Path], tuple[int, int]] = {}
"""The descriptor and the number of holders of each folder, by process: a fork holds nothing."""


class LockedError(UserError, ValueError):
    """Another process writes to the folder."""


def lock_folder(folder: Path, owner: object) -> None:
    """Let nobody else write to `folder` for as long as `owner` lives, or until `unlock_folder`."""
    folder = folder.resolve()
    key = os.getpid(), folder
    descriptor, holders = _held.get(key) or (_taken(folder), 0)
    _held[key] = descriptor, holders + 1
    _ends[id(owner)] = weakref.finalize(owner, _let_go, key, id(owner))


def unlock_folder(owner: object) -> None:
    """Give back what `owner` holds; twice is no harm."""
    if id(owner) in _ends:
        _ends[id(owner)]()


_ends: dict[int, weakref.finalize] = {}


def _let_go(key: tuple[int, Path], owner: int) -> None:
    _ends.pop(owner, None)
    if key[0] != os.getpid() or key not in _held:
        return
    descriptor, holders = _held.pop(key)
    if holders > 1:
        _held[key] = descriptor, holders - 1
    elif descriptor >= 0:
        os.close(descriptor)


def _taken(folder: Path) -> int:
    """The descriptor that holds the lock; -1 where there are no locks."""
    if fcntl is None:  # pragma: no cover
        return -1
    path = folder / LOCK_NAME
    # What a link points to is somebody's file, and would be cut.
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
    descriptor = os.open(path, flags, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise LockedError(
            f"{folder} is being written to by {_owner(path)}. Wait until it has ended, or end it, "
            f"or choose another folder."
        ) from None
    except OSError as error:
        os.close(descriptor)
        warnings.warn(
            f"{folder} cannot be locked ({error.strerror}): make sure that no other process "
            f"writes to it.",
            stacklevel=4,
        )
        return -1
    who = {"process": os.getpid(), "host": platform.node()}
    try:
        with named_errors(path):
            os.ftruncate(descriptor, 0)
            os.write(descriptor, json.dumps(who).encode())
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def _owner(path: Path) -> str:
    try:
        who = json.loads(path.read_text())
        return f"process {who['process']} on {who['host']}"
    except (OSError, ValueError, KeyError, TypeError):
        return "another process"
