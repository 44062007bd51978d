"""`run`: recorded rounds in one compiled scan."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from .._support import trees, validation
from .._support.compiling import compiled
from .._support.explicit import automatic, automatic_mesh
from .._support.packing import Packing
from .._support.progress import Progress
from .._support.trees import PyTree
from ..algorithms import Algorithm, Info
from .mesh import Axes, on_mesh
from .rejection import POLICIES, rejection
from .stacks import Record, S, at, length, recording_step


@automatic_mesh()
def run(
    algorithm: Algorithm,
    state: S,
    rounds: PyTree,
    *,
    record: Record | None = None,
    progress: bool = False,
    on_rejected: str = "raise",
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
    - `progress`: show a bar. The scan then runs in up to 50 pieces.
    - `on_rejected`: `"raise"` a `RejectedRoundError` at the first round that the guard rejects, or
      `"skip"` such rounds; `history.accepted` and `history.rejected` tell.
    - `mesh`, `window_axis`, `batch_axis`: devices, the axis of the mesh over which the window's
      terms and its past rounds lie, and the one over which the batch of each round lies (axis 0 of
      its leaves; or a tree of names and `None`, like the round). See docs/devices.md.

    **Returns:** the state after the last round, and the history: `info` stacked over rounds.

    >>> import obax
    >>> problem = obax.Problem(outer=lambda x, y, round: 0.5 * (x - round) ** 2)
    >>> algorithm = obax.OGD(problem, outer_step_size=0.5)
    >>> state = algorithm.init(0.0, None, jnp.zeros(()))
    >>> state, history = obax.run(algorithm, state, jnp.array([1.0, 1.0, 1.0]))
    >>> print(history.played_value, state.t)
    [0.5     0.125   0.03125] 4
    """
    validation.one_of(on_rejected, POLICIES, "on_rejected")
    axes = Axes.of(mesh, window_axis, batch_axis)
    if axes is None:
        state, rounds = automatic((state, rounds))
    else:
        algorithm, state = on_mesh(algorithm, state, axes)
        rounds = axes.put_rounds(rounds, state.round_spec, stacked=True)
    state.round_spec.check(rounds, stacked=True)
    horizon = length(rounds)
    piece = _piece(horizon) if progress else horizon
    histories = []
    with Progress(horizon, enabled=progress) as bar:
        for start in range(0, horizon, piece):
            part = rounds if piece == horizon else at(rounds, slice(start, start + piece))
            before = state
            state, history = _scan(algorithm, state, part, record)
            if on_rejected == "raise" and trees.is_concrete(history.accepted):
                _raise_if_rejected(algorithm, before, part, history, start)
            histories.append(history)
            if progress:
                bar.advance(length(history.t), float(history.played_value[-1]))
    if len(histories) == 1:
        return state, histories[0]
    return state, jax.tree.map(lambda *leaves: jnp.concatenate(leaves), *histories)


@compiled
def _scan(algorithm: Algorithm, state: S, rounds: PyTree, record: Record | None) -> tuple[S, Info]:
    step = recording_step(algorithm, record)
    packing = Packing(jax.eval_shape(step, state, at(rounds, 0))[1])

    def body(state: S, round: PyTree) -> tuple[S, PyTree]:
        state, info = step(state, round)
        return state, packing.pack(info)

    state, packed = jax.lax.scan(body, state, rounds)
    return state, packing.unpack(packed)


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
    if index:
        state, _ = _scan(algorithm, state, at(rounds, slice(index)), None)
    raise rejection(algorithm, state, at(rounds, index), offset + index)
