"""The file format of checkpoints, and checkpoints of streaming models. It needs NumPy, not JAX.

A checkpoint is one file, a zip without compression:

    manifest.json     format, version, kind, one entry per leaf: path, dtype, shape, SHA-256
    manifest.sha256   the checksum of manifest.json
    leaves/0, 1 ...   the bytes of each array, little-endian, C order

It is written aside, flushed to disk and renamed, so that a crash leaves the old file or the new
one. Nothing in a file can name code to run, and nothing is believed before it is checked.
"""

import importlib
import io
import json
import math
import os
import re
import zipfile
import zlib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np

from .._support import files

# Plain values by name: a manifest, an entry of it, what is kept beside a state.
Meta = dict[str, Any]
FORMAT = "obax-checkpoint"
VERSION = 2
SUFFIX = ".obax"


def _with_past(manifest: Meta) -> Meta:
    """Return a manifest of version 1 with the names that past rounds have since version 2."""
    manifest = manifest | {"version": 2}
    if manifest.get("kind") != "state" or not _has_form(manifest):
        return manifest
    leaves = []
    for entry in manifest["leaves"]:
        path = re.sub(r"^\.(window|memory)\.", ".past.", entry["path"])
        path = ".past.present" if path == ".past.there" else path
        # How many rounds are present is no longer kept.
        if path != ".past.held":
            leaves.append(entry | {"path": path})
    return manifest | {"leaves": leaves}


# From an older version of the manifest to the next one.
MIGRATIONS: dict[int, Callable[[Meta], Meta]] = {1: _with_past}
# What zipfile raises for files whose bytes were changed: members that are missing, cut off, or
# marked as compressed or encrypted.
BROKEN = (zipfile.BadZipFile, KeyError, EOFError, NotImplementedError, RuntimeError, zlib.error)
PLAIN = (bool, int, float, str, type(None))
# What a model may raise for arrays and values that no model wrote.
STRANGE = (LookupError, TypeError, AttributeError, ArithmeticError, RecursionError)


# The models that a file may name.
MODELS = ("StreamingClassifier", "StreamingRegressor")


class CheckpointError(ValueError):
    """A file that is not a whole checkpoint, or not one of what was asked for."""


class DamagedError(CheckpointError):
    """A file whose bytes are not those that were written."""


def pack(kind: str, leaves: Iterable[tuple[str, Any, str]], extra: Any, meta: Meta | None) -> bytes:
    """Return the bytes of a checkpoint.

    Each leaf is its path, an array or plain value, and what to write before its dtype. The same
    leaves give the same bytes.
    """
    entries: list[Meta] = []
    members: dict[str, bytes] = {}
    for path, leaf, prefix in leaves:
        entry: Meta = {"path": path}
        if isinstance(leaf, PLAIN):
            if isinstance(leaf, int) and abs(leaf) > 2**63:
                raise CheckpointError(f"state{path} is an integer beyond 64 bits.")
            entry["value"] = leaf
        else:
            array, file = little_endian(leaf, path), f"leaves/{len(members)}"
            members[file] = array.tobytes()
            entry |= {"dtype": prefix + array.dtype.name, "shape": [*array.shape]}
            entry |= {"sha256": files.checksum(members[file]), "file": file}
        entries.append(entry)
    manifest: Meta = {"format": FORMAT, "version": VERSION, "kind": kind}
    manifest |= {"leaves": entries, "extra": extra, "meta": meta or {}}
    try:
        text = json.dumps(manifest, indent=1, allow_nan=True).encode()
    except TypeError as error:
        raise CheckpointError(
            f"meta must hold plain values only (numbers, words, lists, dicts): {error}."
        ) from error
    head = {"manifest.json": text, "manifest.sha256": files.checksum(text).encode()}
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        for member, data in (head | members).items():
            # A fixed date: the same state is the same bytes.
            archive.writestr(zipfile.ZipInfo(member, (1980, 1, 1, 0, 0, 0)), data)
    return buffer.getvalue()


def little_endian(leaf: Any, path: str) -> np.ndarray:
    """Return an array of numbers as it is written."""
    if not hasattr(leaf, "dtype"):
        raise CheckpointError(
            f"state{path} must be an array or a plain value, but is {type(leaf).__name__}."
        )
    array = np.ascontiguousarray(leaf).reshape(np.shape(leaf))
    if array.dtype.kind not in "biufc" and not _is_of_ml_dtypes(array.dtype.name):
        raise CheckpointError(
            f"state{path} must be an array of numbers, but its dtype is {array.dtype}."
        )
    return array.astype(array.dtype.newbyteorder("<"))


