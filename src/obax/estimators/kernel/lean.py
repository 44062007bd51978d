"""Numba without what the kernel does not need: 20 of 70 MiB, and half the time to the first row.

When numba loads or compiles its first function it looks for a BLAS by importing `scipy.linalg`.
The kernel calls none of it, and whether SciPy is installed says as much; what in numba uses BLAS
looks again when it is compiled. And beside the machine code that numba reads from its cache it
keeps the same in LLVM's own form, for compiled callers, of which the kernel has none.

Both reach into numba. Where it is built otherwise than in the versions that were tried, nothing is
spared and all works the same.
"""

import ctypes
import importlib
import importlib.util
import sys
from typing import Any


def spare_scipy() -> None:
    """Have numba's `arraymath`, which looks when it is imported, look in the cheap way."""
    if "numba.np.arraymath" in sys.modules or importlib.util.find_spec("scipy") is None:
        return
    linalg = importlib.import_module("numba.np.linalg")
    thorough = getattr(linalg, "ensure_blas", None)
    if thorough is None:
        return
    linalg.ensure_blas = lambda: None  # type: ignore[attr-defined]
    try:
        importlib.import_module("numba.np.arraymath")
    finally:
        linalg.ensure_blas = thorough  # type: ignore[attr-defined]


def drop_source(play: Any) -> Any:
    """The same compiled function, which other compiled functions cannot call any more."""
    for overload in play.overloads.values():
        if getattr(overload.library, "_shared_module", None) is not None:
            overload.library._shared_module = None
    if sys.platform == "linux":
        # glibc gives memory back when asked to.
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
        if trim is not None:
            trim(0)
    return play
