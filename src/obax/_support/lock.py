"""One writer to a folder: an advisory lock that ends with the process that holds it.

The lock is the kernel's (`flock`) on a file `.lock` in the folder, so whoever is killed leaves
nothing behind that another would have to judge; the file only tells who it is. Within a process a
folder may be taken several times, as by somebody who leaves a loop and plays on.
"""

import json
import os
import platform
import warnings
import weakref
from pathlib import Path

from .atomic import naming
from .errors import UserError

try:
    import fcntl
except ImportError:  # pragma: no cover - Windows: nobody is kept out there, as before.
    fcntl = None  # type: ignore[assignment]

NAME = ".lock"
_held: dict[tuple[int, Path], tuple[int, int]] = {}
"""The descriptor and the number of holders of each folder, by process: a fork holds nothing."""


class LockedError(UserError, ValueError):
    """Another process writes to the folder."""


def hold(folder: Path, owner: object) -> None:
    """Let nobody else write to `folder` for as long as `owner` lives, or until `release`."""
    folder = folder.resolve()
    key = os.getpid(), folder
    descriptor, holders = _held.get(key) or (_taken(folder), 0)
    _held[key] = descriptor, holders + 1
    _ends[id(owner)] = weakref.finalize(owner, _let_go, key, id(owner))


def release(owner: object) -> None:
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
    path = folder / NAME
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
        with naming(path):
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