class Checkpoint:
    """A checkpoint that was opened: its manifest was checked, and arrays are read when asked for.

    `name` is what messages call it.
    """

    def __init__(self, data: bytes, name: str):
        self.name = name
        manifest = self._open(data)
        self.kind, self.extra, self.meta = (manifest[key] for key in ("kind", "extra", "meta"))
        self.entries: dict[str, Meta] = {entry["path"]: entry for entry in manifest["leaves"]}

    def read(self, path: str) -> Any:
        """Return a leaf as a NumPy array, or the plain value."""
        entry = self.entries[path]
        if "file" not in entry:
            return entry["value"]
        try:
            data = self._archive.read(entry["file"])
        except BROKEN as error:
            raise DamagedError(f"{self.name} is damaged: {error}.") from error
        dtype = _dtype(entry["dtype"].split(":")[-1])
        wrong = "checksum" if files.checksum(data) != entry["sha256"] else "size"
        if wrong == "checksum" or len(data) != dtype.itemsize * math.prod(entry["shape"]):
            raise DamagedError(f"{self.name} is damaged: the {wrong} of {path} does not match.")
        # astype makes a copy that is writable and in the byte order of the machine.
        return np.frombuffer(data, dtype).astype(dtype.newbyteorder("=")).reshape(entry["shape"])

    def _open(self, data: bytes) -> Meta:
        name = self.name
        try:
            self._archive = zipfile.ZipFile(io.BytesIO(data))
            members = self._archive.infolist()
            # obax stores and never compresses, so that nothing grows when it is read.
            stored = all(member.compress_type == zipfile.ZIP_STORED for member in members)
            if not stored or sum(member.file_size for member in members) > len(data):
                raise DamagedError("it unpacks to more than it is")
            text = self._archive.read("manifest.json")
            if files.checksum(text) != self._archive.read("manifest.sha256").decode():
                raise DamagedError("the checksum of its manifest does not match")
            manifest = json.loads(text)
        except (*BROKEN, OSError, OverflowError, ValueError, RecursionError) as error:
            raise DamagedError(f"{name} is damaged, or no checkpoint of obax: {error}.") from error
        is_ours = isinstance(manifest, dict) and manifest.get("format") == FORMAT
        if not is_ours or type(manifest.get("version")) is not int:
            raise CheckpointError(f"{name} is not a checkpoint of obax.")
        manifest = self._migrated(manifest)
        if not _has_form(manifest):
            raise CheckpointError(f"{name} is not a checkpoint of obax: its manifest is another.")
        return {"extra": None} | manifest

    def _migrated(self, manifest: Meta) -> Meta:
        while (version := manifest["version"]) != VERSION:
            if version > VERSION:
                raise CheckpointError(
                    f"{self.name} was written by a newer obax: its version is {version}, this one "
                    f"reads up to {VERSION}. Install a newer obax."
                )
            if version not in MIGRATIONS:
                raise CheckpointError(
                    f"{self.name} has version {version}, which this obax (version {VERSION}) no "
                    f"longer reads. Load it with the obax that wrote it and save it again."
                )
            manifest = MIGRATIONS[version](manifest)
        return manifest


def _has_form(manifest: Meta) -> bool:
    """Return whether a manifest has the form of those that `pack` writes."""
    kind, meta, leaves = (manifest.get(key) for key in ("kind", "meta", "leaves"))
    if not (isinstance(kind, str) and isinstance(meta, dict) and isinstance(leaves, list)):
        return False
    return all(map(_is_entry, leaves))


def _is_entry(entry: Any) -> bool:
    """Return whether this describes a leaf: a plain value, or an array in a file."""
    if not isinstance(entry, dict) or not isinstance(entry.get("path"), str):
        return False
    if "file" not in entry:
        return isinstance(entry.get("value", ()), PLAIN)
    shape, words = entry.get("shape"), [entry.get(key) for key in ("file", "dtype", "sha256")]
    if not isinstance(shape, list) or not all(isinstance(word, str) for word in words):
        return False
    return len(shape) <= 64 and all(type(size) is int and 0 <= size < 2**63 for size in shape)


def _is_of_ml_dtypes(name: str) -> bool:
    # Such as bfloat16; importing it makes NumPy know the names.
    import ml_dtypes

    return isinstance(getattr(ml_dtypes, name, None), type)


def _dtype(name: str) -> np.dtype:
    try:
        dtype = np.dtype(name)
    except (TypeError, ValueError, SyntaxError):
        dtype = np.dtype("V")
    if dtype.kind not in "biufc" and not _is_of_ml_dtypes(name):
        raise DamagedError(f"a checkpoint names the dtype {name!r}, which obax never writes.")
    return dtype.newbyteorder("<") if dtype.kind in "biufc" else np.dtype(name)


def read_bytes(path: str | Path) -> bytes:
    """Return the bytes of a file that must be there."""
    try:
        return Path(path).read_bytes()
    except OSError as error:
        why = "is not there" if isinstance(error, FileNotFoundError) else "cannot be read"
        raise CheckpointError(f"{path} {why} ({error.strerror}).") from None


