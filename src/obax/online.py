"""Playing an algorithm: over a recorded horizon, over a live stream, over many settings at once.

`run` is one compiled scan, `play` one compiled step called again and again, `sweep` a scan under
`vmap`. All three play the same `algorithm.step`.
"""

import functools
from collections.abc import Callable, Iterable, Iterator, Sequence, Sized
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from . import _tree, _validate
from ._pack import Packing
from ._progress import Progress
from ._tree import PyTree
from .algorithms import Algorithm, Info
from .checkpoint import Folder, seek

Record = Callable[[Any], PyTree]
POLICIES = ("raise", "skip")


class RejectedRoundError(RuntimeError):
    """A round was refused by the guard: it, or what it would have done to the state, is not finite.

    `index` counts the rounds given to the driver from 0; `state` is the state before that round,
    from which one can go on.
    """

    def __init__(self, message: str, index: int, state: Any):
        super().__init__(message)
        self.index = index
        self.state = state


def run(
    algorithm: Algorithm,
    state: Any,
    rounds: PyTree,
    *,
    record: Record | None = None,
    progress: bool = False,
    on_rejected: str = "raise",
) -> tuple[Any, Info]:
    """Play recorded rounds in one compiled scan.

    **Arguments:**

    - `algorithm`, `state`: from `algorithm.init`, or from an earlier run.
    - `rounds`: a pytree like the example round, stacked on axis 0.
    - `record`: `state -> pytree`, what to keep after each round besides the info, for instance
      `lambda state: state.inner_var`; it is in `history.recorded`.
    - `progress`: show a bar. The scan then runs in up to 50 pieces.
    - `on_rejected`: `"raise"` a `RejectedRoundError` at the first round that the guard refuses, or
      `"skip"` such rounds; `history.accepted` and `history.rejected` tell.

    **Returns:** the state after the last round, and the history: `info` stacked over rounds.

    >>> import obax
    >>> problem = obax.Problem(outer=lambda x, y, round: 0.5 * (x - round) ** 2)
    >>> algorithm = obax.OGD(problem, outer_step_size=0.5)
    >>> state = algorithm.init(0.0, None, jnp.zeros(()))
    >>> state, history = obax.run(algorithm, state, jnp.array([1.0, 1.0, 1.0]))
    >>> print(history.played_value, state.t)
    [0.5     0.125   0.03125] 4
    """
    _validate.one_of(on_rejected, POLICIES, "on_rejected")
    state.round_spec.check(rounds, stacked=True)
    horizon = _length(rounds)
    piece = _piece(horizon) if progress else horizon
    histories = []
    with Progress(horizon, enabled=progress) as bar:
        for start in range(0, horizon, piece):
            part = rounds if piece == horizon else _slice(rounds, start, start + piece)
            before = state
            state, history = _scan(algorithm, state, part, record)
            if on_rejected == "raise" and _tree.is_concrete(history.accepted):
                _raise_if_rejected(algorithm, before, part, history, start)
            histories.append(history)
            if progress:
                bar.advance(_length(history.t), float(history.played_value[-1]))
    if len(histories) == 1:
        return state, histories[0]
    return state, jax.tree.map(lambda *leaves: jnp.concatenate(leaves), *histories)


class Play(Iterator[tuple[Any, Info]]):
    """An iterator over (state, info) that pulls rounds from a live source; see `play`.

    `rounds` and `rejected` count what has been played so far, the rounds before a resumption
    included.
    """

    def __init__(
        self,
        algorithm: Algorithm,
        state: Any,
        source: Iterable[PyTree],
        bar: Progress,
        policy: str,
        folder: Folder | None = None,
        every: int = 0,
    ):
        self.state = state
        self.rounds = 0
        self.rejected = 0
        self._folder, self._every = folder, every
        found = None if folder is None else folder.latest(like=state)
        if found is not None:
            self.state, meta = found
            self.rounds, self.rejected = meta["round"], meta["rejected"]
            source = seek(source, self.rounds)
        self._dynamic, static = eqx.partition(algorithm, eqx.is_array)
        self._algorithm = algorithm
        self._step = _compiled_step(*_hashable(static))
        self._source = iter(source)
        self._bar = bar
        self._raise = policy == "raise"

    def __next__(self) -> tuple[Any, Info]:
        try:
            return self._play_one(next(self._source))
        except BaseException:
            self.close()
            raise

    def _play_one(self, round: PyTree) -> tuple[Any, Info]:
        state, info = self._step(self._dynamic, self.state, round)
        self.rounds += 1
        if not info.accepted:
            self.rejected += 1
            if self._raise:
                raise _rejection(self._algorithm, self.state, round, self.rounds - 1)
        self.state = state
        if self._folder is not None and self.rounds % self._every == 0:
            self._folder.save(self.rounds, state, {"rejected": self.rejected})
        if self._bar.enabled:
            self._bar.advance(1, info.played_value)
        return state, info

    def __enter__(self) -> "Play":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def __del__(self) -> None:
        # A loop that is left early drops its last reference here.
        if hasattr(self, "_bar"):
            self.close()

    def close(self) -> None:
        """Take the progress bar down, where a loop is left before the source ends."""
        self._bar.close()


