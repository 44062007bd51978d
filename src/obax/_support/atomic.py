"""Files that are whole or not there: write aside, flush to disk, rename."""

import contextlib
import hashlib
import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def naming(name: str | Path) -> Iterator[None]:
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
    with naming(path):
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
    # The rename itself must reach the disk too; not every system lets a folder be opened.
    with contextlib.suppress(OSError):
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def sweep_up(folder: Path, older_than: float = 0.0) -> None:
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