def model_to_bytes(model: Any, meta: Meta | None = None) -> bytes:
    """Return the checkpoint of a streaming model or pool, which says itself what it holds."""
    arrays, extra = model.__obax_save__()
    leaves = ((f"[{name!r}]", arrays[name], "") for name in sorted(arrays))
    return pack(type(model).__name__, leaves, extra, meta)


def model_from_bytes(checkpoint: Checkpoint, like: Any = None) -> Any:
    """Return a new model from what `model_to_bytes` wrote; `like` is one of its class, by default a
    new one of the class that the file names."""
    kind, name = checkpoint.kind, checkpoint.name
    like = _new_model(checkpoint) if like is None else like
    if kind != type(like).__name__:
        raise CheckpointError(f"{name} holds a {kind}, but like is a {type(like).__name__}.")
    arrays = {path: checkpoint.read(path) for path in checkpoint.entries}
    try:
        return like.__obax_load__(arrays, checkpoint.extra)
    except STRANGE as error:
        raise CheckpointError(
            f"{name} does not hold what a {kind} writes ({type(error).__name__}: {error})."
        ) from error


def _new_model(checkpoint: Checkpoint) -> Any:
    """Return a new model of the class that a file names, one of three."""
    # The packages of models import this one; they are loaded when a file has one.
    models = importlib.import_module("obax.estimators")
    kind = checkpoint.kind
    if kind == "Pool":
        extra = checkpoint.extra
        of = extra.get("model") if isinstance(extra, dict) else None
        if of in MODELS:
            return models.Pool(getattr(models, of)())
    elif kind in MODELS:
        return getattr(models, kind)()
    raise CheckpointError(
        f"{checkpoint.name} holds a {kind}, which does not say its own structure; pass like=."
    )


class ModelFolder:
    """The last `keep` checkpoints of a streaming model, in a folder, named by the number of rounds.

    No other process can write to the folder until this object is closed or gone.
    """

    def __init__(self, path: str | Path, keep: int = 3):
        self.path, self.keep = Path(path), keep
        if os.path.lexists(self.path) and not self.path.is_dir():
            raise ValueError(
                f"checkpoints (checkpoint_dir, --checkpoint) must go to a folder, but "
                f"{self.path} is none; choose another name."
            )
        self.path.mkdir(parents=True, exist_ok=True)
        if self.writes:
            files.lock_folder(self.path, self)
            # With the lock taken, no other process is still writing these.
            files.remove_leftovers(self.path)

    @property
    def writes(self) -> bool:
        """Whether this process writes the checkpoints."""
        return True

    def to_bytes(self, model: Any, meta: Meta) -> bytes:
        """Return the bytes of a checkpoint."""
        return model_to_bytes(model, meta)

    def from_checkpoint(self, checkpoint: Checkpoint, like: Any) -> Any:
        """Return what a checkpoint holds."""
        return model_from_bytes(checkpoint, like)

    def agree(self, newest: str) -> None:
        """Check that all processes of a computation see the same newest checkpoint."""

    def close(self) -> None:
        """Let other processes write to the folder."""
        files.unlock_folder(self)

    def save(self, round: int, state: Any, meta: Meta | None = None) -> None:
        """Write a checkpoint after so many rounds, and remove the oldest ones."""
        data = self.to_bytes(state, {"round": round} | (meta or {}))
        files.write_bytes(self.path / f"{round:012d}{SUFFIX}", data)
        for old in self.files()[: -self.keep]:
            old.unlink(missing_ok=True)

    def files(self) -> list[Path]:
        """Return the checkpoints, the oldest first."""
        named = re.compile(rf"\d{{12}}{re.escape(SUFFIX)}")
        return sorted(file for file in self.path.iterdir() if named.fullmatch(file.name))

    def latest(
        self, like: Any, check: Callable[[Meta], None] = lambda meta: None
    ) -> tuple[Any, Meta] | None:
        """Return the newest checkpoint and its meta, or `None` if there is none.

        One that is damaged is passed over for the one before it; if all are, that is an error.
        `check` gets the meta before the state is read and may raise an error of its own.
        """
        errors, checkpoints = [], self.files()
        self.agree(checkpoints[-1].name if checkpoints else "nothing")
        for file in reversed(checkpoints):
            try:
                checkpoint = Checkpoint(file.read_bytes(), str(file))
                meta = checkpoint.meta
                if type(meta.get("round")) is not int or meta["round"] < 0:
                    raise DamagedError(f"{file} does not say after how many rounds it is.")
                check(meta)
                return self.from_checkpoint(checkpoint, like), meta
            except DamagedError as error:
                errors.append(str(error))
        if errors:
            raise CheckpointError(
                f"no checkpoint in {self.path} can be read: {errors[0]} Move the folder away to "
                f"start anew."
            )
        return None
