"""Constants, prescribed steps and explicit bounds of the theorems.

`Constants` holds the constants of Assumptions 1 to 3 and derives L_y, M_f, L_f.
Each of the five settings derives from them steps that the algorithm takes directly and a bound with
every constant written out. Bounds are the *corrected* ones; `printed_bound` is the one printed in
the paper. `docs/theory.md` lists where the two differ, and why. `DiscountedRidge` and
`SharedMixture` do the same for the streaming models of `obax.estimators`.
"""

from .constants import Constants as Constants
from .convex import (
    ConvexDynamic as ConvexDynamic,
    ConvexStatic as ConvexStatic,
    convex_dynamic as convex_dynamic,
    convex_static as convex_static,
)
from .estimate import estimate_constants as estimate_constants
from .nonconvex import NonconvexLocal as NonconvexLocal, nonconvex_local as nonconvex_local
from .setting import (
    InverseSqrtTime as InverseSqrtTime,
    InverseTime as InverseTime,
    LogarithmicInnerSteps as LogarithmicInnerSteps,
    Setting as Setting,
)
from .streaming import (
    DiscountedRidge as DiscountedRidge,
    SharedMixture as SharedMixture,
)
from .strongly_convex import (
    StronglyConvexDynamic as StronglyConvexDynamic,
    StronglyConvexStatic as StronglyConvexStatic,
    strongly_convex_dynamic as strongly_convex_dynamic,
    strongly_convex_static as strongly_convex_static,
)
