"""`play`: rounds as they arrive, one compiled step called again and again."""

from collections.abc import Iterable, Iterator, Sequence, Sized
from pathlib import Path
from typing import Generic

import jax
import numpy as np
from jax.sharding import Mesh

from .._support import forked, validation
from .._support.explicit import automatic, explicit_mesh
from .._support.processes import Together
from .._support.progress import Progress
from .._support.trees import PyTree
from ..algorithms import Algorithm, Info
from ..checkpoint import Folder, Input, Meta, check_seekable, digest, seek, source_digests
from .axes import Axes, agree
from .calls import Callbacks, OnRound, Saving
from .live import Live
from .live_mesh import LiveOnMesh, SharedSource
from .mesh import collect
from .rejection import POLICIES, rejection
from .stacks import S, check_given
from .trust import LiveTrust, warn_of_refused

# Frames between a warning and whoever called `play`.
OURS = 6


class Play(Iterator[tuple[S, Info]], Generic[S]):
    """An iterator over (state, info) that pulls rounds from a live source; see `play`.

    `rounds` and `rejected` count what has been played so far, the rounds before a resumption
    included.
    """

    def __init__(
        self,
        algorithm: Algorithm,
        state: S,
        source: Iterable[PyTree],
        bar: Progress,
        policy: str,
        folder: Folder | None = None,
        every: int = 0,
        callbacks: Callbacks | None = None,
        axes: Axes | None = None,
        other_input: bool = False,
    ):
        forked.check()
        self.state = state
        self.rounds = 0
        self.rejected = 0
        self._folder, self._every = folder, every
        self._several = axes is not None and axes.several
        if axes is not None and axes.several:
            agree(algorithm, state, axes)
            source = SharedSource(source, axes, state.round_spec)
        like = state if axes is None or folder is None else collect(algorithm, state)
        self._due: float = float("inf")
        if folder is not None:
            spec = state.round_spec
            self._dtypes = [dtype for _, dtype in spec.leaves]
            parts = {"algorithm": algorithm}
            self._input = Input(parts, spec.example(), "source", other=other_input)
            again = source_digests(source, self._dtypes)

            def check(meta: Meta) -> None:
                self._input.check(meta, folder.path, again, OURS)

            found = folder.latest(like, check)
            if found is not None:
                self.state, meta = found
                self.rounds, self.rejected = meta["round"], meta.get("rejected", 0)
                source = seek(source, self.rounds)
            self._due = self._input.due(self.rounds, every)
        self._algorithm = algorithm
        self._inside = explicit_mesh()
        self._live: Live[S] | LiveOnMesh[S]
        if axes is None:
            self.state = automatic(self.state)
            self._live = Live(algorithm, self.state, self.state.round_spec)
        else:
            self._live = LiveOnMesh(algorithm, self.state, axes)
            self._algorithm, self.state = self._live.algorithm, self._live.state
        self._source = iter(source)
        self._bar = bar
        self._raise = policy == "raise"
        self._callbacks = callbacks or Callbacks(None, None)
        self._told = folder is not None or bar.enabled or bool(self._callbacks)
        self._last: tuple[S, Info] | None = None
        self._trust = LiveTrust(algorithm.remedy)
        # Only a window has terms to refuse, and that is said once.
        self._may_refuse = algorithm.has_window

    def __next__(self) -> tuple[S, Info]:
        try:
            if forked.child:
                forked.check()
            round = next(self._source)
            if self._inside is None:
                state, info, accepted = self._live.play(round)
            else:
                with jax.set_mesh(self._inside):
                    state, info, accepted = self._live.play(round)
            self.rounds += 1
            if not accepted:
                self.rejected += 1
                if self._raise:
                    raise rejection(self._algorithm, self.state, round, self.rounds - 1)
            self.state = state
            if accepted and self.rounds >= self._trust.due:
                self._trust.look(self.rounds, self._live.residual(), stacklevel=2)
            if self._may_refuse and accepted and (refused := self._live.refused()):
                self._may_refuse = False
                warn_of_refused(np.asarray([refused]), 2, self.rounds - 1)
            if self._told:
                self._tell(state, info, round)
        except BaseException:
            self.close()
            raise
        return state, info

    def _tell(self, state: S, info: Info, round: PyTree) -> None:
        if self.rounds >= self._due:
            self._input.note(self.rounds, digest(round, self._dtypes))
            self._due = self._input.due(self.rounds, self._every)
        if self._folder is not None and self.rounds % self._every == 0:
            meta = {"rejected": self.rejected} | self._input.plain()
            if isinstance(self._live, Live):
                self._folder.save(self.rounds, state, meta)
            else:
                self._live.save(self._folder, self.rounds, meta)
        if self._bar.enabled:
            self._bar.advance(1, info.played_value)
        if self._callbacks:
            self._last = state, info
            if self.rounds % self._callbacks.every == 0:
                with Together(self._several):
                    self._callbacks.tell(self.rounds, state, info)

    def __enter__(self) -> "Play[S]":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        # A loop that is left early drops its last reference here.
        if hasattr(self, "_bar"):
            self.close()

    def close(self) -> None:
        """Tell callbacks of the last round, and take the progress bar down: at the end of the
        source, or where a loop is left before it."""
        self._bar.close()
        if self._folder is not None:
            self._folder.close()
        if self._last is not None:
            last, self._last = self._last, None
            if self._callbacks.told != self.rounds:
                self._callbacks.tell(self.rounds, *last)
            self._callbacks.close()


