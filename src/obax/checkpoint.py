"""Save and restore states: whole or not there, checked when read, no pickle.

A checkpoint is one file, a zip without compression:

    manifest.json     format, version, what it is, one entry per leaf: path, dtype, shape, SHA-256
    manifest.sha256   the checksum of manifest.json
    leaves/0, 1 ...   the bytes of each array, little-endian, C order

It is written aside, flushed to disk and renamed, so a crash at any point leaves the file that was
there or the new one. Structure comes from `like`: nothing in the file can name code to run.
"""

import io
import json
import math
import re
import zipfile
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
from jax.experimental import multihost_utils

from ._support import atomic, lock
from ._support.trees import PyTree

# Plain values by name: a manifest, an entry of it, what is kept beside a state.
Meta = dict[str, Any]
FORMAT = "obax-checkpoint"
VERSION = 1
# From an older version of the manifest to the next one.
MIGRATIONS: dict[int, Callable[[Meta], Meta]] = {}
SUFFIX = ".obax"
# What zipfile raises for files whose bytes were changed: members that are not there, not whole,
# said to be compressed or encrypted.
BROKEN = (zipfile.BadZipFile, KeyError, EOFError, NotImplementedError, RuntimeError, zlib.error)
PLAIN = (bool, int, float, str, type(None))
# What the bytes of a foreign manifest can lead to in code that trusts it.
STRANGE = (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError)


class CheckpointError(ValueError):
    """A file that is not a whole checkpoint, or not one of what was asked for."""


def save(path: str | Path, state: PyTree, *, meta: Meta | None = None) -> None:
    """Write a state to one file, atomically.

    **Arguments:**

    - `path`: the file; it is replaced if it is there.
    - `state`: the state of any algorithm, any pytree of arrays and plain values, or an estimator
      of `obax.estimators`.
    - `meta`: plain values to keep with it, read back by `obax.checkpoint.read_meta`.

    A state that lies over several processes is saved by all of them together: the first one writes,
    and none goes on before.

    >>> import tempfile, obax
    >>> problem = obax.Problem(outer=lambda x, y, round: 0.5 * (x - round) ** 2)
    >>> state = obax.OGD(problem, outer_step_size=0.5).init(0.25, None, jnp.zeros(()))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     obax.save(folder + "/state.obax", state)
    ...     print(obax.load(folder + "/state.obax", like=state).outer_var)
    0.25
    """
    data = to_bytes(state, meta)
    if not _is_shared(state):
        atomic.write_bytes(Path(path), data)
        return
    if jax.process_index() == 0:
        atomic.write_bytes(Path(path), data)
    multihost_utils.sync_global_devices(f"obax.save {path}")


def load(path: str | Path, *, like: PyTree) -> PyTree:
    """Read what `save` wrote.

    `like` has the structure, shapes and dtypes of what was saved: a state from `algorithm.init`, or
    an estimator of the same class (its own rows, if any, play no part: the saved parameters and
    state are restored into a new one). What does not fit is a `CheckpointError` that names the
    leaf.
    """
    return from_bytes(_bytes(path), like, str(path))


def to_bytes(state: PyTree, meta: Meta | None = None) -> bytes:
    """The checkpoint as bytes."""
    kind, extra = "state", None
    if hasattr(state, "__obax_save__"):
        kind = type(state).__name__
        state, extra = state.__obax_save__()
    entries: list[Meta] = []
    blobs: list[bytes] = []
    for path, leaf in jax.tree_util.tree_leaves_with_path(state):
        name = jax.tree_util.keystr(path)
        entry: Meta = {"path": name}
        if isinstance(leaf, PLAIN):
            if isinstance(leaf, int) and not isinstance(leaf, bool) and abs(leaf) > 2**63:
                raise CheckpointError(f"state{name} is an integer beyond 64 bits.")
            entry["value"] = leaf
        else:
            array, dtype, shape = _as_array(leaf, name)
            blob = array.tobytes()
            checksum, file_name = atomic.checksum(blob), f"leaves/{len(blobs)}"
            entry |= {"dtype": dtype, "shape": shape, "sha256": checksum, "file": file_name}
            blobs.append(blob)
        entries.append(entry)
    manifest: Meta = {"format": FORMAT, "version": VERSION, "kind": kind}
    manifest |= {"leaves": entries, "extra": extra, "meta": meta or {}}
    try:
        text = json.dumps(manifest, indent=1, allow_nan=True).encode()
    except TypeError as error:
        raise CheckpointError(
            f"meta must hold plain values only (numbers, words, lists, dicts): {error}."
        ) from error
    members = {"manifest.json": text, "manifest.sha256": atomic.checksum(text).encode()}
    members |= {f"leaves/{number}": blob for number, blob in enumerate(blobs)}
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as file:
        for member, data in members.items():
            # A fixed date: the same state is the same bytes.
            file.writestr(zipfile.ZipInfo(member, (1980, 1, 1, 0, 0, 0)), data)
    return buffer.getvalue()


