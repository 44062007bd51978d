"""Who is told of rounds while they are played, and where a run that is cut short goes on.

A callback is called as `on_round(state, info)` after every `every` rounds, with the state after the
round and its record, and once more after the last one. One that has a method `close()` is closed
when the driver is done; it may be called again later.
"""

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax

from .._support import validation
from .._support.trees import PyTree
from ..algorithms import Info
from ..checkpoint import SUFFIX, CheckpointError, Digests, Folder, Input, Meta, load, save

OnRound = Callable[[Any, Info], object]


class Callbacks:
    """One callback, several, or none."""

    def __init__(self, on_round: OnRound | Sequence[OnRound] | None, every: int | None):
        if on_round is None:
            if every is not None:
                raise ValueError("every needs on_round, the function to call.")
            self.all: list[OnRound] = []
        else:
            self.all = [*on_round] if isinstance(on_round, Sequence) else [on_round]
            for one in self.all:
                validation.function(one, "on_round", "(state, info) -> None")
        self.every = 1 if every is None else validation.count(every, "every")
        self.told = 0

    def __bool__(self) -> bool:
        return bool(self.all)

    def tell(self, rounds: int, state: Any, info: Info) -> None:
        """After this many rounds."""
        self.told = rounds
        for one in self.all:
            one(state, info)

    def close(self) -> None:
        """Let those that keep something open put it down."""
        for one in self.all:
            if hasattr(one, "close"):
                one.close()


class Saving(NamedTuple):
    """Where checkpoints go, if anywhere, how often, and how many stay: what a person passed to a
    driver, checked."""

    folder: Path | None
    every: int
    keep: int

    @classmethod
    def of(cls, folder: str | Path | None, every: int | None, keep: int) -> "Saving":
        """As the arguments of a driver are called."""
        if folder is not None and not isinstance(folder, str | os.PathLike):
            raise ValueError(f"checkpoint_dir must be the path of a folder, but got {folder!r}.")
        if folder is None and every is not None:
            raise ValueError("checkpoint_every needs checkpoint_dir, the folder to save in.")
        often = 1000 if every is None else validation.count(every, "checkpoint_every")
        path = None if folder is None else Path(folder)
        return cls(path, often, validation.count(keep, "keep"))


class RunCheckpoints:
    """Checkpoints of a run: the last few states, and the history of all rounds in pieces.

    A piece is written before the state that comes after it, so that a state never stands there
    without its past.
    """

    def __init__(
        self, folder: Path, saving: Saving, input: Input, digests: Digests, *, several: bool
    ):
        self.states, self.every = Folder(folder, saving.keep, several=several), saving.every
        self._input, self._digests = input, digests

    def save(self, begin: int, end: int, state: PyTree, history: Info) -> None:
        """The state after `end` rounds, and the history since `begin`."""
        save(self._piece(begin, end), history)
        kept = self._input.ends(self._digests, end).plain()
        self.states.save(end, state, {"rejected": 0, "driver": "run"} | kept)

    def latest(
        self, state: PyTree, shapes: Callable[[int], Info], stacklevel: int
    ) -> tuple[Any, list[Info], int]:
        """The newest state, the history up to it, and how many rounds that are."""

        def check(meta: Meta) -> None:
            self._input.check(meta, self.states.path, self._digests, stacklevel + 4)

        found = self.states.latest(state, check)
        if found is None:
            return state, [], 0
        state, meta = found
        ends = {
            int(file.stem.split("-")[1]): file for file in self.states.path.glob("*-*" + SUFFIX)
        }
        pieces, end = [], meta["round"]
        while end:
            if end not in ends:
                raise CheckpointError(
                    f"checkpoint_dir {self.states.path} holds no history of the rounds up to "
                    f"{end}: it is not the folder of an obax.run (obax.play keeps none). Choose "
                    f"another folder."
                )
            begin = int(ends[end].stem.split("-")[0])
            pieces.append(load(ends[end], like=_empty(shapes(end - begin))))
            end = begin
        return state, pieces[::-1], meta["round"]

    def _piece(self, begin: int, end: int) -> Path:
        return self.states.path / f"{begin:012d}-{end:012d}{SUFFIX}"


def _empty(shapes: PyTree) -> PyTree:
    return jax.tree.map(lambda leaf: jax.lax.full(leaf.shape, 0, leaf.dtype), shapes)