def play(
    algorithm: Algorithm,
    state: S,
    source: Iterable[PyTree],
    *,
    progress: bool = False,
    on_rejected: str = "raise",
    on_round: OnRound | Sequence[OnRound] | None = None,
    every: int | None = None,
    checkpoint_every: int | None = None,
    checkpoint_dir: str | Path | None = None,
    keep: int = 3,
    other_input: bool = False,
    mesh: Mesh | None = None,
    window_axis: str | None = None,
    batch_axis: PyTree = None,
) -> Play[S]:
    """Play rounds as they arrive: `for state, info in obax.play(algorithm, state, source): ...`

    The step is compiled once for the shapes that `algorithm.init` was given; a round of another
    structure, shape or dtype is a `ValueError` that names the leaf. The trajectory is that of
    `run`, to rounding. Memory does not grow with the number of rounds.

    `progress`, `on_rejected`, `on_round` and `every` are as in `run`; the iterator's `rejected`
    counts rejected rounds.

    With `checkpoint_dir`, the state is saved there every `checkpoint_every` rounds (default 1,000)
    and the last `keep` checkpoints are kept. If the folder holds one already, playing goes on from
    it: `state` gives the structure only, and the source is taken to the right round. It must be
    able to: a sequence, or an object with a method `seek(round)`, counted from 0; a generator is
    refused from the start. An algorithm or a source that is not the one of before is an error that
    says what differs; `other_input=True` goes on all the same.

    `mesh`, `window_axis` and `batch_axis` are as in `run`. Checkpoints are those of a run without a
    mesh, so one may go on with another number of devices.

    >>> import jax.numpy as jnp
    >>> import obax
    >>> problem = obax.Problem(outer=lambda x, y, round: 0.5 * (x - round) ** 2)
    >>> algorithm = obax.OGD(problem, outer_step_size=0.5)
    >>> state = algorithm.init(0.0, None, jnp.zeros(()))
    >>> source = (jnp.asarray(target) for target in (1.0, float("nan"), 1.0))
    >>> for state, info in obax.play(algorithm, state, source, on_rejected="skip"):
    ...     print(f"{info.t} {info.accepted} {state.outer_var:.2f}")
    1 True 0.50
    2 False 0.50
    2 True 0.75
    """
    validation.one_of(on_rejected, POLICIES, "on_rejected")
    for name, flag in (("other_input", other_input), ("progress", progress)):
        validation.flag(flag, name)
    check_given(algorithm, state)
    saving = Saving.of(checkpoint_dir, checkpoint_every, keep)
    if not isinstance(source, Iterable) and not hasattr(source, "__getitem__"):
        raise ValueError(f"source must give rounds one after the other, but got {source!r}.")
    total = len(source) if isinstance(source, Sized) else None
    callbacks = Callbacks(on_round, every)
    axes = Axes.of(mesh, window_axis, batch_axis)
    folder = None
    if saving.folder is not None:
        check_seekable(source)
        folder = Folder(saving.folder, saving.keep, several=axes is not None and axes.several)
    bar = Progress(total, enabled=progress)
    return Play(
        algorithm, state, source, bar, on_rejected, folder, saving.every, callbacks, axes,
        other_input,
    )  # fmt: skip