def from_bytes(data: bytes, like: PyTree, name: str = "the checkpoint") -> PyTree:
    """What `to_bytes` wrote, with the structure of `like`."""
    manifest, file = _open(data, name)
    if hasattr(like, "__obax_load__"):
        if manifest["kind"] != type(like).__name__:
            raise CheckpointError(
                f"{name} holds a {manifest['kind']}, but like is a {type(like).__name__}."
            )
        leaves = {e["path"]: _read(file, e, name) for e in manifest["leaves"]}
        try:
            return like.__obax_load__(leaves, manifest["extra"])
        except ValueError:
            raise
        except STRANGE as error:
            raise CheckpointError(
                f"{name} does not hold what a {manifest['kind']} writes "
                f"({type(error).__name__}: {error})."
            ) from error
    if manifest["kind"] != "state":
        raise CheckpointError(
            f"{name} holds a {manifest['kind']}; pass like={manifest['kind']}() to load it."
        )
    expected = jax.tree_util.tree_leaves_with_path(like)
    entries = {entry["path"]: entry for entry in manifest["leaves"]}
    paths = [jax.tree_util.keystr(path) for path, _ in expected]
    missing = [path for path in paths if path not in entries]
    surplus = [path for path in entries if path not in set(paths)]
    if missing or surplus:
        parts = [
            f"{what} {', '.join(f'state{path}' for path in found[:5])}"
            for what, found in (("it lacks", missing), ("like lacks", surplus))
            if found
        ]
        raise CheckpointError(
            f"{name} has another structure than like: {'; '.join(parts)}. Make like with the same "
            f"algorithm, window, estimator and optimisers as the one that was saved."
        )
    restored = [
        _restored(file, entries[path], leaf, f"state{path}", name)
        for path, (_, leaf) in zip(paths, expected, strict=True)
    ]
    return jax.tree.unflatten(jax.tree.structure(like), restored)


def read_meta(path: str | Path) -> Meta:
    """The plain values that were saved beside a state."""
    manifest, _ = _open(_bytes(path), str(path))
    return manifest["meta"]


def _bytes(path: str | Path) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        why = "is not there" if isinstance(error, FileNotFoundError) else "cannot be read"
        raise CheckpointError(f"{path} {why} ({error.strerror}).") from None


class Folder:
    """The last few checkpoints of something that goes on: `keep` of them, named by their round.

    No other process can have the same folder until this object is closed or gone.
    """

    def __init__(self, path: str | Path, keep: int = 3):
        self.path = Path(path)
        self.keep = keep
        # Of several processes that play together, the first one writes.
        self.writes = not jax.distributed.is_initialized() or jax.process_index() == 0
        self.path.mkdir(parents=True, exist_ok=True)
        if self.writes:
            lock.hold(self.path, self)
            # Whatever lies aside now is nobody's.
            atomic.sweep_up(self.path)

    def close(self) -> None:
        """Let others write to the folder."""
        lock.release(self)

    def save(self, round: int, state: PyTree, meta: Meta | None = None) -> None:
        """A checkpoint after so many rounds; the oldest go."""
        if not self.writes:
            return
        save(self.path / f"{round:012d}{SUFFIX}", state, meta={"round": round} | (meta or {}))
        for old in self.files()[: -self.keep]:
            old.unlink(missing_ok=True)

    def files(self) -> list[Path]:
        """Oldest first."""
        named = re.compile(rf"\d{{12}}{re.escape(SUFFIX)}")
        return sorted(file for file in self.path.iterdir() if named.fullmatch(file.name))

    def latest(self, like: PyTree) -> tuple[PyTree, Meta] | None:
        """The newest checkpoint and its meta, or `None` if there is none.

        One that is damaged is passed over for the one before it; if all are, that is an error.
        """
        errors = []
        for file in reversed(self.files()):
            try:
                data = file.read_bytes()
                state = from_bytes(data, like, str(file))
            except DamagedError as error:
                errors.append(str(error))
                continue
            return state, _open(data, str(file))[0]["meta"]
        if errors:
            raise CheckpointError(
                f"no checkpoint in {self.path} can be read: {errors[0]} Move the folder away to "
                f"start anew."
            )
        return None


