"""phi(x) = f(x, y*(x)), the leader's loss with the follower at its optimum, and its minima.

All functions are pure functions of flat vectors that can be compiled and vmapped. A problem is
stated as `flat = FlatProblem(problem, x, y)`; settings and chunk sizes are in `Solver`.

| quantity | call |
|---|---|
| y*(x) of a round, and its residual | `answer(flat, x, round)` |
| y*(x) of the summed g of many rounds | `solve_follower(flat, total, x)` |
| whether g is strongly convex around y*(x) | `convexity(flat, x, y, round)` |
| the point (x, y*(x)) of a round | `point = at_answer(flat, x, round)` |
| phi; grad phi; both with the Hessian | `point.value()`, `point.gradient()`, `point.model()` |
| slope_x - J^T H^{-1} slope_y; dy*/dx | `point.pull_back(...)`, `point.answer_slope()` |
| norms of derivatives; spectra | `sizes`, `leader_curvature`, `extreme_eigenvalues` |
| argmin over X of a round, a stage, all rounds | `solve_round`, `solve_stage`, `solve_static` |
| any minimum | `minimise` (damped Newton), `spectral` (projected gradient) |
| H^{-1} v from products with H | `solve_definite`, `conjugate_gradients` |
| a function of every round, in chunks | `flat.map_rounds`, `flat.sum_rounds` |
| a `jit` that is right under a wide `vmap` | `compiled` |
"""

from .linear import conjugate_gradients as conjugate_gradients, solve_definite as solve_definite
from .minimise import (
    Minimum as Minimum,
    Model as Model,
    Scalar as Scalar,
    Vector as Vector,
    minimise as minimise,
    spectral as spectral,
)
from .newton import newton_point as newton_point
from .point import (
    Answer as Answer,
    Convexity as Convexity,
    Point as Point,
    answer as answer,
    at_answer as at_answer,
    convexity as convexity,
    one_round as one_round,
    solve_follower as solve_follower,
)
from .problem import (
    FlatProblem as FlatProblem,
    Solver as Solver,
    compiled as compiled,
    length_of as length_of,
    norms as norms,
)
from .search import (
    Pair as Pair,
    check_round as check_round,
    curvature_noise as curvature_noise,
    solve_round as solve_round,
    solve_stage as solve_stage,
    solve_static as solve_static,
)
from .spectra import (
    LeaderCurvature as LeaderCurvature,
    Sizes as Sizes,
    extreme_eigenvalues as extreme_eigenvalues,
    leader_curvature as leader_curvature,
    sizes as sizes,
    spectral_norm as spectral_norm,
    third_derivative as third_derivative,
)
