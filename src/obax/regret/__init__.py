"""Regret of the leader against the best in hindsight, and path lengths of the sequence.

| question | function |
|---|---|
| against the best decision of every round? | `dynamic` |
| against the best fixed decision? | `static`; on part of the rounds: `interval` |
| against one decision and one model for each segment? | `staged` |
| with the losses as they were suffered? | `played` |
| is the leader near a stationary point of the recent losses? | `local`, `local_past` |
| and if a constraint holds it back? | `projected` |
| any of these, for every setting of a sweep? | `sweep`; `check` what comes out of `jax.vmap` |
| how much did the problem move? | `path_lengths`, `variations` |
| what does a bound of `obax.theory` ask for? | `bound_arguments` |

Decisions are arrays or the whole history of a run. Comparators (`inner_solution`,
`outer_solutions`, `static_solution`, `stage_solutions`) carry their residuals and curvatures. This
package sees problems and trajectories, never algorithms.
"""

from ..implicit import Solver as Solver
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
    sweep as sweep,
)
from .results import (
    Comparator as Comparator,
    ComparatorWarning as ComparatorWarning,
    FollowerWarning as FollowerWarning,
    RegretCurve as RegretCurve,
    RegretCurves as RegretCurves,
    SeveralMinimaWarning as SeveralMinimaWarning,
    check as check,
)
