"""`play` over the devices of a mesh, and with several processes that play together."""

from collections.abc import Iterable, Iterator
from typing import Generic

from .._support.compiling import compiled
from .._support.processes import Together
from .._support.trees import PyTree
from ..algorithms import Algorithm, Info
from ..checkpoint import Folder, Meta, seek
from ..rounds import RoundSpec
from .axes import Axes
from .mesh import collect, on_mesh
from .stacks import S


class LiveOnMesh(Generic[S]):
    """A state that moves from round to round on a mesh; what `Live` is on one device."""

    def __init__(self, algorithm: Algorithm, state: S, axes: Axes):
        self.plain, self.axes = algorithm, axes
        self.algorithm, self.state = on_mesh(algorithm, state, axes)

    def play(self, round: PyTree) -> tuple[S, Info, bool]:
        """The state after a round, the info, and whether the round was accepted."""
        round = self.axes.put_rounds(round, self.state.round_spec, stacked=False)
        self.state.round_spec.check(round)
        self.state, info = _step(self.algorithm, self.state, round)
        self._info = info
        return self.state, info, bool(info.accepted)

    def residual(self) -> float:
        """That of the last round's solver."""
        return float(self._info.solver_residual)

    def refused(self) -> int:
        """How many past rounds left the window in the last one."""
        return int(self._info.refused_terms)

    def save(self, folder: Folder, round: int, meta: Meta) -> None:
        """A checkpoint as a run without a mesh writes it."""
        folder.save(round, collect(self.plain, self.state), meta)


class SharedSource(Iterator[PyTree]):
    """The rounds of a source of which each of several processes has a part, put together.

    A process whose source ends, fails, or gives a round that does not fit stops all of them.
    """

    def __init__(self, source: Iterable[PyTree], axes: Axes, spec: RoundSpec):
        self._source, self._axes, self._spec = source, axes, spec
        self._rounds: Iterator[PyTree] | None = None

    def seek(self, round: int) -> None:
        """Go on from this round, counted from 0."""
        with Together(self._axes.several):
            self._rounds = seek(self._source, round)

    def __next__(self) -> PyTree:
        with Together(self._axes.several):
            if self._rounds is None:
                self._rounds = iter(self._source)
            given = next(self._rounds)
            placed = self._axes.put_rounds(given, self._spec, stacked=False)
            self._spec.check(placed)
        return placed


@compiled
def _step(algorithm: Algorithm, state: S, round: PyTree) -> tuple[S, Info]:
    return algorithm.step(state, round)
