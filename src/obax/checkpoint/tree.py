"""Checkpoints of states: any pytree of JAX arrays, random keys and plain values."""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import multihost_utils

from .._support import files
from .._support.checks import checked
from .._support.processes import Together, same
from .._support.trees import PyTree
from .format import (
    PLAIN,
    Checkpoint,
    CheckpointError,
    Meta,
    ModelFolder,
    little_endian,
    model_from_bytes,
    model_to_bytes,
    pack,
    read_bytes,
)


@checked
def save(path: str | Path, state: PyTree, *, meta: Meta | None = None) -> None:
    """Write a state to one file, atomically.

    **Arguments:**

    - `path`: the file; it is replaced if it is there.
    - `state`: the state of any algorithm, any pytree of arrays and plain values, or a model or pool
      of `obax.estimators`.
    - `meta`: plain values to keep with it, read back by `obax.checkpoint.read_meta`.

    A state that is sharded over several processes is saved by all of them together: the first one
    writes, and the others wait for it.

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
    data, several = to_bytes(state, meta), is_shared(state)
    with Together(several):
        if not several or jax.process_index() == 0:
            files.write_bytes(Path(path), data)


@checked
def load(path: str | Path, *, like: PyTree = None) -> PyTree:
    """Read what `save` wrote.

    `like` has the structure, shapes and dtypes of what was saved: a state from `algorithm.init`, or
    a model of the same class (rows that it has learned are not used: a new model gets the saved
    parameters and state). It may be left out for a model or pool of `obax.estimators`, whose file
    says what it holds. What does not fit is a `CheckpointError` that names the leaf.
    """
    return from_bytes(read_bytes(path), like, str(path))


def read_meta(path: str | Path) -> Meta:
    """Return the plain values that were saved beside a state."""
    return Checkpoint(read_bytes(path), str(path)).meta


def to_bytes(state: PyTree, meta: Meta | None = None) -> bytes:
    """Return the checkpoint of a state as bytes."""
    if hasattr(state, "__obax_save__"):
        return model_to_bytes(state, meta)
    leaves = (
        (jax.tree_util.keystr(path), *_as_numpy(leaf))
        for path, leaf in jax.tree_util.tree_leaves_with_path(state)
    )
    return pack("state", leaves, None, meta)


def from_bytes(data: bytes, like: PyTree, name: str = "the checkpoint") -> PyTree:
    """Return what `to_bytes` wrote, with the structure of `like`."""
    return _restored(Checkpoint(data, name), like)


def as_array(leaf: PyTree, path: str) -> np.ndarray:
    """Return the array that is written for a leaf."""
    return little_endian(_as_numpy(leaf)[0], path)


def is_shared(state: PyTree) -> bool:
    """Return whether an array of the state is sharded over several processes."""
    arrays = [leaf for leaf in jax.tree.leaves(state) if isinstance(leaf, jax.Array)]
    return not all(leaf.is_fully_addressable for leaf in arrays)


def _as_numpy(leaf: Any) -> tuple[Any, str]:
    """Return an array as NumPy, and what to write before its dtype; other leaves as they are."""
    prefix = ""
    if hasattr(leaf, "dtype") and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        prefix = f"key:{jax.random.key_impl(leaf)}:"
        leaf = jax.random.key_data(leaf)
    if is_shared(leaf) and not leaf.is_fully_replicated:
        leaf = multihost_utils.process_allgather(leaf, tiled=True)
    return np.asarray(leaf) if hasattr(leaf, "dtype") else leaf, prefix


def _restored(checkpoint: Checkpoint, like: PyTree) -> PyTree:
    if hasattr(like, "__obax_load__") or (like is None and checkpoint.kind != "state"):
        return model_from_bytes(checkpoint, like)
    kind, name = checkpoint.kind, checkpoint.name
    if kind != "state":
        raise CheckpointError(f"{name} holds a {kind}; pass like={kind}() to load it.")
    expected = {
        jax.tree_util.keystr(path): leaf for path, leaf in jax.tree_util.tree_leaves_with_path(like)
    }
    missing = [path for path in expected if path not in checkpoint.entries]
    surplus = [path for path in checkpoint.entries if path not in expected]
    if missing or surplus:
        parts = [
            f"{what} {', '.join(f'state{path}' for path in paths[:5])}"
            for what, paths in (("it lacks", missing), ("like lacks", surplus))
            if paths
        ]
        raise CheckpointError(
            f"{name} has another structure than like: {'; '.join(parts)}. Make like with the same "
            f"algorithm, window, estimator and optimisers as the one that was saved."
        )
    leaves = [_restored_leaf(checkpoint, path, leaf) for path, leaf in expected.items()]
    return jax.tree.unflatten(jax.tree.structure(like), leaves)


def _restored_leaf(checkpoint: Checkpoint, path: str, like: Any) -> Any:
    entry, where = checkpoint.entries[path], f"{checkpoint.name}: state{path}"
    if isinstance(like, PLAIN) != ("file" not in entry):
        raise CheckpointError(f"{where} is an array in one and a plain value in the other.")
    if "file" not in entry:
        return entry["value"]
    array, prefix = _as_numpy(like)
    array = little_endian(array, path)
    dtype, shape = prefix + array.dtype.name, [*array.shape]
    if (entry["dtype"], entry["shape"]) != (dtype, shape):
        message = f"{where} is {entry['dtype']}{entry['shape']}, but like has {dtype}{shape}."
        if {entry["dtype"], dtype} == {"float32", "float64"}:
            message += " One of the two was made with jax_enable_x64 and the other without."
        raise CheckpointError(message)
    array = checkpoint.read(path)
    if prefix:
        return jax.random.wrap_key_data(jnp.asarray(array), impl=entry["dtype"].split(":")[1])
    return array if isinstance(like, np.ndarray) else jnp.asarray(array)


class Folder(ModelFolder):
    """The last `keep` checkpoints of a state or model in a folder, named by the number of rounds.

    With `several`, all processes of the computation use the folder together: the first one writes,
    all read, and each waits for the others.
    """

    def __init__(self, path: str | Path, keep: int = 3, *, several: bool = False):
        self.several = several
        with Together(several):
            super().__init__(path, keep)

    @property
    def writes(self) -> bool:
        """Whether this process writes the checkpoints."""
        return not self.several or jax.process_index() == 0

    def to_bytes(self, model: Any, meta: Meta) -> bytes:
        """Return the bytes of a checkpoint."""
        return to_bytes(model, meta)

    def from_checkpoint(self, checkpoint: Checkpoint, like: Any) -> Any:
        """Return what a checkpoint holds."""
        return _restored(checkpoint, like)

    def save(self, round: int, state: PyTree, meta: Meta | None = None) -> None:
        """Write a checkpoint after so many rounds, and remove the oldest ones."""
        with Together(self.several):
            if self.writes:
                super().save(round, state, meta)

    def agree(self, newest: str) -> None:
        """Check that all processes of a computation see the same newest checkpoint."""
        same(f"what is in {self.path}", newest, self.several)
