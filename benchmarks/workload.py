"""The problem that everything here is timed on, and obax's own way to play it.

Dynamic regression of Section 4.1: d1 = 1, d2 = 5, K = 10, T = 5,000, CG with 5 steps, float32.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import obax
from obax.problems import dynamic_regression

HORIZON = 5_000
OUTER_STEP_SIZE = 1e-2
INNER_STEP_SIZE = 5e-2
INNER_STEPS = 10
CG_STEPS = 5


def instance(horizon: int = HORIZON, seed: int = 0) -> Any:
    """The stream; its rounds are float32."""
    return dynamic_regression(horizon, seed=seed)


def oagd(
    problem: obax.Problem,
    window: int = 1,
    curvature: str = "own",
    *,
    outer_step_size: float = OUTER_STEP_SIZE,
    inner_steps: int = INNER_STEPS,
) -> obax.OAGD:
    """OAGD with the settings of this benchmark."""
    return obax.OAGD(
        problem,
        outer_step_size,
        INNER_STEP_SIZE,
        inner_steps,
        obax.Window(window, curvature=curvature),
        obax.hypergradient.CG(max_steps=CG_STEPS),
    )


def start(algorithm: obax.OAGD, stream: Any) -> Any:
    """The state before the first round."""
    return algorithm.init(stream.outer_var, stream.inner_var, stream.example_round)


def unstacked(rounds: Any, *, as_numpy: bool) -> list[Any]:
    """The rounds one by one, as a live source delivers them."""
    host = jax.tree.map(np.asarray, rounds)
    horizon = len(jax.tree.leaves(host)[0])
    as_leaf = np.asarray if as_numpy else jnp.asarray
    return [jax.tree.map(lambda leaf, t=t: as_leaf(leaf[t]), host) for t in range(horizon)]
