"""Checkpoints of states, and what the run that a checkpoint is of was given.

A state is any pytree of JAX arrays, random keys and plain values.
"""

import hashlib
import itertools
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np

from .._support import files
from .._support.checks import checked
from .._support.function_identity import PYTHON, differences, fingerprint
from .._support.messages import counted
from .._support.sharding import same, together
from .._support.trees import PyTree, leaf_name
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

# How many of the first and of the last rounds are kept as hashes, and how many differences a
# message names.
ENDS, SHOWN = 8, 5
KEY, ROUNDS = "input", "rounds"
# Hashes of the rounds from one number up to another, counted from 0; fewer at the end.
Digests = Callable[[int, int], Sequence[str]]


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
    with together(several):
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
        from jax.experimental import multihost_utils

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
        with together(several):
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
        with together(self.several):
            if self.writes:
                super().save(round, state, meta)

    def agree(self, newest: str) -> None:
        """Check that all processes of a computation see the same newest checkpoint."""
        same(f"what is in {self.path}", newest, self.several)


class Input:
    """An algorithm and the rounds that it has played so far, kept in the checkpoints of a run.

    A run that is resumed must be given the same: another step size, or rounds that were replaced,
    rotated or cut, would give numbers that nobody asked for. That is an error. The rounds are known
    by hashes of the first and the last few that were played.

    **Arguments:**

    - `parts`: what the numbers depend on besides the rounds, by the name of its argument.
    - `example`: shapes and dtypes of a round.
    - `rounds`: the name of the argument that has the rounds.
    - `other`: whether to go on although something differs.
    """

    def __init__(self, parts: dict[str, Any], example: PyTree, rounds: str, *, other: bool):
        self.parts = {name: fingerprint(part) for name, part in parts.items()}
        self.parts[ROUNDS] = {
            leaf_name(path, ""): f"{leaf.dtype}{list(leaf.shape)}"
            for path, leaf in jax.tree_util.tree_leaves_with_path(example)
        }
        self.head: list[str] = []
        self.tail: deque[str] = deque(maxlen=ENDS)
        self._rounds, self._other = rounds, other

    def note(self, number: int, digest: str) -> None:
        """Note the hash of round `number`, counted from 1."""
        if number == len(self.head) + 1 and number <= ENDS:
            self.head.append(digest)
        self.tail.append(digest)

    def ends(self, digests: Digests, played: int) -> None:
        """Note the first and last of the rounds played, all of which can be read."""
        self.head = [*digests(0, min(ENDS, played))]
        self.tail = deque(digests(max(0, played - ENDS), played), maxlen=ENDS)

    def due(self, played: int, every: int) -> int:
        """Return the next round to be noted: one of the first, or one before a checkpoint."""
        if played < ENDS:
            return played + 1
        return max(played + 1, (played // every + 1) * every - ENDS + 1)

    def plain(self) -> Meta:
        """Return plain values for a checkpoint."""
        return {KEY: {"parts": self.parts, "head": self.head, "tail": [*self.tail]}}

    def check(self, meta: Meta, folder: object, digests: Digests, stacklevel: int) -> None:
        """Raise a `CheckpointError` that says what differs from what the checkpoint was of."""
        if self._other:
            return
        kept = meta.get(KEY)
        if kept is None:
            warnings.warn(
                f"the checkpoints in {folder} were written by an obax that took no fingerprints: "
                f"whether they are of this algorithm and these rounds cannot be checked.",
                stacklevel=stacklevel,
            )
            return
        if not _has_form(kept):
            raise CheckpointError(
                f"the checkpoints in {folder} are not of obax: their {KEY!r} has another form."
            )
        for name, before in kept["parts"].items():
            now = self.parts.get(name, before)
            if different := differences(before, now):
                hidden = len(different) - SHOWN
                more = f" and {hidden} more" if hidden > 0 else ""
                self._refuse(name, folder, ", ".join(different[:SHOWN]) + more)
            if before.get(PYTHON) != now.get(PYTHON):
                warnings.warn(
                    f"the checkpoint is of Python {before.get(PYTHON)} and this is "
                    f"{now.get(PYTHON)}: whether the functions of {name} are the same cannot be "
                    f"checked.",
                    stacklevel=stacklevel,
                )
        self._check_rounds(kept["head"], kept["tail"], meta["round"], folder, digests)
        self.head = [*kept["head"]]
        self.tail.extend(kept["tail"])

    def _check_rounds(
        self, head: list[str], tail: list[str], played: int, folder: object, digests: Digests
    ) -> None:
        begin = played - len(tail)
        last = [*digests(begin, played)]
        if len(last) < len(tail):
            self._refuse(ROUNDS, folder, f"there are fewer than the {played:,} that were played")
        if last != tail:
            self._refuse(ROUNDS, folder, f"rounds {begin:,} to {played - 1:,}")
        if [*digests(0, len(head))] != head:
            self._refuse(ROUNDS, folder, f"the first {counted(len(head), 'round')}")

    def _refuse(self, name: str, folder: object, how: str) -> None:
        name, that = (self._rounds, "those") if name == ROUNDS else (name, "that")
        raise CheckpointError(
            f"{name} must be {that} of the run in checkpoint_dir {folder}, but this differs: "
            f"{how}. Pass what it was, choose another folder to start anew, or go on all the "
            f"same with other_input=True."
        )


def _has_form(kept: Any) -> bool:
    """Return whether something has the form of what `Input.plain` returns."""
    are_strings = lambda values: all(isinstance(one, str) for one in values)  # noqa: E731
    if not isinstance(kept, dict) or not isinstance(kept.get("parts"), dict):
        return False
    parts, ends = kept["parts"].values(), [kept.get(name) for name in ("head", "tail")]
    return all(isinstance(part, dict) and are_strings(part.values()) for part in parts) and all(
        isinstance(hashes, list) and are_strings(hashes) for hashes in ends
    )


def check_seekable(source: Iterable[PyTree]) -> None:
    """Raise a `ValueError` for a source that cannot be read again from a later round.

    With a generator, for instance, a run with checkpoints could not be resumed after a crash.
    """
    indexed = hasattr(source, "__getitem__") and hasattr(source, "__len__")
    if not hasattr(source, "seek") and (not indexed or isinstance(source, Mapping)):
        raise ValueError(
            f"source must be a sequence or have a method seek(round), counted from 0, for "
            f"checkpoint_dir to be of use after a crash, but is a {type(source).__name__}; make a "
            f"list of it or a class with seek, or leave checkpoint_dir out and use obax.save."
        )


def seek(source: Iterable[PyTree], round: int) -> Iterator[PyTree]:
    """Return the rounds of a source from `round` on, counted from 0."""
    check_seekable(source)
    if hasattr(source, "seek"):
        source.seek(round)
        return iter(source)
    indexed = cast(Sequence[PyTree], source)
    return (indexed[i] for i in range(round, len(indexed)))


def digest(round: PyTree, dtypes: Sequence[Any]) -> str:
    """Return a hash of a round, in the precision in which it is played."""
    return _hash(map(_in_dtype, jax.tree.leaves(round), dtypes))


def stacked_digests(rounds: PyTree, dtypes: Sequence[Any]) -> Digests:
    """Return the hashes of rounds that are stacked on axis 0, as a function of their numbers."""
    leaves = jax.tree.leaves(rounds)

    def digests(begin: int, end: int) -> list[str]:
        parts = [
            _in_dtype(leaf[begin:end], dtype) for leaf, dtype in zip(leaves, dtypes, strict=True)
        ]
        return [_hash(one) for one in zip(*parts, strict=True)]

    return digests


def source_digests(source: Iterable[PyTree], dtypes: Sequence[Any]) -> Digests:
    """Return the hashes of the rounds of a source that can be read again, as a function."""

    def digests(begin: int, end: int) -> list[str]:
        try:
            rounds = [*itertools.islice(seek(source, begin), end - begin)]
        except Exception as error:
            raise CheckpointError(
                f"source cannot be read again from round {begin:,} on, to see whether it is that "
                f"of the checkpoint ({type(error).__name__}: {error}). Go on all the same with "
                f"other_input=True."
            ) from error
        return [digest(one, dtypes) for one in rounds]

    return digests


def _in_dtype(leaf: Any, dtype: Any) -> np.ndarray:
    array = little_endian(_as_numpy(leaf)[0], "")
    is_key = jax.dtypes.issubdtype(dtype, jax.dtypes.prng_key)
    return array if is_key else array.astype(dtype, copy=False)


def _hash(arrays: Iterable[np.ndarray]) -> str:
    total = hashlib.blake2b(digest_size=8)
    for array in arrays:
        total.update(array.tobytes())
    return total.hexdigest()
