"""`run`: recorded rounds in one compiled scan, or in a few where somebody wants to know between."""

import math
from collections.abc import Sequence
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from .._support import forked, trees, validation
from .._support.compiling import compiled
from .._support.explicit import automatic, automatic_mesh
from .._support.functions import shared
from .._support.packing import Packing
from .._support.processes import Together, same
from .._support.progress import Progress
from .._support.trees import PyTree
from ..algorithms import Algorithm, Info
from ..algorithms.record import with_edges
from ..checkpoint import Input, stacked_digests
from .axes import Axes, agree
from .calls import Callbacks, OnRound, RunCheckpoints, Saving
from .mesh import collect, on_mesh
from .places import put
from .rejection import POLICIES, rejection
from .stacks import Record, S, at, check_given, check_stacked, length, recording_step
from .trust import warn_of, warn_of_refused

# Frames between a warning and whoever called `run`, the decorator's among them.
OURS = 3


@automatic_mesh()
def run(
    algorithm: Algorithm,
    state: S,
    rounds: PyTree,
    *,
    record: Record | None = None,
    progress: bool = False,
    on_rejected: str = "raise",
    on_round: OnRound | Sequence[OnRound] | None = None,
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
    - `record`: `state -> pytree`, what to keep after each round besides the info, for instance
      `lambda state: state.inner_var`; it is in `history.recorded`.
    - `progress`: show a bar, and at the end `history.summary()`. The scan then runs in up to 50
      pieces.
    - `on_rejected`: `"raise"` a `RejectedRoundError` at the first round that the guard rejects, or
      `"skip"` such rounds; `history.accepted` and `history.rejected` tell.
    - `on_round`: `(state, info) -> None`, or several of them, called after every `every` rounds
      (default 1) and after the last; ready ones are in `obax.callbacks`. The scan is cut into
      pieces of that many rounds: tens or hundreds cost next to nothing.
    - `checkpoint_dir`: save state and history there every `checkpoint_every` rounds (default
      1,000) and at the end; the last `keep` states stay. Called again, the run goes on from the
      newest: `state` gives the structure only. With `on_round` too, pieces have the greatest
      common divisor of the two numbers.
    - `other_input`: go on from a checkpoint although the algorithm, `record` or the rounds that
      were played are not those of before, which is otherwise an error that says what differs.
    - `mesh`, `window_axis`, `batch_axis`: devices, the axis of the mesh over which the window's
      terms and its past rounds lie, and the one over which the batch of each round lies (axis 0 of
      its leaves; or a tree of names and `None`, like the round). See docs/devices.md.

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
    forked.check()
    validation.one_of(on_rejected, POLICIES, "on_rejected")
    for name, flag in (("other_input", other_input), ("progress", progress)):
        validation.flag(flag, name)
    check_given(algorithm, state, record)
    saving = Saving.of(checkpoint_dir, checkpoint_every, keep)
    record = shared(record)
    axes = Axes.of(mesh, window_axis, batch_axis)
    several = axes is not None and axes.several
    with Together(several):
        if axes is not None:
            # Of several processes each may have given a part.
            rounds = axes.put_rounds(rounds, state.round_spec, stacked=True)
        check_stacked(state.round_spec, rounds)
        if axes is None:
            state, rounds = automatic((state, rounds))
        horizon = length(rounds)
        callbacks = Callbacks(on_round, every)
    if axes is not None:
        same("the number of rounds", horizon, several)
        agree(algorithm, state, axes)
    folder = None
    if saving.folder is not None:
        parts = {"algorithm": algorithm, "record": record}
        given = Input(parts, state.round_spec.example(), "rounds", other=other_input)
        digests = stacked_digests(rounds, [dtype for _, dtype in state.round_spec.leaves])
        folder = RunCheckpoints(saving.folder, saving, given, digests, several=several)
    wanted = [callbacks.every] * bool(callbacks) + ([] if folder is None else [folder.every])
    piece = math.gcd(*wanted) if wanted else (_piece(horizon) if progress else horizon)
    histories: list[Info] = []
    begin = saved = 0
    if folder is not None:
        plain = state if axes is None else collect(algorithm, state)
        found, histories, begin = folder.latest(
            plain, lambda n: _shapes(algorithm, plain, rounds, record, n), OURS
        )
        if axes is not None:
            everywhere = axes.at()
            histories = jax.tree.map(lambda leaf: put(leaf, everywhere), histories)
        state, saved = found if begin else state, begin
        if begin > horizon:
            raise ValueError(
                f"rounds must be those of the run in checkpoint_dir, which has played {begin:,}, "
                f"but there are {horizon:,}; choose another folder to start anew."
            )
    placed = algorithm
    if axes is not None:
        placed, state = on_mesh(algorithm, state, axes)
    with Progress(horizon, enabled=progress) as bar:
        if progress and begin:
            bar.advance(begin, float(histories[-1].played_value[-1]))
        for start in range(begin, horizon, piece):
            part = rounds if piece >= horizon else at(rounds, slice(start, start + piece))
            before, end = state, min(start + piece, horizon)
            state, history = _scan(placed, state, part, record)
            if on_rejected == "raise" and trees.is_concrete(history.accepted):
                _raise_if_rejected(placed, before, part, history, start)
            histories.append(history)
            if folder is not None and (end % folder.every == 0 or end == horizon):
                since = histories[len(histories) - -(-(end - saved) // piece) :]
                kept = state if axes is None else collect(algorithm, state)
                folder.save(saved, end, kept, _joined(since))
                saved = end
            if callbacks and (end % callbacks.every == 0 or end == horizon):
                last = history[-1]
                with Together(several):
                    callbacks.tell(end, state, last)
            if progress:
                bar.advance(end - start, float(history.played_value[-1]))
    callbacks.close()
    whole = _joined(histories)
    if trees.is_concrete(whole.solver_residual):
        accepted = np.asarray(whole.accepted)
        warn_of(np.asarray(whole.solver_residual)[accepted], algorithm.remedy, stacklevel=OURS)
        warn_of_refused(np.asarray(whole.refused_terms) * accepted, stacklevel=OURS)
        if progress:
            print(whole.summary())
    return state, whole


def _joined(histories: list[Info]) -> Info:
    if len(histories) == 1:
        return histories[0]
    return jax.tree.map(lambda *leaves: jnp.concatenate(leaves), *histories)


def _shapes(algorithm: Algorithm, state: S, rounds: PyTree, record: Record | None, n: int) -> Info:
    """What the history of n rounds looks like."""
    some = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct((n, *leaf.shape[1:]), leaf.dtype), rounds)
    return jax.eval_shape(lambda s, r: _body(algorithm, s, r, record), state, some)[1]


def _body(algorithm: Algorithm, state: S, rounds: PyTree, record: Record | None) -> tuple[S, Info]:
    step = recording_step(algorithm, record)
    packing = Packing(jax.eval_shape(step, state, at(rounds, 0))[1])

    def body(state: S, round: PyTree) -> tuple[S, PyTree]:
        state, info = step(state, round)
        return state, packing.pack(info)

    state, packed = jax.lax.scan(body, state, rounds)
    return state, with_edges(packing.unpack(packed), algorithm.problem.domain)


_scan = compiled(_body)


def _piece(horizon: int) -> int:
    """A length to cut the horizon into for a progress bar, if possible one that divides it: a
    remainder would be compiled for on its own."""
    even = (horizon // parts for parts in range(50, 9, -1) if horizon % parts == 0)
    return next(even, -(-horizon // 50))


def _raise_if_rejected(
    algorithm: Algorithm, state: S, rounds: PyTree, history: Info, offset: int
) -> None:
    accepted = np.asarray(history.accepted)
    if accepted.all():
        return
    index = int(np.argmin(accepted))
    # What made it diverge may be known already.
    residuals = np.asarray(history.solver_residual)[:index]
    warn_of(residuals, algorithm.remedy, stacklevel=OURS + 1)
    if index:
        state, _ = _scan(algorithm, state, at(rounds, slice(index)), None)
    raise rejection(algorithm, state, at(rounds, index), offset + index)
