"""Online meta-learning: the paper's OAGD, and the adaptation of its leader to a task."""

import jax.numpy as jnp
import optax

from ._support.checks import Arrays, Count, Positive, checked
from ._support.trees import PyTree
from .algorithms.arguments import StepSize
from .algorithms.descent import Follower, Steps
from .algorithms.itd import ITD
from .algorithms.oagd import OAGD
from .hypergradient import Neumann
from .problems.meta_learning import Features, Part, batch_features, meta_learning
from .window import Window


@checked
def prox_linear(
    step_size: Positive,
    outer_step_size: StepSize | None = None,
    *,
    window: Count | Window = 10,
    outer_optimiser: optax.GradientTransformation | None = None,
    part: Part = "all",
    features: Features = batch_features,
) -> OAGD:
    """Return OAGD with the paper's closed-form follower, u = x - beta grad L(x; support).

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
    beta = float(step_size)
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


@checked
def adapt(algorithm: OAGD | ITD, outer_var: Arrays, round: Arrays) -> PyTree:
    """Return y, the follower of this algorithm after its steps on a round.

    It starts from `problem.inner_start`; the step size and number of steps are those of round 1. In
    meta-learning it is the leader's model adapted to the support of a task, without the query.
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
