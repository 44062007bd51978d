"""The last few checkpoints of something that goes on, and the source that it goes on with."""

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import cast

import jax

from .._support import atomic, lock
from .._support.processes import Together, same
from .._support.trees import PyTree
from .file import from_bytes, save
from .manifest import CheckpointError, DamagedError, Meta, opened

SUFFIX = ".obax"


class Folder:
    """The last few checkpoints of something that goes on: `keep` of them, named by their round.

    No other process can have the same folder until this object is closed or gone. With `several`,
    all processes of the computation have it together: the first one writes, all read, none goes on
    before the others.
    """

    def __init__(self, path: str | Path, keep: int = 3, *, several: bool = False):
        self.path = Path(path)
        self.keep = keep
        self.several = several
        self.writes = not several or jax.process_index() == 0
        with Together(several):
            if os.path.lexists(self.path) and not self.path.is_dir():
                raise ValueError(
                    f"checkpoints (checkpoint_dir, --checkpoint) must go to a folder, but "
                    f"{self.path} is none; choose another name."
                )
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
        with Together(self.several):
            if self.writes:
                file = self.path / f"{round:012d}{SUFFIX}"
                save(file, state, meta={"round": round} | (meta or {}))
                for old in self.files()[: -self.keep]:
                    old.unlink(missing_ok=True)

    def files(self) -> list[Path]:
        """Oldest first."""
        named = re.compile(rf"\d{{12}}{re.escape(SUFFIX)}")
        return sorted(file for file in self.path.iterdir() if named.fullmatch(file.name))

    def latest(
        self, like: PyTree, check: Callable[[Meta], None] = lambda meta: None
    ) -> tuple[PyTree, Meta] | None:
        """The newest checkpoint and its meta, or `None` if there is none.

        One that is damaged is passed over for the one before it; if all are, that is an error.
        `check` sees the meta before the state is read: what it raises is an error.
        """
        errors = []
        newest = [file.name for file in self.files()[-1:]]
        same(f"what is in {self.path}", newest[0] if newest else "nothing", self.several)
        for file in reversed(self.files()):
            try:
                data = file.read_bytes()
                meta = opened(data, str(file))[0]["meta"]
                if type(meta.get("round")) is not int or meta["round"] < 0:
                    raise DamagedError(f"{file} does not say after how many rounds it is.")
                check(meta)
                state = from_bytes(data, like, str(file))
            except DamagedError as error:
                errors.append(str(error))
                continue
            return state, meta
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


def seek(source: Iterable[PyTree], round: int) -> Iterator[PyTree]:
    """A source from `round` on, counted from 0: a sequence, or what has a method `seek(round)`."""
    check_seekable(source)
    if hasattr(source, "seek"):
        source.seek(round)
        return iter(source)
    indexed = cast(Sequence[PyTree], source)
    return (indexed[i] for i in range(round, len(indexed)))