def check_seekable(source: Iterable[PyTree]) -> None:
    """Raise a `ValueError` for a source that could not be taken up where a crash left it, such as a
    generator: on the first day, when something can still be done about it."""
    indexed = hasattr(source, "__getitem__") and hasattr(source, "__len__")
    if not hasattr(source, "seek") and (not indexed or isinstance(source, Mapping)):
        raise ValueError(
            f"source must be a sequence or have a method seek(round), counted from 0, for "
            f"checkpoint_dir to be of use after a crash, but is a {type(source).__name__}; make a "
            f"list of it or a class with seek, or leave checkpoint_dir out and use obax.save."
        )


def seek(source: Iterable[PyTree], round: int) -> Iterable[PyTree]:
    """A source from `round` on, counted from 0: a sequence, or what has a method `seek(round)`."""
    check_seekable(source)
    if hasattr(source, "seek"):
        source.seek(round)
        return source
    indexed = cast(Sequence[PyTree], source)
    return (indexed[i] for i in range(round, len(indexed)))


class DamagedError(CheckpointError):
    """A file whose bytes are not those that were written."""


def _open(data: bytes, name: str) -> tuple[Meta, zipfile.ZipFile]:
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


def _read(file: zipfile.ZipFile, entry: Meta, name: str) -> PyTree:
    """A leaf as NumPy, or the plain value."""
    if "file" not in entry:
        return entry["value"]
    try:
        blob = file.read(entry["file"])
    except BROKEN as error:
        raise DamagedError(f"{name} is damaged: {error}.") from error
    if atomic.checksum(blob) != entry["sha256"]:
        raise DamagedError(f"{name} is damaged: the checksum of {entry['path']} does not match.")
    dtype = _dtype(entry["dtype"].removeprefix("key:").split(":")[-1])
    if len(blob) != dtype.itemsize * math.prod(entry["shape"]):
        raise DamagedError(f"{name} is damaged: {entry['path']} has the wrong size.")
    array = np.frombuffer(blob, dtype)
    # frombuffer reads little-endian as written; a copy is writable and of the machine's order.
    return array.astype(dtype.newbyteorder("=")).reshape(entry["shape"])


def _restored(file: zipfile.ZipFile, entry: Meta, like: PyTree, leaf: str, name: str) -> PyTree:
    if isinstance(like, PLAIN) != ("file" not in entry):
        raise CheckpointError(f"{name}: {leaf} is an array in one and a plain value in the other.")
    if "file" not in entry:
        return entry["value"]
    _, dtype, shape = _as_array(like, leaf)
    if (entry["dtype"], entry["shape"]) != (dtype, shape):
        message = f"{leaf} is {entry['dtype']}{entry['shape']}, but like has {dtype}{shape}."
        if {entry["dtype"], dtype} == {"float32", "float64"}:
            message += " One of the two was made with jax_enable_x64 and the other without."
        raise CheckpointError(f"{name}: {message}")
    array = _read(file, entry, name)
    if entry["dtype"].startswith("key:"):
        return jax.random.wrap_key_data(jnp.asarray(array), impl=entry["dtype"].split(":")[1])
    return array if isinstance(like, np.ndarray) else jnp.asarray(array)


def _as_array(leaf: PyTree, name: str) -> tuple[np.ndarray, str, list[int]]:
    """The bytes of a leaf, with its dtype and shape as the manifest has them."""
    prefix = ""
    if hasattr(leaf, "dtype") and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        prefix = f"key:{jax.random.key_impl(leaf)}:"
        leaf = jax.random.key_data(leaf)
    if not hasattr(leaf, "dtype"):
        raise CheckpointError(
            f"state{name} must be an array or a plain value, but is {type(leaf).__name__}."
        )
    if _is_shared(leaf) and not leaf.is_fully_replicated:
        leaf = multihost_utils.process_allgather(leaf, tiled=True)
    array = np.ascontiguousarray(np.asarray(leaf))
    if array.dtype.kind not in "biufc" and not hasattr(ml_dtypes, array.dtype.name):
        raise CheckpointError(
            f"state{name} must be an array of numbers, but its dtype is {array.dtype}."
        )
    dtype = f"{prefix}{array.dtype.name}"
    return array.astype(array.dtype.newbyteorder("<")), dtype, list(np.shape(leaf))


def _is_shared(state: PyTree) -> bool:
    """Whether an array of the state lies over several processes."""
    arrays = [leaf for leaf in jax.tree.leaves(state) if isinstance(leaf, jax.Array)]
    return not all(leaf.is_fully_addressable for leaf in arrays)


def _dtype(name: str) -> np.dtype:
    try:
        found: np.dtype | None = np.dtype(name)
    except (TypeError, ValueError, SyntaxError):
        found = None
    if found is not None and found.kind in "biufc":
        return found.newbyteorder("<")
    if not isinstance(getattr(ml_dtypes, name, None), type):
        raise DamagedError(f"a checkpoint names the dtype {name!r}, which obax never writes.")
    return np.dtype(getattr(ml_dtypes, name))
