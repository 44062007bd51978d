"""What a run depends on, kept in its checkpoints, so that a resumed run is given the same.

A checkpoint keeps the fingerprint of the algorithm and hashes of the first and the last few rounds
that were played. To go on with another step size, or with rounds that were replaced, rotated or
cut, would give numbers that nobody asked for; it is an error instead.
"""

import hashlib
import itertools
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, cast

import jax
import numpy as np

from .._support.function_identity import PYTHON, differences, fingerprint
from .._support.messages import counted
from .._support.trees import PyTree, leaf_name
from .format import CheckpointError, Meta
from .tree import as_array

ENDS = 8
"""How many of the first and of the last rounds are kept as hashes."""
SHOWN = 5
KEY = "input"
ROUNDS = "rounds"
Digests = Callable[[int, int], Sequence[str]]
"""Hashes of the rounds from one number up to another, counted from 0; fewer at the end."""


class Input:
    """An algorithm and the rounds that it has played so far.

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

    def ends(self, digests: Digests, played: int) -> "Input":
        """Note the first and last of the rounds played, all of which can be read; return self."""
        self.head = [*digests(0, min(ENDS, played))]
        self.tail = deque(digests(max(0, played - ENDS), played), maxlen=ENDS)
        return self

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
        if fault := _fault(kept):
            raise CheckpointError(f"the checkpoints in {folder} are not of obax: {fault}.")
        for name, before in kept["parts"].items():
            now = self.parts.get(name, before)
            if different := differences(before, now):
                left = len(different) - SHOWN
                more = f" and {left} more" if left > 0 else ""
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
            how = f"there are fewer than the {played:,} that were played"
        elif last != tail:
            how = f"rounds {begin:,} to {played - 1:,}"
        elif [*digests(0, len(head))] != head:
            how = f"the first {counted(len(head), 'round')}"
        else:
            return
        self._refuse(ROUNDS, folder, how)

    def _refuse(self, name: str, folder: object, how: str) -> None:
        name, that = (self._rounds, "those") if name == ROUNDS else (name, "that")
        raise CheckpointError(
            f"{name} must be {that} of the run in checkpoint_dir {folder}, but this differs: "
            f"{how}. Pass what it was, choose another folder to start anew, or go on all the "
            f"same with other_input=True."
        )


def _fault(kept: Any) -> str | None:
    """Return what is wrong with the form of what was kept, or `None`."""
    if not isinstance(kept, dict) or not isinstance(kept.get("parts"), dict):
        return "what they were of is not said"
    for part in kept["parts"].values():
        if not isinstance(part, dict) or not all(isinstance(one, str) for one in part.values()):
            return "what they were of is not said in words"
    for name in ("head", "tail"):
        hashes = kept.get(name)
        if not isinstance(hashes, list) or not all(isinstance(one, str) for one in hashes):
            return f"the {name} of their rounds is not a list of hashes"
    return None


def check_seekable(source: Iterable[PyTree]) -> None:
    """Raise a `ValueError` for a source that cannot be read again from a later round, such as a
    generator: a run with checkpoints could not be resumed after a crash."""
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
    return _hash(map(_array, jax.tree.leaves(round), dtypes))


def stacked_digests(rounds: PyTree, dtypes: Sequence[Any]) -> Digests:
    """Return the hashes of rounds that are stacked on axis 0, as a function of their numbers."""
    leaves = jax.tree.leaves(rounds)

    def digests(begin: int, end: int) -> list[str]:
        parts = [_array(leaf[begin:end], dtype) for leaf, dtype in zip(leaves, dtypes, strict=True)]
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


def _array(leaf: Any, dtype: Any) -> np.ndarray:
    array = as_array(leaf, "")
    is_key = jax.dtypes.issubdtype(dtype, jax.dtypes.prng_key)
    return array if is_key else array.astype(dtype, copy=False)


def _hash(arrays: Iterable[np.ndarray]) -> str:
    total = hashlib.blake2b(digest_size=8)
    for array in arrays:
        total.update(array.tobytes())
    return total.hexdigest()
