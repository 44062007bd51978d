"""Sessions: the progress bar, the callbacks and the checkpoints of `run` and `play`.

A callback is called as `on_round(state, info)` after every `every` rounds, with the state after the
round and its record, and once more after the last round. One that has a method `close()` is closed
when the driver is done; it may be called again later.
"""

import math
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, SupportsFloat

import jax

from .._support.checks import Count, check, function_of
from .._support.processes import Together
from .._support.progress import Progress
from .._support.trees import PyTree
from ..algorithms import Info
from ..checkpoint import SUFFIX, CheckpointError, Digests, Folder, Input, Meta, load, save

OnRound = Callable[[Any, Info], object]


class Session:
    """What a driver does besides playing rounds."""

    def __init__(
        self,
        progress: bool,
        on_round: OnRound | Sequence[OnRound] | None,
        every: int | None,
        checkpoint_dir: str | Path | None,
        checkpoint_every: int | None,
        keep: int,
    ):
        if on_round is None and every is not None:
            raise ValueError("every needs on_round, the function to call.")
        self.callbacks: list[OnRound] = []
        if on_round is not None:
            self.callbacks = [*on_round] if isinstance(on_round, Sequence) else [on_round]
        for callback in self.callbacks:
            check(callback, "on_round", Annotated[Any, function_of("(state, info) -> None")])
        self.every = 1 if every is None else check(every, "every", Count)
        if checkpoint_dir is not None and not isinstance(checkpoint_dir, str | os.PathLike):
            raise ValueError(
                f"checkpoint_dir must be the path of a folder, but got {checkpoint_dir!r}."
            )
        if checkpoint_dir is None and checkpoint_every is not None:
            raise ValueError("checkpoint_every needs checkpoint_dir, the folder to save in.")
        given = 1000 if checkpoint_every is None else checkpoint_every
        self.save_every = check(given, "checkpoint_every", Count)
        self.keep = check(keep, "keep", Count)
        self.path = None if checkpoint_dir is None else Path(checkpoint_dir)
        self.shows_progress = progress
        self.several = False
        """Whether several processes play together."""
        self.total: int | None = None
        """How many rounds there will be, if that is known."""
        self.called_after = 0
        self.last: tuple[Any, Info] | None = None
        self.folder: Folder | None = None
        self.bar: Progress | None = None

    @property
    def is_used(self) -> bool:
        """Whether anything is to be done after a round."""
        return self.shows_progress or bool(self.callbacks) or self.path is not None

    def piece(self, horizon: int) -> int:
        """Return how many rounds to play between two callbacks, checkpoints or moves of the bar."""
        lengths = [self.every] * bool(self.callbacks)
        lengths += [self.save_every] * (self.folder is not None)
        if lengths:
            return math.gcd(*lengths)
        if not self.shows_progress:
            return horizon
        # If possible a length that divides the horizon: a remainder is compiled separately.
        even = (horizon // parts for parts in range(50, 9, -1) if horizon % parts == 0)
        return next(even, -(-horizon // 50))

    def start_bar(self, total: int | None) -> None:
        """Show the progress bar, if one was asked for."""
        if self.shows_progress:
            self.bar = Progress(total, enabled=True)

    def open_folder(self) -> None:
        """Open the folder of checkpoints, if there is one: no other process can have it then."""
        if self.path is not None:
            self.folder = Folder(self.path, self.keep, several=self.several)

    def restore(
        self, like: PyTree, rounds: Input, digests: Digests, stacklevel: int
    ) -> tuple[PyTree, Meta] | None:
        """Return the newest state in the folder and its meta, or `None` if there is none.

        Raises an error if it is not of this algorithm and these rounds.
        """
        self.input = rounds
        if self.folder is None:
            return None
        path = self.folder.path
        check = lambda meta: rounds.check(meta, path, digests, stacklevel)  # noqa: E731
        return self.folder.latest(like, check)

    def save(self, rounds: int, state: PyTree, meta: Meta) -> None:
        """Write a checkpoint after this many rounds."""
        assert self.folder is not None
        self.folder.save(rounds, state, meta | self.input.plain())

    def advance(self, count: int, loss: SupportsFloat) -> None:
        """Move the bar by this many rounds."""
        if self.bar is not None:
            self.bar.advance(count, loss)

    def played(self, rounds: int, state: Any, info: Info, last: bool = False) -> None:
        """Call the callbacks if they are due after this many rounds."""
        self.last = state, info
        if last or rounds % self.every == 0:
            with Together(self.several):
                self.call(rounds)

    def call(self, rounds: int) -> None:
        """Call all callbacks after this many rounds."""
        assert self.last is not None
        self.called_after = rounds
        for callback in self.callbacks:
            callback(*self.last)

    def close(self, rounds: int) -> None:
        """Call callbacks after the last round if they have not been, close them, the bar and the
        folder."""
        if self.bar is not None:
            self.bar.close()
        if self.folder is not None:
            self.folder.close()
        if self.last is not None:
            if self.called_after != rounds:
                self.call(rounds)
            self.last = None
            for callback in self.callbacks:
                if hasattr(callback, "close"):
                    callback.close()


class History:
    """The history of a run in pieces, each in a file beside the checkpoints.

    A piece is written before the state that comes after it, so that a state is never there without
    its history.
    """

    def __init__(self, folder: Path):
        self.folder = folder

    def save(self, begin: int, end: int, history: Info) -> None:
        """Write the history of some rounds."""
        save(self._file(begin, end), history)

    def load(self, rounds: int, shapes: Callable[[int], Info]) -> list[Info]:
        """Return the history of the first rounds, in pieces; `shapes` gives that of n rounds."""
        ends = {int(file.stem.split("-")[1]): file for file in self.folder.glob("*-*" + SUFFIX)}
        pieces, end = [], rounds
        while end:
            if end not in ends:
                raise CheckpointError(
                    f"checkpoint_dir {self.folder} holds no history of the rounds up to {end}: it "
                    f"is not the folder of an obax.run (obax.play keeps none). Choose another "
                    f"folder."
                )
            begin = int(ends[end].stem.split("-")[0])
            zeros = lambda leaf: jax.lax.full(leaf.shape, 0, leaf.dtype)  # noqa: E731
            pieces.append(load(ends[end], like=jax.tree.map(zeros, shapes(end - begin))))
            end = begin
        return pieces[::-1]

    def _file(self, begin: int, end: int) -> Path:
        return self.folder / f"{begin:012d}-{end:012d}{SUFFIX}"
