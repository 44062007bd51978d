"""What the theory promises: constants, prescribed steps and explicit bounds.

`Constants` holds what Assumptions 1 to 3 ask for and derives L_y, M_f, L_f.
Each of the five settings turns constants into steps that the algorithm takes directly and into a
bound with every constant written out. Bounds are the *corrected* ones; `printed_bound` is what the
paper prints. `docs/theory.md` lists where the two differ, and why.
"""

from .constants import Constants
from .convex import ConvexDynamic, ConvexStatic, convex_dynamic, convex_static
from .estimate import estimate_constants
from .nonconvex import NonconvexLocal, nonconvex_local
from .setting import InverseSqrtTime, InverseTime, LogarithmicInnerSteps, Setting
from .strongly_convex import (
    StronglyConvexDynamic,
    StronglyConvexStatic,
    strongly_convex_dynamic,
    strongly_convex_static,
)

__all__ = [
    "Constants",
    "ConvexDynamic",
    "ConvexStatic",
    "InverseSqrtTime",
    "InverseTime",
    "LogarithmicInnerSteps",
    "NonconvexLocal",
    "Setting",
    "StronglyConvexDynamic",
    "StronglyConvexStatic",
    "convex_dynamic",
    "convex_static",
    "estimate_constants",
    "nonconvex_local",
    "strongly_convex_dynamic",
    "strongly_convex_static",
]
