"""phi(x) = f(x, y*(x)), the leader's loss with the follower at its answer: written once.

Everything is a pure function over flat vectors, of one round (or of a *total* over many), that can
be compiled and vmapped. `flat = Flat(problem, x, y)` states a problem that way.

| asked for | taken |
|---|---|
| y*(x) of a round, and how exact it is | `answer(flat, x, round)` |
| y*(x) of many rounds' summed g | `solve_follower(flat, total, x)` |
| phi; grad phi | `reduced_value(flat, x, round)`, `reduced_gradient(flat, x, round)` |
| phi, its gradient and Hessian at (x, y*(x)) | `leader_model(flat, total, x, y)` |
| slope_x - J^T H^{-1} slope_y | `pulled_back(flat, total, x, y, slope_x, slope_y)` |
| products with Hess phi, matrix-free | `leader_products(flat, total, x, y)` |
| dy*/dx | `answer_slope(flat, total, x, y)` |
| sizes of derivatives; spectra | `sizes`, `leader_curvature`, `extreme_eigenvalues` |
| argmin over X: of a round, a stage, all rounds | `solve_round`, `solve_stage`, `solve_static` |
| any minimum | `minimise` (damped Newton; `newton_point`), `spectral` (projected gradient) |
| H^{-1} v from products with H | `solve_definite`, `conjugate_gradients` |
| a function of every round, in chunks | `flat.map_rounds`, `flat.sum_rounds` |
| `jit` that stays right under a wide `vmap` | `compiled` |

`one_round(round)` is the total of a single round. Tolerances, steps and chunks: `Solver`.
"""

from .flat import (
    Flat as Flat,
    Solver as Solver,
    compiled as compiled,
    length_of as length_of,
    norms as norms,
)
from .model import (
    Answer as Answer,
    answer as answer,
    answer_slope as answer_slope,
    leader_model as leader_model,
    leader_products as leader_products,
    one_round as one_round,
    pulled_back as pulled_back,
    reduced_gradient as reduced_gradient,
    reduced_value as reduced_value,
    solve_follower as solve_follower,
)
from .search import (
    Pair as Pair,
    check_round as check_round,
    curvature_noise as curvature_noise,
    solve_round as solve_round,
    solve_stage as solve_stage,
    solve_static as solve_static,
)
from .solve import (
    Minimum as Minimum,
    Model as Model,
    Scalar as Scalar,
    Vector as Vector,
    minimise as minimise,
    spectral as spectral,
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
from .step import (
    conjugate_gradients as conjugate_gradients,
    newton_point as newton_point,
    solve_definite as solve_definite,
)
