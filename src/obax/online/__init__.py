"""Playing an algorithm: over a recorded horizon, over a live stream, over many settings at once.

`run` is one compiled scan, `play` one compiled step called again and again, `sweep` a scan under
`vmap`. All three play the same `algorithm.step`.
"""

from .._support.sharding import ProcessError as ProcessError
from .diagnostics import (
    HypergradientWarning as HypergradientWarning,
    RefusedTermWarning as RefusedTermWarning,
    RejectedRoundError as RejectedRoundError,
)
from .mesh import collect as collect
from .play import Play as Play, play as play
from .run import run as run
from .sweep import sweep as sweep
