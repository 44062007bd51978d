"""For online meta-learning: the paper's OAGD ready made, and what its leader is worth on a task."""

import jax.numpy as jnp
import optax

from ._support import validation
from ._support.trees import PyTree
from ._support.typed import typed
from .algorithms.descent import Follower, Number, Steps
from .algorithms.itd import ITD
from .algorithms.oagd import OAGD
from .hypergradient import Neumann
from .problems.meta_learning import Features, batch_features, meta_learning
from .window import Window


@typed
def prox_linear(
    step_size: float,
    outer_step_size: Number | None = None,
    *,
    window: int | Window = 10,
    outer_optimiser: optax.GradientTransformation | None = None,
    part: str = "all",
    features: Features = batch_features,
) -> OAGD:
    """OAGD with the paper's closed-form follower, u = x - beta grad L(x; support).

    Each task of the window gets its own follower. The hypergradient, the window's mean of
    (I - beta Hessian L(x; support)) grad L(u; query), is exact and costs one Hessian-vector product
    per task: the inner problem's own curvature is I / beta, so one Neumann term of step beta solves
    its system.

    **Arguments:**

    - `step_size`: beta > 0.
    - `outer_step_size`, `outer_optimiser`: as in `obax.OAGD`.
    - `window`: w, or a `Window`; w stands for `Window(w, follower="each", normalise="seen",
      chunk=1)`.
    - `part`, `features`: as in `obax.problems.meta_learning`.

    The state before the first round is `algorithm.init(model, model, example_task)`, or with
    `part="head"` `algorithm.init(model, model.head, example_task)`.
    """
    beta = float(validation.positive_number(step_size, "step_size"))
    if not isinstance(window, Window):
        window = Window(window, follower="each", normalise="seen", chunk=1)
    problem = meta_learning("prox-linear", part=part, step_size=beta, features=features)
    return OAGD(
        problem,
        outer_step_size,
        beta,
        window=window,
        hypergradient=Neumann(terms=1, step_size=beta),
        outer_optimiser=outer_optimiser,
    )


@typed
def adapt(algorithm: OAGD | ITD, outer_var: PyTree, round: PyTree) -> PyTree:
    """y, what the follower of this algorithm makes of a round, started where the problem says.

    The step size and number of steps are those of round 1. In meta-learning: the leader's model
    adapted to the support of a task, the query not looked at.
    """
    problem = algorithm.problem
    if problem.inner_start is None or problem.inner is None:
        raise ValueError(
            "algorithm must be for a problem with inner_start, from which a new follower starts, "
            "such as one of obax.problems.meta_learning."
        )
    first = jnp.asarray(1, jnp.int32)
    prepare = algorithm.prepare if isinstance(algorithm, ITD) else None
    task = round if prepare is None else prepare(outer_var, round)
    inner_var = problem.inner_start(outer_var)
    start = Follower(inner_var, algorithm.inner.init(inner_var), None)
    steps = Steps(algorithm.inner_steps).at(first)
    return algorithm.learn(outer_var, start, task, first, steps).inner_var
