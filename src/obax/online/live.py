"""The compiled step of `play`, on one packed array.

In a live round of a small problem most of the time is spent on arrays that go into a compiled
function and come out of it: some twenty-five of them. Here the numbers of the algorithm, the state
and the round go in as one array, and the state and the info come out as one. A field is unpacked
when it is read. Large leaves stay on the device as they are.
"""

import dataclasses
import functools
from collections.abc import Hashable, Sequence
from typing import Any, Generic, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Sharding, SingleDeviceSharding
from jaxtyping import Array

from .._support import trees
from .._support.compiling import MOST_PROGRAMS, OPTIONS
from .._support.packing import WORD, Lazy, Words, lazy
from .._support.trees import PyTree
from ..algorithms import Algorithm, Info
from .arguments import S

M = TypeVar("M", bound=Lazy)
# Types of arrays on the host.
HOST = frozenset([np.ndarray, *np.sctypeDict.values()])
# Bytes: JAX copies an array that does not begin at a multiple of this.
ALIGNED = 64
# An object between two rounds: its words on the host, its large leaves where they are, and the
# device to which the state was committed, if it was.
Packed = tuple[bytes, Sequence[Array], Sharding | None]


class View(Generic[M]):
    """The layout of packed modules of one structure, and a way to unpack them field by field."""

    def __init__(self, example: M):
        self.words = Words(example)
        self.kind = type(example)
        self.ready: dict[str, object] = {}
        # For each field that holds arrays: its structure, and which leaves of the whole it has.
        self.fields: dict[str, tuple[PyTree, range]] = {}
        end = 0
        for field in dataclasses.fields(example):
            value = getattr(example, field.name)
            count = 0 if field.metadata.get("static") else len(jax.tree.leaves(value))
            if count:
                self.fields[field.name] = trees.structure(value), range(end, end + count)
            else:
                self.ready[field.name] = value
            end += count
        # The default of a field is in the class, where it would be found before the field is made.
        self.at_once = [name for name in self.fields if hasattr(self.kind, name)]

    def unpacked(self, packed: Packed) -> M:
        """Return the module, whose leaves are made when they are first read.

        They are arrays of JAX, as if they had never been packed.
        """
        ready = self.ready
        if self.at_once:
            ready = ready | self.made(packed, self.at_once)
        return lazy(self.kind, ready, self.made, packed)

    def made(self, packed: Packed, names: list[str]) -> dict[str, object]:
        """Return the fields of these names."""
        words, alone, place = packed
        parts = [self.fields[name] for name in names]
        indices = [i for _, part in parts for i in part]
        leaves = dict(zip(self.words.alone, alone, strict=True))
        small = [i for i in indices if i not in leaves]
        views = [self.words.from_bytes(words, i) for i in small]
        # A state may be looked at for the first time while a function is traced that closes over
        # it; what is made here is kept and must not belong to that function.
        with jax.ensure_compile_time_eval():
            arrays = _on_device(*views)
        if place is not None:
            arrays = jax.device_put(arrays, place)
        leaves.update(zip(small, arrays, strict=True))
        return {
            name: structure.unflatten([leaves[i] for i in part])
            for name, (structure, part) in zip(names, parts, strict=True)
        }


# To copy arrays in one compiled call takes a fraction of the time of `device_put`, leaf by leaf.
_on_device = jax.jit(lambda *leaves: [jnp.copy(leaf) for leaf in leaves])


class LiveStep(Generic[S]):
    """`algorithm.step` on packed words, for algorithms, states and rounds of one structure.

    The compiled function takes the words of the algorithm's numbers, the state and the round in one
    array, then their large leaves. It returns the same for the state and the info; without large
    leaves the words alone, because a list of one array takes time too.
    """

    def __init__(self, static: PyTree, numbers: Words, state: View[S], round: Words):
        self.static = static
        self.numbers, self.state, self.round = numbers, state, round
        self.compiled = jax.jit(self._step, compiler_options=OPTIONS)
        # Known once the step has been traced: bytes of the info.
        self.info: View[Info]
        self.accepted: int
        self.refused: slice
        self.is_alone: bool

    def _step(self, words: Array, *alone: Array) -> Array | list[Array]:
        large, end = iter(alone), 0

        def unpacked(part: Words) -> PyTree:
            nonlocal end
            begin, end = end, end + part.length
            return part.unpack(words[begin:end], [next(large) for _ in part.alone])

        algorithm: Algorithm = eqx.combine(unpacked(self.numbers), self.static)
        before = unpacked(self.state.words)
        after, info = algorithm.step(before, unpacked(self.round))
        kept = Words(after)
        if (kept.treedef, kept.leaves) != (self.state.words.treedef, self.state.words.leaves):
            raise ValueError(
                f"{type(algorithm).__name__}.step must return a state of the structure, shapes and "
                f"dtypes of the one it is given, but does not."
            )
        self.info = View(info)
        self.accepted = self._bytes_of("accepted").start
        self.refused = self._bytes_of("refused_terms")
        left, left_alone = kept.pack(after)
        right, right_alone = self.info.words.pack(info)
        packed = jnp.concatenate([*left, *right])
        self.is_alone = not left_alone and not right_alone
        return packed if self.is_alone else [packed, *left_alone, *right_alone]

    def _bytes_of(self, field: str) -> slice:
        begin, end, _ = self.info.words.spans[self.info.fields[field][1].start]
        return slice(begin * WORD.itemsize, end * WORD.itemsize)