def play(
    algorithm: Algorithm,
    state: Any,
    source: Iterable[PyTree],
    *,
    progress: bool = False,
    on_rejected: str = "raise",
    checkpoint_every: int | None = None,
    checkpoint_dir: str | Path | None = None,
    keep: int = 3,
) -> Play:
    """Play rounds as they arrive: `for state, info in obax.play(algorithm, state, source): ...`

    The step is compiled once for the shapes that `algorithm.init` was given; a round of another
    structure, shape or dtype is a `ValueError` that names the leaf. The trajectory is that of
    `run`, to rounding. Memory does not grow with the number of rounds.

    `progress` and `on_rejected` are as in `run`; the iterator's `rejected` counts refused rounds.

    With `checkpoint_dir`, the state is saved there every `checkpoint_every` rounds (default 1,000)
    and the last `keep` checkpoints are kept. If the folder holds one already, playing goes on from
    it: `state` gives the structure only, and the source is taken to the right round. It must be
    able to: a sequence, or an object with a method `seek(round)`, counted from 0.

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
    _validate.one_of(on_rejected, POLICIES, "on_rejected")
    total = len(source) if isinstance(source, Sized) else None
    folder = None
    if checkpoint_dir is not None:
        folder = Folder(checkpoint_dir, _validate.count(keep, "keep"))
    elif checkpoint_every is not None:
        raise ValueError("checkpoint_every needs checkpoint_dir, the folder to save in.")
    every = _validate.count(checkpoint_every or 1000, "checkpoint_every")
    bar = Progress(total, enabled=progress)
    return Play(algorithm, state, source, bar, on_rejected, folder, every)


def sweep(
    algorithms: Algorithm | Sequence[Algorithm],
    state: Any,
    rounds: PyTree,
    *,
    seeds: bool = False,
    record: Record | None = None,
) -> tuple[Any, Info]:
    """Play many settings and/or seeds in one compiled call.

    **Arguments:**

    - `algorithms`: algorithms that differ in their numbers only (step sizes, K, window weights,
      bounds of the domain); what they share is compiled once. What is not a number, such as the
      size of the window, must be the same: sweep over such things with several calls.
    - `state`: one start for all, from any of the algorithms; or, with `seeds`, starts stacked on a
      leading axis, one for each seed.
    - `rounds`: as in `run`; with `seeds`, with one more leading axis in front, one entry a seed.
    - `record`: as in `run`.

    **Returns:** states and histories with leading axes (settings, seeds), each only where asked
    for. A refused round shows in `history.accepted`; it never ends the sweep.

    >>> import obax
    >>> problem = obax.Problem(outer=lambda x, y, round: 0.5 * (x - round) ** 2)
    >>> settings = [obax.OGD(problem, outer_step_size=size) for size in (0.5, 1.0)]
    >>> state = settings[0].init(0.0, None, jnp.zeros(()))
    >>> _, history = obax.sweep(settings, state, jnp.array([1.0, 1.0]))
    >>> print(history.played_value)
    [[0.5   0.125]
     [0.5   0.   ]]
    """
    single = isinstance(algorithms, Algorithm)
    family = [algorithms] if isinstance(algorithms, Algorithm) else [*algorithms]
    numbers, shared = _stack(family)
    horizon = _length(rounds)
    if seeds and (lengths := {len(leaf) for leaf in jax.tree.leaves(rounds)}) != {horizon}:
        raise ValueError(
            f"rounds must have one leading length, the number of seeds, but the leaves have "
            f"{sorted(lengths)}."
        )
    state.round_spec.check(_first(rounds) if seeds else rounds, stacked=True)
    _length(_first(rounds) if seeds else rounds)
    if state.t.ndim and (not seeds or len(state.t) != horizon):
        raise ValueError(
            f"state must be one state, or with seeds=True one for each of the seeds in rounds, "
            f"but it holds {len(state.t)}, with seeds={seeds} and rounds of leading length "
            f"{horizon}."
        )
    states, history = _sweep(numbers, shared, state, rounds, record, seeds, len(family))
    if single:
        return jax.tree.map(lambda leaf: leaf[0], (states, history))
    return states, history


def _recording_step(algorithm: Algorithm, record: Record | None) -> Callable[..., Any]:
    def step(state: Any, round: PyTree) -> tuple[Any, Info]:
        state, info = algorithm.step(state, round)
        if record is None:
            return state, info
        is_unset = lambda node: node is None  # noqa: E731
        return state, eqx.tree_at(lambda i: i.recorded, info, record(state), is_leaf=is_unset)

    return step


@eqx.filter_jit
def _scan(
    algorithm: Algorithm, state: Any, rounds: PyTree, record: Record | None
) -> tuple[Any, Info]:
    step = _recording_step(algorithm, record)
    packing = Packing(jax.eval_shape(step, state, _first(rounds))[1])

    def body(state: Any, round: PyTree) -> tuple[Any, PyTree]:
        state, info = step(state, round)
        return state, packing.pack(info)

    state, packed = jax.lax.scan(body, state, rounds)
    return state, packing.unpack(packed)


@eqx.filter_jit
def _sweep(
    numbers: PyTree,
    shared: PyTree,
    state: Any,
    rounds: PyTree,
    record: Record | None,
    seeds: bool,
    settings: int,
) -> tuple[Any, Info]:
    """All settings x seeds as one flat batch inside one scan: XLA on CPU is about twice as fast on
    [settings * seeds, d] arrays as on [settings, seeds, d]."""
    replicas = _length(rounds) if seeds else 1
    numbers = jax.tree.map(lambda leaf: jnp.repeat(leaf, replicas, axis=0), numbers)
    seed_of = jnp.tile(jnp.arange(replicas), settings)
    per_seed_state = state.t.ndim == 1
    states = jax.tree.map(
        lambda leaf: (
            leaf[seed_of]
            if per_seed_state
            else jnp.broadcast_to(leaf, (settings * replicas, *leaf.shape))
        ),
        state,
    )

    def step(numbers: PyTree, state: Any, round: PyTree) -> tuple[Any, Info]:
        return _recording_step(eqx.combine(numbers, shared), record)(state, round)

    first = jax.tree.map(lambda leaf: leaf[0], (numbers, states))
    example = _first(_first(rounds) if seeds else rounds)
    packing = Packing(jax.eval_shape(step, *first, example)[1])

    def packed_step(numbers: PyTree, state: Any, round: PyTree) -> tuple[Any, PyTree]:
        state, info = step(numbers, state, round)
        return state, packing.pack(info)

    def body(states: Any, round: PyTree) -> tuple[Any, PyTree]:
        batch = jax.tree.map(lambda leaf: leaf[seed_of], round) if seeds else round
        return jax.vmap(packed_step, in_axes=(0, 0, 0 if seeds else None))(numbers, states, batch)

    if seeds:
        rounds = jax.tree.map(lambda leaf: jnp.swapaxes(leaf, 0, 1), rounds)
    states, packed = jax.lax.scan(body, states, rounds)
    history = jax.tree.map(lambda leaf: jnp.swapaxes(leaf, 0, 1), packing.unpack(packed))
    if not seeds:
        return states, history
    return jax.tree.map(
        lambda leaf: leaf.reshape(settings, replicas, *leaf.shape[1:]), (states, history)
    )


@functools.lru_cache(maxsize=256)
def _compiled_step(leaves: tuple[Any, ...], treedef: Any) -> Callable[..., tuple[Any, Info]]:
    static = jax.tree.unflatten(treedef, leaves)
    return jax.jit(lambda dynamic, state, round: eqx.combine(dynamic, static).step(state, round))


def _hashable(static: PyTree) -> tuple[tuple[Any, ...], Any]:
    leaves, treedef = jax.tree.flatten(static)
    return tuple(leaves), treedef


def _stack(family: list[Algorithm]) -> tuple[PyTree, PyTree]:
    """The numbers in which the algorithms differ, stacked, and the rest, which they share."""
    if not family:
        raise ValueError("algorithms must hold at least one algorithm, but is empty.")
    flat = [jax.tree_util.tree_leaves_with_path(algorithm) for algorithm in family]
    treedef = _tree.structure(family[0])
    for index, algorithm in enumerate(family):
        if _tree.structure(algorithm) != treedef:
            raise ValueError(
                f"algorithms must differ in numbers only, but algorithms[{index}] has another "
                f"structure than algorithms[0] (another problem, window size, mode, estimator or "
                f"optimiser); sweep over those with several calls."
            )
    stacked, shared = [], []
    for column in zip(*flat, strict=True):
        path, values = column[0][0], [leaf for _, leaf in column]
        numeric = all(eqx.is_array(value) or isinstance(value, int | float) for value in values)
        same = all(value is values[0] for value in values)
        if not numeric and not all(value == values[0] for value in values):
            raise ValueError(
                f"{_tree.leaf_name(path, 'algorithms[i]')} must be the same or a number in all "
                f"algorithms, but is not; make schedules Equinox modules with array fields to "
                f"sweep over them."
            )
        keep = numeric and (eqx.is_array(values[0]) or not same)
        if keep:
            family[0].check_sweep(_tree.leaf_name(path, ""))
        stacked.append(_stack_numbers(values) if keep else None)
        shared.append(None if keep else values[0])
    return jax.tree.unflatten(treedef, stacked), jax.tree.unflatten(treedef, shared)


def _stack_numbers(values: list[Any]) -> Array:
    if _tree.is_concrete(values):
        # Stacking hundreds of device arrays one by one would take longer than a short sweep.
        return jnp.asarray(np.stack([np.asarray(value) for value in values]))
    return jnp.stack([jnp.asarray(value) for value in values])


def _length(rounds: PyTree) -> int:
    leaves = jax.tree.leaves(rounds)
    if not leaves or leaves[0].shape[0] == 0:
        raise ValueError("rounds must hold at least one round, but is empty.")
    return leaves[0].shape[0]


def _slice(rounds: PyTree, start: int, stop: int) -> PyTree:
    return jax.tree.map(lambda leaf: leaf[start:stop], rounds)


def _piece(horizon: int) -> int:
    """A length to cut the horizon into for a progress bar, if possible one that divides it: a
    remainder would be compiled for on its own."""
    even = (horizon // parts for parts in range(50, 9, -1) if horizon % parts == 0)
    return next(even, -(-horizon // 50))


def _first(rounds: PyTree) -> PyTree:
    return jax.tree.map(lambda leaf: leaf[0], rounds)


def _raise_if_rejected(
    algorithm: Algorithm, state: Any, rounds: PyTree, history: Info, offset: int
) -> None:
    accepted = np.asarray(history.accepted)
    if accepted.all():
        return
    index = int(np.argmin(accepted))
    if index:
        state, _ = _scan(algorithm, state, _slice(rounds, 0, index), None)
    round = jax.tree.map(lambda leaf: leaf[index], rounds)
    raise _rejection(algorithm, state, round, offset + index)


def _rejection(algorithm: Algorithm, state: Any, round: PyTree, index: int) -> RejectedRoundError:
    """The error for a refused round, with the reason in words."""
    bad = [
        _tree.leaf_name(path, "round")
        for path, leaf in jax.tree_util.tree_leaves_with_path(round)
        if _tree.is_float(leaf) and not np.all(np.isfinite(np.asarray(leaf)))
    ]
    if bad:
        reason = f"{', '.join(bad)} is not finite"
    else:
        new, _ = algorithm.update(state, round)
        moved = [
            name
            for name in ("outer_var", "inner_var")
            if not bool(_tree.all_finite(getattr(new, name)))
        ]
        reason = (
            f"the round itself is finite, but it would make {' and '.join(moved) or 'the state'} "
            f"NaN or Inf; a smaller step size is the usual cure"
        )
    return RejectedRoundError(
        f"round {index} (counted from 0) was refused: {reason}. The state is as it was before the "
        f"round (error.state). Pass on_rejected='skip' to leave such rounds out and count them.",
        index,
        state,
    )
