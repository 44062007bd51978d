"""The ready problems of `obax.problems`, scored by f_t(x_t, y*_t(x_t)) with y*_t in closed form."""

from collections.abc import Callable

import jax
import numpy as np

from ..._support.trees import PyTree
from ...algorithms import Info
from ...problem import Problem
from ...problems import (
    Instance,
    actor_critic,
    hyper_cleaning,
    hyper_representation,
    robust_regression,
    strategic_regression,
)
from ..framework.statistics import cumulative

# With the outer and inner scale of the grid's step sizes for each.
READY: dict[str, tuple[Callable[..., Instance], float, float]] = {
    "strategic": (strategic_regression, 1.0, 3.0),
    "actor-critic": (actor_critic, 0.1, 1.0),
    "cleaning": (hyper_cleaning, 10.0, 1.0),
    "representation": (hyper_representation, 0.3, 0.3),
    "robust": (robust_regression, 1.0, 3.0),
}
UNBOUNDED = 10.0
"""The loss of a decision without a finite value, in units of the best decision's loss."""


def answered(problem: Problem, of_seed: list[PyTree]) -> Callable[[Info], np.ndarray]:
    """Return the function that scores a history: cumulative f_t(x_t, y*_t(x_t))."""

    @jax.jit
    def losses(xs: PyTree, rounds: PyTree) -> jax.Array:
        def one(x: PyTree, round: PyTree) -> jax.Array:
            assert problem.inner_argmin is not None
            return problem.outer(x, problem.inner_argmin(x, round), round)

        return jax.vmap(one)(xs, rounds)

    def suffered(xs: PyTree, rounds: PyTree) -> np.ndarray:
        values = np.asarray(losses(xs, rounds))
        if "value" not in rounds:
            return values
        # A policy whose costs grow without bound has no value, even if the equation has a solution.
        least = np.asarray(rounds["value"])
        possible = np.isfinite(values) & (values >= least * (1 - 1e-4))
        return np.where(possible, values - least, UNBOUNDED * least)

    def score(history: Info) -> np.ndarray:
        settings = len(jax.tree.leaves(history.outer_var)[0])

        def of(setting: int, seed: int) -> PyTree:
            return jax.tree.map(lambda leaf: leaf[setting, seed], history.outer_var)

        return cumulative(
            [
                [suffered(of(setting, seed), rounds) for seed, rounds in enumerate(of_seed)]
                for setting in range(settings)
            ]
        )

    return score
