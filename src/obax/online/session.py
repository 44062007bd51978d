"""Sessions: the progress bar, the callbacks and the checkpoints of `run` and `play`.

A callback is called as `on_round(state, info)` after every `every` rounds, with the state after the
round and its record, and once more after the last round. One that has a method `close()` is closed
when the driver is done; it may be called again later.
"""

import math
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, SupportsFloat

import jax

from .._support.checks import Count, check, function_of
from .._support.sharding import together
from .._support.trees import PyTree
from ..algorithms import Info
from ..checkpoint import SUFFIX, CheckpointError, Digests, Folder, Input, Meta, load, save

OnRound = Callable[[Any, Info], object]
REFRESH_SECONDS = 0.1


class Progress:
    """A bar of rich's: rounds played, time gone and time left, and the loss of the last round."""

    def __init__(self, total: int | None, done: int):
        # rich is slow to import and only needed here.
        from rich import console, progress

        self._bar = progress.Progress(
            progress.TextColumn("rounds"),
            progress.BarColumn(),
            progress.MofNCompleteColumn(),
            progress.TimeElapsedColumn(),
            progress.TimeRemainingColumn(),
            progress.TextColumn("loss {task.fields[loss]}"),
            # In a notebook rich would warn in every refresh if ipywidgets are not installed.
            console=console.Console(force_jupyter=False),
        )
        self._bar.start()
        self._task = self._bar.add_task("", total=total, completed=done, loss="-")
        self._done, self._drawn = done, 0.0
        self._loss: SupportsFloat | None = None

    def advance(self, rounds: int, loss: SupportsFloat) -> None:
        """Count rounds. Draws at most ten times a second, so that a fast stream is not slowed."""
        self._done, self._loss = self._done + rounds, loss
        if time.monotonic() - self._drawn >= REFRESH_SECONDS:
            self._draw()

    def _draw(self) -> None:
        if self._loss is not None:
            self._bar.update(self._task, completed=self._done, loss=f"{float(self._loss):.4g}")
        self._drawn = time.monotonic()

    def close(self) -> None:
        """Draw the last state and stop."""
        self._draw()
        self._bar.stop()


class Session:
    """What a driver does besides playing rounds.

    `several` is whether several processes play together.
    """

    def __init__(
        self,
        several: bool,
        progress: bool,
        on_round: OnRound | Sequence[OnRound] | None,
        every: int | None,
        checkpoint_dir: str | Path | None,
        checkpoint_every: int | None,
        keep: int,
    ):
        if on_round is None and every is not None:
            raise ValueError("every needs on_round, the function to call.")
        if checkpoint_dir is None and checkpoint_every is not None:
            raise ValueError("checkpoint_every needs checkpoint_dir, the folder to save in.")
        self.callbacks: list[OnRound] = []
        if on_round is not None:
            self.callbacks = [*on_round] if isinstance(on_round, Sequence) else [on_round]
        for callback in self.callbacks:
            check(callback, "on_round", Annotated[Any, function_of("(state, info) -> None")])
        path = check(checkpoint_dir, "checkpoint_dir", str | Path | None)
        self.path = None if path is None else Path(path)
        self.every = check(1 if every is None else every, "every", Count)
        saves = 1000 if checkpoint_every is None else checkpoint_every
        self.save_every = check(saves, "checkpoint_every", Count)
        self.keep = check(keep, "keep", Count)
        self.several, self.shows_progress = several, progress
        self.is_used = progress or bool(self.callbacks) or self.path is not None
        self.called_after = 0
        self.last: tuple[Any, Info] | None = None
        self.folder: Folder | None = None
        self.bar: Progress | None = None

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

    def start_bar(self, total: int | None, done: int = 0) -> None:
        """Show the progress bar, if one was asked for."""
        if self.shows_progress:
            self.bar = Progress(total, done)

    def restore(
        self, like: PyTree, played: Input, digests: Digests, stacklevel: int
    ) -> tuple[PyTree, Meta] | None:
        """Open the folder and return its newest state and meta, or `None` if there is none.

        No other process can have the folder then. A state that is not of this algorithm and these
        rounds is an error.
        """
        assert self.path is not None
        self.folder = Folder(self.path, self.keep, several=self.several)
        self.input, path = played, self.path
        check = lambda meta: played.check(meta, path, digests, stacklevel)  # noqa: E731
        return self.folder.latest(like, check)

    def save(self, rounds: int, state: PyTree, meta: Meta) -> None:
        """Write a checkpoint after this many rounds."""
        assert self.folder is not None
        self.folder.save(rounds, state, meta | self.input.plain())

    def played(self, rounds: int, count: int, state: Any, info: Info, last: bool = False) -> None:
        """Move the bar by `count` rounds, and call the callbacks if they are due.

        `rounds` have been played in all; `info` is the record of the last one.
        """
        self.last = state, info
        if self.bar is not None:
            self.bar.advance(count, info.played_value)
        if self.callbacks and (last or rounds % self.every == 0):
            with together(self.several):
                self._call(rounds)

    def _call(self, rounds: int) -> None:
        assert self.last is not None
        self.called_after = rounds
        for callback in self.callbacks:
            callback(*self.last)

    def close(self, rounds: int) -> None:
        """Call callbacks after the last round if they have not been, and close all that is open."""
        if self.bar is not None:
            self.bar.close()
            self.bar = None
        if self.folder is not None:
            self.folder.close()
        if self.last is not None:
            if self.called_after != rounds:
                self._call(rounds)
            self.last = None
            for callback in self.callbacks:
                if hasattr(callback, "close"):
                    callback.close()


def save_history(folder: Path, begin: int, end: int, history: Info) -> None:
    """Write the history of some rounds of a run to a file beside its checkpoints.

    It is written before the state that comes after it, so that a state is never there without its
    history.
    """
    save(folder / f"{begin:012d}-{end:012d}{SUFFIX}", history)


def load_history(folder: Path, rounds: int, shapes: Callable[[int], Info]) -> list[Info]:
    """Return the history of the first rounds, in pieces; `shapes` gives that of n rounds."""
    ends = {int(file.stem.split("-")[1]): file for file in folder.glob("*-*" + SUFFIX)}
    pieces, end = [], rounds
    while end:
        if end not in ends:
            raise CheckpointError(
                f"checkpoint_dir {folder} holds no history of the rounds up to {end}: it is not "
                f"the folder of an obax.run (obax.play keeps none). Choose another folder."
            )
        begin = int(ends[end].stem.split("-")[0])
        zeros = lambda leaf: jax.lax.full(leaf.shape, 0, leaf.dtype)  # noqa: E731
        pieces.append(load(ends[end], like=jax.tree.map(zeros, shapes(end - begin))))
        end = begin
    return pieces[::-1]
