"""Rows of many models in one call, each in a slot of stacked states: the way in for a pool.

A slot has a `vector` as every model has, and `notes`: a `record` without the ring that intervals
are made of, which a pool does not offer. `work` is for all slots of a call: what it holds follows
from the vector, and every row that is learned makes it stale anyway.

The row itself is played by the machine code of `kernel.entry`, called by its address: compiled
once, it serves one model and ten thousand. Nothing here holds Python's lock, so that shards of a
pool run side by side.
"""

import functools
from collections.abc import Callable
from typing import Any

import numba
import numpy as np
from numba import float64, int64, types, void
from numba.extending import intrinsic

from ..kernel.entry import cached, kernel, once
from ..kernel.layout import FRESH
from ..kernel.record import HEAD, PENDING, POINTS, RING, STRIDE, USED

PoolPlay = Callable[..., None]
"""`play(address, vectors, notes, record, work, sizes, slots, order, rows, out)`: row i of `order`,
one after the other, by the model in slot `slots[i]`; `rows` and `out` as in `kernel.entry.Play`.
`record` is room for one, with as many points as notes have."""


@once
def pool_kernel() -> PoolPlay:
    """Compiled for this machine, or read from the cache that an earlier process left."""
    kernel()
    return functools.partial(cached(_compiled, compact=False), _address())


def _address() -> int:
    """Where the machine code of `kernel.entry` begins."""
    (compiled,) = kernel().overloads.values()  # type: ignore[attr-defined]
    found: int = compiled.library.get_pointer_to_function(compiled.fndesc.llvm_func_name)
    return found


def _call(
    _: Any, address: Any, vector: Any, record: Any, work: Any, sizes: Any, rows: Any, out: Any
) -> tuple[Any, Any]:
    """Numba's own convention of calls, for a function of which only the address is known."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        kinds, convention = signature.args[1:], context.call_conv
        kind = convention.get_function_type(types.void, kinds)
        function = builder.inttoptr(values[0], kind.as_pointer())
        convention.call_function(builder, function, types.void, kinds, values[1:])
        return context.get_dummy_value()

    return types.void(address, vector, record, work, sizes, rows, out), generate


_row: Any = intrinsic(_call)


def _compiled(sources: int, *, cache: bool) -> PoolPlay:
    @numba.njit(
        void(
            *(int64, float64[:, ::1], float64[:, ::1], float64[::1], float64[::1], int64[::1]),
            *(int64[::1], int64[::1], float64[:, ::1], float64[:, ::1]),
        ),
        cache=cache,
        nogil=True,
    )
    def play(
        address: int,
        vectors: np.ndarray,
        notes: np.ndarray,
        record: np.ndarray,
        work: np.ndarray,
        sizes: np.ndarray,
        slots: np.ndarray,
        order: np.ndarray,
        rows: np.ndarray,
        out: np.ndarray,
    ) -> None:
        _ = sources
        last, points = -1, int(record[POINTS])
        width = (record.shape[0] - HEAD) // points - 2
        for i in order:
            slot = slots[i]
            if slot != last:
                work[sizes[FRESH]] = 0.0
            last, line = slot, notes[slot]
            record[:RING] = line[:RING]
            # Points are read by a row after which there is no more room, and a row that makes one
            # writes no other: most of the notes stay where they are, far from the processor.
            used = int(line[USED])
            full = used + 1 == points and line[PENDING] + 1.0 >= line[STRIDE]
            if full:
                record[HEAD:] = line[RING:]
            _row(address, vectors[slot], record, work, sizes, rows[i : i + 1], out[i : i + 1])
            line[:RING] = record[:RING]
            if full:
                line[RING:] = record[HEAD:]
            elif int(record[USED]) > used:
                line[RING + used] = record[HEAD + used]
                line[RING + points + used] = record[HEAD + points + used]
                at = 2 * points + used * width
                line[RING + at : RING + at + width] = record[HEAD + at : HEAD + at + width]

    return play
