"""What the checkpoints in a folder go on with: the algorithm that it was, and its rounds.

A checkpoint keeps the fingerprint of the algorithm, and hashes of the first and the last few of
the rounds that were played. Taken up again, what is given is held to both: to go on with another
step size, or with rounds that were replaced, rotated or cut, would end in numbers that nobody
asked for, without a word.
"""

import hashlib
import itertools
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import jax
import numpy as np

from .._support.counting import counted
from .._support.fingerprint import PYTHON, Fingerprint, differences, fingerprint
from .._support.trees import PyTree, leaf_name
from .folder import seek
from .leaves import as_array
from .manifest import CheckpointError, Meta

ENDS = 8
"""So many rounds from either end tell one sequence from another."""
SHOWN = 5
KEY = "input"
ROUNDS = "rounds"
Digests = Callable[[int, int], Sequence[str]]
"""Of the rounds from one number to another, counted from 0; fewer where there are no more."""


class Input:
    """An algorithm and its rounds, as far as they have been played.

    **Arguments:**

    - `parts`: what the numbers depend on beside the rounds, by the name of its argument.
    - `example`: shapes and dtypes of a round.
    - `rounds`: the argument that has the rounds.
    - `other`: go on although something differs.
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
        """This was the round `number`, counted from 1."""
        if number == len(self.head) + 1 and number <= ENDS:
            self.head.append(digest)
        self.tail.append(digest)

    def ends(self, digests: Digests, played: int) -> "Input":
        """The same, after so many rounds, all of which are there to be read."""
        self.head = [*digests(0, min(ENDS, played))]
        self.tail = deque(digests(max(0, played - ENDS), played), maxlen=ENDS)
        return self

    def due(self, played: int, every: int) -> int:
        """The next round that is to be noted: the first ones, and those before a checkpoint."""
        if played < ENDS:
            return played + 1
        return max(played + 1, (played // every + 1) * every - ENDS + 1)

    def plain(self) -> Meta:
        """For a checkpoint."""
        return {KEY: {"parts": self.parts, "head": self.head, "tail": [*self.tail]}}

    def check(self, meta: Meta, folder: object, digests: Digests, stacklevel: int) -> None:
        """Raise a `CheckpointError` that says what differs from what the checkpoint was of."""
        if self._other:
            return
        kept = meta.get(KEY)
        if kept is None:
            warnings.warn(
                f"the checkpoints in {folder} are of an obax that took no fingerprints: whether "
                f"they are of this algorithm and these rounds cannot be checked.",
                stacklevel=stacklevel,
            )
            return
        if fault := _fault(kept):
            raise CheckpointError(f"the checkpoints in {folder} are not of obax: {fault}.")
        for name, before in kept["parts"].items():
            found = differences(before, self.parts.get(name, before))
            if found:
                more = f" and {len(found) - SHOWN} more" if len(found) > SHOWN else ""
                how = f"{', '.join(found[:SHOWN])}{more}"
                self._refuse(self._rounds if name == ROUNDS else name, folder, how)
        _warn_of_python(kept["parts"], self.parts, stacklevel + 1)
        self._check_rounds(kept, meta["round"], folder, digests)
        self.head = [*kept["head"]]
        self.tail.extend(kept["tail"])

    def _check_rounds(self, kept: Meta, played: int, folder: object, digests: Digests) -> None:
        head, tail = kept["head"], kept["tail"]
        last = digests(played - len(tail), played)
        if len(last) < len(tail):
            how = f"there are fewer than the {played:,} that were played"
            self._refuse(self._rounds, folder, how)
        if [*last] != tail:
            how = f"rounds {played - len(tail):,} to {played - 1:,}"
            self._refuse(self._rounds, folder, how)
        if [*digests(0, len(head))] != head:
            self._refuse(self._rounds, folder, f"the first {counted(len(head), 'round')}")

    def _refuse(self, name: str, folder: object, how: str) -> None:
        that = "those" if name == ROUNDS else "that"
        raise CheckpointError(
            f"{name} must be {that} of the run in checkpoint_dir {folder}, but this differs: "
            f"{how}. Pass what it was, choose another folder to start anew, or go on all the "
            f"same with other_input=True."
        )


def _fault(kept: Any) -> str | None:
    """What is wrong with the form of what was kept, before it is believed."""
    if not isinstance(kept, dict) or not isinstance(kept.get("parts"), dict):
        return "what they were of is not said"
    for part in kept["parts"].values():
        if not isinstance(part, dict) or not all(isinstance(one, str) for one in part.values()):
            return "what they were of is not said in words"
    for end in ("head", "tail"):
        found = kept.get(end)
        if not isinstance(found, list) or not all(isinstance(one, str) for one in found):
            return f"the {end} of their rounds is not a list of hashes"
    return None


def _warn_of_python(
    before: dict[str, Fingerprint], now: dict[str, Fingerprint], stacklevel: int
) -> None:
    for name, found in before.items():
        was, came = found.get(PYTHON), now.get(name, found).get(PYTHON)
        if was != came:
            warnings.warn(
                f"the checkpoint is of Python {was} and this is {came}: whether the functions of "
                f"{name} are the same cannot be checked.",
                stacklevel=stacklevel,
            )


def digest(round: PyTree, dtypes: Sequence[Any]) -> str:
    """Of one round: a hash of its bytes, in the precision in which it is played."""
    return _hash(map(_raw, jax.tree.leaves(round), dtypes))


def stacked_digests(rounds: PyTree, dtypes: Sequence[Any]) -> Digests:
    """Of rounds that are stacked on axis 0."""
    leaves = jax.tree.leaves(rounds)

    def digests(begin: int, end: int) -> list[str]:
        parts = [_raw(leaf[begin:end], dtype) for leaf, dtype in zip(leaves, dtypes, strict=True)]
        return [_hash(one) for one in zip(*parts, strict=True)]

    return digests


def source_digests(source: Iterable[PyTree], dtypes: Sequence[Any]) -> Digests:
    """Of a source that can be taken to any round."""

    def digests(begin: int, end: int) -> list[str]:
        try:
            found = [*itertools.islice(seek(source, begin), end - begin)]
        except Exception as error:
            raise CheckpointError(
                f"source cannot be read again from round {begin:,} on, to see whether it is that "
                f"of the checkpoint ({type(error).__name__}: {error}). Go on all the same with "
                f"other_input=True."
            ) from error
        return [digest(one, dtypes) for one in found]

    return digests


def _raw(leaf: Any, dtype: Any) -> np.ndarray:
    array = as_array(leaf, "")[0]
    is_key = jax.dtypes.issubdtype(dtype, jax.dtypes.prng_key)
    return array if is_key else array.astype(dtype, copy=False)


def _hash(arrays: Iterable[np.ndarray]) -> str:
    whole = hashlib.blake2b(digest_size=8)
    for array in arrays:
        whole.update(array.tobytes())
    return whole.hexdigest()
