"""`play`: rounds as they arrive, one compiled step called again and again."""

from collections.abc import Iterable, Iterator, Sequence, Sized
from pathlib import Path
from typing import TYPE_CHECKING, Generic

import numpy as np
from jax.sharding import Mesh

from .._support.trees import PyTree
from ..algorithms import Algorithm, Info
from ..checkpoint import Input, check_seekable, digest, seek, source_digests
from .arguments import S, check_given, refuse_explicit
from .diagnostics import LiveDiagnostics, rejection, warn_of_refused
from .live import Live
from .session import OnRound, Session

if TYPE_CHECKING:
    from .mesh import Axes, LiveOnMesh


class Play(Iterator[tuple[S, Info]], Generic[S]):
    """An iterator over (state, info) that takes rounds from a live source; see `play`.

    `rounds` and `rejected` count what has been played so far, the rounds before a resumption
    included.
    """

    def __init__(
        self,
        algorithm: Algorithm,
        state: S,
        source: Iterable[PyTree],
        session: Session,
        policy: str,
        axes: "Axes | None" = None,
        other_input: bool = False,
    ):
        self.state = state
        self.rounds = 0
        self.rejected = 0
        self._session, self._algorithm, self._plain = session, algorithm, algorithm
        self._raises = policy == "raise"
        self._on_mesh = axes is not None
        total = len(source) if isinstance(source, Sized) else None
        if axes is not None and axes.several:
            from .mesh import SharedSource

            axes.agree(algorithm, state)
            source = SharedSource(source, axes, state.round_spec)
        self._next_digest: float = float("inf")
        if session.path is not None:
            source = self._restored(source, other_input)
        self._live: Live[S] | LiveOnMesh[S]
        if axes is None:
            refuse_explicit(self.state)
            self._live = Live(algorithm, self.state)
        else:
            from . import mesh

            self._live = mesh.LiveOnMesh(algorithm, self.state, axes)
            self._algorithm, self.state = self._live.algorithm, self._live.state
        self._source = iter(source)
        self._has_session = session.is_used
        self._diagnostics = LiveDiagnostics(algorithm.remedy)
        # Only a window has terms to refuse; the warning comes once.
        self._may_refuse = algorithm.has_window
        session.start_bar(total)

    def _restored(self, source: Iterable[PyTree], other_input: bool) -> Iterable[PyTree]:
        """Take the newest checkpoint, if there is one, and return the source from there on."""
        session, spec = self._session, self.state.round_spec
        self._dtypes = [dtype for _, dtype in spec.leaves]
        parts = {"algorithm": self._algorithm}
        self._input = Input(parts, spec.example(), "source", other=other_input)
        digests = source_digests(source, self._dtypes)
        restored = session.restore(self._on_host(self.state), self._input, digests, stacklevel=8)
        if restored is not None:
            self.state, meta = restored
            self.rounds, self.rejected = meta["round"], meta.get("rejected", 0)
            source = seek(source, self.rounds)
        self._next_digest = self._input.due(self.rounds, session.save_every)
        return source

    def _on_host(self, state: S) -> S:
        """Return a state as a run without a mesh has it, for a checkpoint."""
        if not self._on_mesh:
            return state
        from .mesh import collect

        return collect(self._plain, state)

    def __next__(self) -> tuple[S, Info]:
        try:
            round = next(self._source)
            state, info, accepted = self._live.play(round)
            self.rounds += 1
            if not accepted:
                self.rejected += 1
                if self._raises:
                    raise rejection(self._algorithm, self.state, round, self.rounds - 1)
            self.state = state
            if accepted and self.rounds >= self._diagnostics.due:
                self._diagnostics.look(
                    self.rounds, self._live.number("solver_residual"), stacklevel=2
                )
            if self._may_refuse and accepted and self._live.refuses():
                self._may_refuse = False
                warn_of_refused(np.asarray(info.refused_terms)[None], 2, self.rounds - 1)
            if self._has_session:
                self._after_round(state, info, round)
        except BaseException:
            self.close()
            raise
        return state, info

    def _after_round(self, state: S, info: Info, round: PyTree) -> None:
        """Do what the session asks for after a round."""
        session = self._session
        if self.rounds >= self._next_digest:
            self._input.note(self.rounds, digest(round, self._dtypes))
            self._next_digest = self._input.due(self.rounds, session.save_every)
        if session.path is not None and self.rounds % session.save_every == 0:
            session.save(self.rounds, self._on_host(state), {"rejected": self.rejected})
        session.played(self.rounds, 1, state, info)

    def __enter__(self) -> "Play[S]":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        # A loop that is left early drops its last reference here.
        if hasattr(self, "_has_session"):
            self.close()

    def close(self) -> None:
        """Call the callbacks after the last round, and close them, the progress bar and the folder.

        This is done at the end of the source, or where a loop is left before it.
        """
        self._session.close(self.rounds)


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
    """Play rounds as they arrive.

    The loop is `for state, info in obax.play(algorithm, state, source): ...`.

    The step is compiled once for the shapes that `algorithm.init` was given; a round of another
    structure, shape or dtype is a `ValueError` that names the leaf. The trajectory is that of
    `run`, to rounding. Memory does not grow with the number of rounds.

    `progress`, `on_rejected`, `on_round` and `every` are as in `run`; the iterator's `rejected`
    counts rejected rounds.

    With `checkpoint_dir`, the state is saved there every `checkpoint_every` rounds (default 1,000)
    and the last `keep` checkpoints are kept. If the folder holds one already, playing goes on from
    it: `state` gives the structure only, and the source is moved to the right round. It must be a
    sequence, or an object with a method `seek(round)`, counted from 0; a generator is an error. If
    the algorithm or the source has changed, that is an error that says what differs;
    `other_input=True` goes on all the same.

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
    given = {"algorithm": algorithm, "state": state, "on_rejected": on_rejected}
    check_given(**given, other_input=other_input, progress=progress)
    if not isinstance(source, Iterable) and not hasattr(source, "__getitem__"):
        raise ValueError(f"source must give rounds one after the other, but got {source!r}.")
    axes = None
    if mesh is not None or window_axis is not None or batch_axis is not None:
        from .mesh import Axes

        axes = Axes.of(mesh, window_axis, batch_axis)
    options = progress, on_round, every, checkpoint_dir, checkpoint_every, keep
    session = Session(axes is not None and axes.several, *options)
    if session.path is not None:
        check_seekable(source)
    return Play(algorithm, state, source, session, on_rejected, axes, other_input)
