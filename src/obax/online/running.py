"""`run`: recorded rounds in one compiled scan, or in several with callbacks in between."""

import functools
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from .._support import trees
from .._support.compiling import compiled
from .._support.function_identity import interned
from .._support.packing import Rows
from .._support.trees import PyTree
from ..algorithms import Algorithm, Info
from ..algorithms.record import with_edges
from .arguments import Record, S, at, check_given, check_rounds, recorded_step, refuse_explicit
from .diagnostics import rejection, warn_of_refused, warn_of_residuals

if TYPE_CHECKING:
    from .session import OnRound

# Frames from a warning to whoever called `run`, without and with `_run_in_pieces`.
PLAIN, IN_PIECES = 3, 4


def run(
    algorithm: Algorithm,
    state: S,
    rounds: PyTree,
    *,
    record: Record | None = None,
    progress: bool = False,
    on_rejected: str = "raise",
    on_round: "OnRound | Sequence[OnRound] | None" = None,
    every: int | None = None,
    checkpoint_dir: str | Path | None = None,
    checkpoint_every: int | None = None,
    keep: int = 3,
    other_input: bool = False,
    mesh: Mesh | None = None,
    window_axis: str | None = None,
    batch_axis: PyTree = None,
) -> tuple[S, Info]:
    """Play recorded rounds in one compiled scan.

    **Arguments:**

    - `algorithm`, `state`: from `algorithm.init`, or from an earlier run.
    - `rounds`: a pytree like the example round, stacked on axis 0.
    - `record`: `state -> pytree`, what to record after each round besides the info, for instance
      `lambda state: state.inner_var`; it is in `history.recorded`.
    - `progress`: show a bar, and at the end `history.summary()`. The scan then runs in up to 50
      pieces.
    - `on_rejected`: `"raise"` a `RejectedRoundError` at the first round that the guard rejects, or
      `"skip"` such rounds; see `history.accepted` and `history.rejected`.
    - `on_round`: `(state, info) -> None`, or several of them, called after every `every` rounds
      (default 1) and after the last; ready ones are in `obax.callbacks`. The scan is cut into
      pieces of that many rounds: tens or hundreds cost next to nothing.
    - `checkpoint_dir`: save state and history there every `checkpoint_every` rounds (default
      1,000) and at the end; the last `keep` states stay. Called again, the run goes on from the
      newest checkpoint: `state` gives the structure only. With `on_round` too, the length of a
      piece is the greatest common divisor of the two numbers.
    - `other_input`: go on from a checkpoint even if the algorithm, `record` or the rounds that
      were played have changed. By default that is an error that says what differs.
    - `mesh`, `window_axis`, `batch_axis`: devices, the axis of the mesh over which the terms of the
      window and its past rounds are divided, and the one over which the batch of each round is
      divided (axis 0 of its leaves; or a tree of names and `None`, like the round). See
      docs/devices.md.

    **Returns:** the state after the last round, and the history: `info` stacked over rounds, with
    `summary()`, `plot()`, `to_pandas()`, a length and `history[100:]`.

    >>> import obax
    >>> problem = obax.Problem(outer=lambda x, y, round: 0.5 * (x - round) ** 2)
    >>> algorithm = obax.OGD(problem, outer_step_size=0.5)
    >>> state = algorithm.init(0.0, None, jnp.zeros(()))
    >>> state, history = obax.run(algorithm, state, jnp.array([1.0, 1.0, 1.0]))
    >>> print(history.played_value, state.t)
    [0.5     0.125   0.03125] 4
    """
    given = {"algorithm": algorithm, "state": state, "record": record, "on_rejected": on_rejected}
    check_given(**given, other_input=other_input, progress=progress)
    record = None if record is None else interned(record)
    options = progress, on_round, every, checkpoint_dir, checkpoint_every, keep
    places = mesh, window_axis, batch_axis
    if options != (False, None, None, None, None, 3) or places != (None, None, None):
        return _run_in_pieces(
            algorithm, state, rounds, record, on_rejected, options, other_input, places
        )
    check_rounds(state, rounds)
    refuse_explicit(state, rounds)
    end, history = _scan(algorithm, state, rounds, record)
    if not isinstance(history.accepted, jax.core.Tracer):
        if on_rejected == "raise" and not np.asarray(history.accepted).all():
            _raise_rejection(algorithm, state, rounds, history, 0, PLAIN)
        _warn(algorithm, history, PLAIN)
    return end, history


