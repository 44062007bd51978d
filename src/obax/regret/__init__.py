"""How far the leader was from the best in hindsight, and how hard the sequence was.

| question | function |
|---|---|
| against the best decision of every round? | `dynamic` |
| against the best fixed decision? | `static`; on part of the rounds: `interval` |
| against one decision and one model for each segment? | `staged` |
| with the losses as they were suffered? | `played` |
| is the leader near a stationary point of the recent losses? | `local`, `local_past` |
| and if a constraint holds it back? | `projected` |
| how much did the problem move? | `path_lengths`, `variations` |
| what does a bound of `obax.theory` ask for? | `bound_arguments` |

Decisions are arrays or the whole history of a run. Comparators (`inner_solution`,
`outer_solutions`, `static_solution`, `stage_solutions`) carry the residuals that they reached and
the curvature where they came to rest. This room sees problems and trajectories, never algorithms.
"""

from ..reduced import Solver as Solver
from .comparators import (
    inner_solution as inner_solution,
    outer_solutions as outer_solutions,
    stage_solutions as stage_solutions,
    static_solution as static_solution,
)
from .local import local as local, local_past as local_past, projected as projected
from .paths import (
    LowerEstimateWarning as LowerEstimateWarning,
    PathLengths as PathLengths,
    Variations as Variations,
    bound_arguments as bound_arguments,
    path_lengths as path_lengths,
    path_of as path_of,
    variations as variations,
)
from .regrets import (
    dynamic as dynamic,
    interval as interval,
    played as played,
    staged as staged,
    static as static,
)
from .results import (
    Comparator as Comparator,
    ComparatorWarning as ComparatorWarning,
    RegretCurve as RegretCurve,
    RegretCurves as RegretCurves,
)
