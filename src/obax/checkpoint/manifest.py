"""The manifest of a checkpoint: opened, checked, migrated, before anything in it is believed."""

import io
import json
import zipfile
import zlib
from collections.abc import Callable
from typing import Any

from .._support import atomic

# Plain values by name: a manifest, an entry of it, what is kept beside a state.
Meta = dict[str, Any]
FORMAT = "obax-checkpoint"
VERSION = 1
# From an older version of the manifest to the next one.
MIGRATIONS: dict[int, Callable[[Meta], Meta]] = {}
# What zipfile raises for files whose bytes were changed: members that are not there, not whole,
# said to be compressed or encrypted.
BROKEN = (zipfile.BadZipFile, KeyError, EOFError, NotImplementedError, RuntimeError, zlib.error)
PLAIN = (bool, int, float, str, type(None))
# What the bytes of a foreign manifest can lead to in code that trusts it.
STRANGE = (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError)


class CheckpointError(ValueError):
    """A file that is not a whole checkpoint, or not one of what was asked for."""


class DamagedError(CheckpointError):
    """A file whose bytes are not those that were written."""


def opened(data: bytes, name: str) -> tuple[Meta, zipfile.ZipFile]:
    """The manifest of a file, whole and of this version, and the file."""
    try:
        file = zipfile.ZipFile(io.BytesIO(data))
        members = file.infolist()
        # obax stores and never compresses, so that nothing grows when it is read.
        if sum(one.file_size for one in members) > len(data) or any(
            one.compress_type != zipfile.ZIP_STORED for one in members
        ):
            raise DamagedError(
                f"{name} is not a checkpoint of obax: it unpacks to more than it is."
            )
        text = file.read("manifest.json")
        checksum = file.read("manifest.sha256").decode()
        if atomic.checksum(text) != checksum:
            raise DamagedError(f"{name} is damaged: the checksum of its manifest does not match.")
        manifest = json.loads(text)
    except DamagedError:
        raise
    except (*BROKEN, OSError, OverflowError, ValueError, RecursionError) as error:
        raise DamagedError(f"{name} is not a whole checkpoint of obax ({error}).") from error
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise CheckpointError(f"{name} is not a checkpoint of obax.")
    version = manifest.get("version")
    if type(version) is not int:
        raise CheckpointError(f"{name} is not a checkpoint of obax: its version is {version!r}.")
    if version > VERSION:
        raise CheckpointError(
            f"{name} was written by a newer obax: its version is {version}, this one reads up to "
            f"{VERSION}. Install a newer obax."
        )
    while version < VERSION:
        if version not in MIGRATIONS:
            raise CheckpointError(
                f"{name} has version {version}, which this obax (version {VERSION}) no longer "
                f"reads. Load it with the obax that wrote it and save it again."
            )
        manifest = MIGRATIONS[version](manifest)
        version = manifest["version"]
    if fault := _fault(manifest):
        raise CheckpointError(f"{name} is not a checkpoint of obax: {fault}.")
    return manifest, file


def _fault(manifest: Meta) -> str | None:
    """What is wrong with the form of a manifest, before anything in it is believed."""
    if not isinstance(manifest.get("kind"), str) or not isinstance(manifest.get("meta"), dict):
        return "its manifest does not say what it holds"
    leaves = manifest.get("leaves")
    if not isinstance(leaves, list) or not all(isinstance(entry, dict) for entry in leaves):
        return "its manifest has no list of leaves"
    for number, entry in enumerate(leaves):
        if not isinstance(entry.get("path"), str):
            return f"leaf {number} has no path"
        if "file" not in entry and not isinstance(entry.get("value", ()), PLAIN):
            return f"leaf {number} has neither an array nor a plain value"
        shape = entry.get("shape", [])
        named = all(isinstance(entry.get(key), str) for key in ("file", "dtype", "sha256"))
        if "file" in entry and not (named and isinstance(shape, list) and len(shape) <= 64):
            return f"leaf {number} is not described"
        if not all(type(size) is int and 0 <= size < 2**63 for size in shape):
            return f"the shape of leaf {number} is not one"
    return None