def _run_in_pieces(
    algorithm: Algorithm,
    state: S,
    rounds: PyTree,
    record: Record | None,
    on_rejected: str,
    options: tuple,
    other_input: bool,
    places: tuple,
) -> tuple[S, Info]:
    """Run with a progress bar, callbacks, checkpoints or a mesh: one scan for each piece."""
    # Loaded by those who ask for it.
    from ..checkpoint import Input, stacked_digests
    from .mesh import Axes, collect, on_mesh
    from .session import Session, load_history, save_history

    axes = Axes.of(*places)
    session = Session(axes is not None and axes.several, *options)
    spec, on_host, placed = state.round_spec, lambda state: state, algorithm
    if axes is None:
        horizon = check_rounds(state, rounds)
        refuse_explicit(state, rounds)
    else:
        on_host = functools.partial(collect, algorithm)
        rounds, horizon = axes.shared_rounds(algorithm, state, rounds)
    plain = on_host(state)
    histories: list[Info] = []
    begin = 0
    if session.path is not None:
        parts = {"algorithm": algorithm, "record": record}
        played = Input(parts, spec.example(), "rounds", other=other_input)
        digests = stacked_digests(rounds, [dtype for _, dtype in spec.leaves])
        restored = session.restore(plain, played, digests, stacklevel=7)
        if restored is not None:
            state, begin = restored[0], restored[1]["round"]
            shapes = functools.partial(_history_shapes, algorithm, plain, rounds, record)
            histories = load_history(session.path, begin, shapes)
    if begin > horizon:
        raise ValueError(
            f"rounds must be those of the run in checkpoint_dir, which has played {begin:,}, "
            f"but there are {horizon:,}; choose another folder to start anew."
        )
    if axes is not None:
        histories = axes.everywhere(histories)
        placed, state = on_mesh(algorithm, state, axes)
    session.start_bar(horizon, begin)
    piece, end, saved, since = session.piece(horizon), begin, begin, len(histories)
    try:
        for start in range(begin, horizon, piece):
            part = rounds if piece >= horizon else at(rounds, slice(start, start + piece))
            before = state
            state, history = _scan(placed, state, part, record)
            raises = on_rejected == "raise" and trees.is_concrete(history.accepted)
            if raises and not np.asarray(history.accepted).all():
                _raise_rejection(placed, before, part, history, start, IN_PIECES)
            histories.append(history)
            end = min(start + piece, horizon)
            if session.path is not None and (end % session.save_every == 0 or end == horizon):
                save_history(session.path, saved, end, _joined(histories[since:]))
                played.ends(digests, end)
                session.save(end, on_host(state), {"rejected": 0, "driver": "run"})
                saved, since = end, len(histories)
            if session.is_used:
                session.played(end, end - start, state, history[-1], last=end == horizon)
    finally:
        session.close(end)
    whole = _joined(histories)
    if trees.is_concrete(whole.accepted):
        _warn(algorithm, whole, IN_PIECES)
        if session.shows_progress:
            print(whole.summary())
    return state, whole


def _joined(histories: list[Info]) -> Info:
    if len(histories) == 1:
        return histories[0]
    return jax.tree.map(lambda *leaves: jnp.concatenate(leaves), *histories)


def _history_shapes(
    algorithm: Algorithm, state: S, rounds: PyTree, record: Record | None, n: int
) -> Info:
    """Return the shapes of the history of n rounds."""
    some = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct((n, *leaf.shape[1:]), leaf.dtype), rounds)
    return jax.eval_shape(lambda s, r: _play(algorithm, s, r, record), state, some)[1]


def _play(algorithm: Algorithm, state: S, rounds: PyTree, record: Record | None) -> tuple[S, Info]:
    """Scan the step over the rounds.

    On a CPU each output of a scan costs a kernel launch in every round, so the numbers of the
    record are packed into a few arrays.
    """
    rows = Rows()

    def step(state: S, round: PyTree) -> tuple[S, PyTree]:
        state, info = recorded_step(algorithm, state, round, record)
        return state, rows.pack(info)

    state, packed = jax.lax.scan(step, state, rounds)
    return state, with_edges(rows.unpack(packed), algorithm.problem.domain)


_scan = compiled(_play)


def _raise_rejection(
    algorithm: Algorithm, state: S, rounds: PyTree, history: Info, offset: int, stacklevel: int
) -> NoReturn:
    """Raise the error for the first rejected round of a history."""
    index = int(np.argmin(np.asarray(history.accepted)))
    # The hypergradients before it may be the reason.
    residuals = np.asarray(history.solver_residual)[:index]
    warn_of_residuals(residuals, algorithm.remedy, stacklevel=stacklevel)
    if index:
        state, _ = _scan(algorithm, state, at(rounds, slice(index)), None)
    raise rejection(algorithm, state, at(rounds, index), offset + index)


def _warn(algorithm: Algorithm, history: Info, stacklevel: int) -> None:
    """Warn if the hypergradients of a history cannot be trusted, or its window has lost rounds."""
    accepted = np.asarray(history.accepted)
    residuals = np.asarray(history.solver_residual)[accepted]
    warn_of_residuals(residuals, algorithm.remedy, stacklevel=stacklevel)
    warn_of_refused(np.asarray(history.refused_terms) * accepted, stacklevel=stacklevel)
