"""Numba without SciPy's linear algebra, until somebody's own compiled function asks for it.

When numba loads or compiles its first function it looks for a BLAS by importing `scipy.linalg`:
13 MiB and half the time to the first row, for a kernel that calls none of it. Whether SciPy is
installed says as much. What in numba uses BLAS looks again when it is compiled.
"""

import importlib
import importlib.util
import sys


def spare_scipy() -> None:
    """Have numba's `arraymath`, which looks when it is imported, look in the cheap way."""
    if "numba.np.arraymath" in sys.modules or importlib.util.find_spec("scipy") is None:
        return
    linalg = importlib.import_module("numba.np.linalg")
    thorough = getattr(linalg, "ensure_blas", None)
    if thorough is None:  # Another numba than those that were tried: it looks as it likes.
        return
    linalg.ensure_blas = lambda: None  # type: ignore[attr-defined]
    try:
        importlib.import_module("numba.np.arraymath")
    finally:
        linalg.ensure_blas = thorough  # type: ignore[attr-defined]