class Live(Generic[S]):
    """A state that moves from round to round in packed form."""

    def __init__(self, algorithm: Algorithm, state: S):
        numbers, static = eqx.partition(algorithm, eqx.is_array)
        self.round_spec = state.round_spec
        shapes = jax.eval_shape(lambda: (numbers, state))
        steps = _steps(*map(_hashable, (static, *shapes)), self.round_spec)
        self.view: View[S] = steps[0].state
        self.cut = self.view.words.length * WORD.itemsize
        self.constants, self.fixed, _ = _packed(steps[0].numbers, numbers)
        self.kept = _packed(self.view.words, state)
        self.packed, self.plain = [(step, *self._input_array(step)) for step in steps]
        self.flatten = self.round_spec.treedef.flatten_up_to
        self.expected = list(self.round_spec.leaves)

    def _input_array(self, step: LiveStep[S]) -> tuple[np.ndarray, memoryview]:
        """Return the array that goes into a step, and the part of it that changes in every round.

        It can be written again when the result of a round has been read.
        """
        begin = len(self.constants)
        size = begin + self.cut + step.round.length * WORD.itemsize
        array = np.empty(size + ALIGNED, np.uint8)
        array = array[-array.ctypes.data % ALIGNED :][:size]
        view = array.data
        view[:begin] = self.constants
        return array.view(WORD), view[begin:]

    def play(self, round: PyTree) -> tuple[S, Info, bool]:
        """Return state and info after a round, and whether it was accepted.

        A rejected round leaves every bit of the state as it was, so one can go on after it.
        """
        try:
            leaves = self.flatten(round)
            fits = [(leaf.shape, leaf.dtype) for leaf in leaves] == self.expected
        except (ValueError, TypeError, AttributeError):
            fits = False
        if not fits:
            # Raises, or the round has a precision that JAX would have converted as well.
            self.round_spec.check(round)
        # Arrays of JAX may be on a device, and even on CPU it takes longer to read them on the host
        # than to pass them.
        chosen = self.packed
        for leaf in leaves:
            if type(leaf) not in HOST:
                chosen = self.plain
                break
        before, large, place = self.kept
        step, words, changing = chosen
        changing[:] = before + step.round.to_bytes(leaves)
        if place is not None:
            words = jax.device_put(words, place)
        # Lists that are empty, as they mostly are, still take time to be unpacked.
        rest = [leaves[i] for i in step.round.alone] if step.round.alone else ()
        if self.fixed or large or rest:
            result = step.compiled(words, *self.fixed, *large, *rest)
        else:
            result = step.compiled(words)
        if step.is_alone:
            data, state_leaves, info_leaves = np.asarray(result).tobytes(), (), ()
        else:
            end = 1 + len(large)
            data, state_leaves, info_leaves = (
                np.asarray(result[0]).tobytes(),
                result[1:end],
                result[end:],
            )
        record = data[self.cut :]
        self.kept = kept = data[: self.cut], state_leaves, place
        self.record = record, step
        self.info = info = step.info.unpacked((record, info_leaves, place))
        return self.view.unpacked(kept), info, record[step.accepted] != 0

    def refuses(self) -> bool:
        """Return whether past rounds left the window in the last round."""
        record, step = self.record
        return any(record[step.refused])

    def number(self, field: str) -> float:
        """Return a number of the last info; to make its field would take ten times as long."""
        record, step = self.record
        words, index = step.info.words, step.info.fields[field][1].start
        # In half precision it is not packed.
        packed = index in words.spans
        return float(words.from_bytes(record, index) if packed else getattr(self.info, field))


def _packed(words: Words, tree: PyTree) -> Packed:
    leaves = jax.tree.leaves(tree)
    return words.to_bytes(leaves), [leaves[i] for i in words.alone], _place(leaves)


def _place(leaves: list[Array]) -> Sharding | None:
    """Return the one device to which an array among the leaves was committed, if there is one."""
    for leaf in leaves:
        if isinstance(leaf, jax.Array) and leaf.committed:
            return leaf.sharding if isinstance(leaf.sharding, SingleDeviceSharding) else None
    return None


def _hashable(tree: PyTree) -> Hashable:
    """Return leaves and structure of a tree whose leaves can be hashed, such as shapes."""
    leaves, treedef = jax.tree.flatten(tree)
    return tuple(leaves), treedef


@functools.lru_cache(maxsize=MOST_PROGRAMS)
def _steps(*parts: Any) -> tuple[LiveStep, LiveStep]:
    """Return the steps for rounds packed on the host and for rounds passed as they are.

    `parts` are what does not change in the algorithm, the shapes of its numbers and of the state,
    and the form of rounds. A step is compiled when it is first called.
    """
    *trees, round_spec = parts
    static, numbers, state = (treedef.unflatten(leaves) for leaves, treedef in trees)
    words, view, example = Words(numbers), View(state), round_spec.example()
    packed, plain = Words(example), Words(example, small=-1)
    return LiveStep(static, words, view, packed), LiveStep(static, words, view, plain)
