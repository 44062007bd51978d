"""A state as one file."""

import io
import json
import zipfile
from pathlib import Path

import jax

from .._support import atomic
from .._support.processes import Together
from .._support.trees import PyTree
from .._support.typed import typed
from .leaves import as_array, is_shared, read, restored
from .manifest import FORMAT, PLAIN, STRANGE, VERSION, CheckpointError, Meta, opened


@typed
def save(path: str | Path, state: PyTree, *, meta: Meta | None = None) -> None:
    """Write a state to one file, atomically.

    **Arguments:**

    - `path`: the file; it is replaced if it is there.
    - `state`: the state of any algorithm, any pytree of arrays and plain values, or an estimator
      of `obax.estimators`.
    - `meta`: plain values to keep with it, read back by `obax.checkpoint.read_meta`.

    A state that lies over several processes is saved by all of them together: the first one writes,
    and none goes on before.

    >>> import tempfile
    >>> import jax.numpy as jnp
    >>> import obax
    >>> problem = obax.Problem(outer=lambda x, y, round: 0.5 * (x - round) ** 2)
    >>> state = obax.OGD(problem, outer_step_size=0.5).init(0.25, None, jnp.zeros(()))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     obax.save(folder + "/state.obax", state)
    ...     print(obax.load(folder + "/state.obax", like=state).outer_var)
    0.25
    """
    data = to_bytes(state, meta)
    if not is_shared(state):
        atomic.write_bytes(Path(path), data)
        return
    with Together(several=True):
        if jax.process_index() == 0:
            atomic.write_bytes(Path(path), data)


@typed
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
            array, dtype, shape = as_array(leaf, name)
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
    manifest, file = opened(data, name)
    if hasattr(like, "__obax_load__"):
        if manifest["kind"] != type(like).__name__:
            raise CheckpointError(
                f"{name} holds a {manifest['kind']}, but like is a {type(like).__name__}."
            )
        found = {e["path"]: read(file, e, name) for e in manifest["leaves"]}
        try:
            return like.__obax_load__(found, manifest["extra"])
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
    leaves = [
        restored(file, entries[path], leaf, f"state{path}", name)
        for path, (_, leaf) in zip(paths, expected, strict=True)
    ]
    return jax.tree.unflatten(jax.tree.structure(like), leaves)


def read_meta(path: str | Path) -> Meta:
    """The plain values that were saved beside a state."""
    manifest, _ = opened(_bytes(path), str(path))
    return manifest["meta"]


def _bytes(path: str | Path) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        why = "is not there" if isinstance(error, FileNotFoundError) else "cannot be read"
        raise CheckpointError(f"{path} {why} ({error.strerror}).") from None
