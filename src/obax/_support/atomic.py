"""Files that are whole or not there: write aside, flush to disk, rename."""

import contextlib
import hashlib
import os
import tempfile
from pathlib import Path


def write_bytes(path: Path, data: bytes) -> None:
    """Replace `path` by `data`. A crash at any point leaves the old file or the new one."""
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
    except OSError as error:
        aside.unlink(missing_ok=True)
        if error.errno is None:
            raise
        # A full disk is told of the file that people know, not of the one aside.
        raise OSError(error.errno, error.strerror, str(path)) from error
    except BaseException:
        aside.unlink(missing_ok=True)
        raise
    # The rename itself must reach the disk too; not every system lets a folder be opened.
    with contextlib.suppress(OSError):
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def sweep_up(folder: Path) -> None:
    """Remove what a killed process had written aside and not renamed."""
    for leftover in folder.rglob(".*.part"):
        leftover.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Replace `path` by `text`, in UTF-8."""
    write_bytes(path, text.encode())


def checksum(data: bytes) -> str:
    """SHA-256, in hexadecimal."""
    return hashlib.sha256(data).hexdigest()
