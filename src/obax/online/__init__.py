"""Playing an algorithm: over a recorded horizon, over a live stream, over many settings at once.

`run` is one compiled scan, `play` one compiled step called again and again, `sweep` a scan under
`vmap`. All three play the same `algorithm.step`.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .._support.sharding import ProcessError as ProcessError
    from .diagnostics import (
        HypergradientWarning as HypergradientWarning,
        RefusedTermWarning as RefusedTermWarning,
        RejectedRoundError as RejectedRoundError,
    )
    from .mesh import collect as collect
    from .playing import Play as Play, play as play
    from .running import run as run
    from .sweeping import sweep as sweep
else:
    from .._support.names import lazy_names

    __all__, __getattr__, __dir__ = lazy_names(__name__)
