"""The ready problems as streams to compare on: judged by what the leader's decisions cost once the
follower has answered, f_t(x_t, y*_t(x_t)), which all of them know in closed form."""

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
from ..kit.curves import cumulative

# Outer and inner scale of the grid's step sizes beside each.
READY: dict[str, tuple[Callable[..., Instance], float, float]] = {
    "strategic": (strategic_regression, 1.0, 3.0),
    "actor-critic": (actor_critic, 0.1, 1.0),
    "cleaning": (hyper_cleaning, 10.0, 1.0),
    "representation": (hyper_representation, 0.3, 0.3),
    "robust": (robust_regression, 1.0, 3.0),
}
UNBOUNDED = 10.0
"""What a decision without a finite value counts, in units of the best one's."""


def answered(problem: Problem, of_seed: list[PyTree]) -> Callable[[Info], np.ndarray]:
    """The score: cumulative f_t(x_t, y*_t(x_t)) of every setting and seed."""

    @jax.jit
    def losses(xs: PyTree, rounds: PyTree) -> jax.Array:
        def one(x: PyTree, round: PyTree) -> jax.Array:
            assert problem.inner_argmin is not None
            return problem.outer(x, problem.inner_argmin(x, round), round)

        return jax.vmap(one)(xs, rounds)

    def suffered(xs: PyTree, rounds: PyTree) -> np.ndarray:
        found = np.asarray(losses(xs, rounds))
        if "value" not in rounds:
            return found
        # A policy under which costs grow without bound has no value, whatever the equation says.
        least = np.asarray(rounds["value"])
        possible = np.isfinite(found) & (found >= least * (1 - 1e-4))
        return np.where(possible, found - least, UNBOUNDED * least)

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
