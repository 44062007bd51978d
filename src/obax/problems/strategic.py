"""Strategic dynamic regression: the people who are scored respond to the scoring rule.

Harris, Heidari, Wu: *Stateful Strategic Regression*, NeurIPS 2021; Harris et al.: *Strategic
Instrumental Variable Regression*, ICML 2022. A rule x is published; people with features a spend
an effort y where it raises their score most for what it costs them, and show a + y:

    g_t(x, y) = c |y|^2 / 2 - x . y,                                      y*(x) = x / c
    f_t(x, y) = (1 / 2n) sum_i (x . (a_i + y) - b_i)^2,   b_i = theta_t . (a_i + G y) + noise_i

A part G of effort is genuine: it changes the outcome b and not the score alone. Where all of it is,
x = theta_t is without error; where none is, a good rule is weaker than theta_t.
"""

from typing import Annotated

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from .._support.checks import Count, NonNegative, Positive, Seed, checked, within
from .._support.trees import PyTree
from ..problem import Problem
from .instance import Instance, in_rounds, random_walk

Share = Annotated[float, within("between 0 and 1", lambda value: 0 <= value <= 1)]


@checked
def strategic_regression(
    horizon: Count,
    features: Count = 2,
    *,
    cost: Positive = 1.0,
    genuine: Share = 0.0,
    noise: NonNegative = 0.1,
    drift: NonNegative = 0.02,
    seed: Seed = 0,
) -> Instance:
    """Return a stream of people who respond to the rule that scores them.

    **Arguments:**

    - `horizon`, `features`: T, and the length of x, y and a_i.
    - `cost`: c, the cost of effort; for a large c this is plain regression.
    - `genuine`: G, the part of effort that changes the outcome, between 0 (all of it is gaming) and
      1.
    - `noise`: standard deviation of the outcomes.
    - `drift`: how far theta_t moves in a round, within the unit ball.

    The people of a round are 2 `features` in number, a_i = +-sqrt(d) times a turned basis, so that
    their features have mean 0 and covariance I, exactly. Without noise the best rule is then
    x* = r theta / |theta| with r the root of  r - |theta| + 2 r^3 / c^2 = 0  for G = 0, and theta
    for G = 1 (`strategic_rule`).

    >>> stream = strategic_regression(3)
    >>> print(stream.problem.inner_argmin(jnp.array([1.0, 2.0]), {"cost": jnp.array(2.0)}))
    [0.5 1. ]
    """
    rng = np.random.default_rng(seed)
    theta = random_walk(rng, horizon, features, drift, 1.0)
    basis = np.linalg.qr(rng.standard_normal((horizon, features, features)))[0]
    people = np.sqrt(features) * np.concatenate([basis, -basis], axis=1)
    errors = noise * rng.standard_normal(people.shape[:2])
    values = {"people": people, "theta": theta, "noise": errors, "cost": cost, "genuine": genuine}
    rounds = in_rounds(horizon, values)
    problem = Problem(_outer, _inner, inner_argmin=_inner_argmin)
    return Instance(problem, rounds, jnp.zeros(features), jnp.zeros(features))


def _inner(x: Array, y: Array, round: PyTree) -> Array:
    return 0.5 * round["cost"] * jnp.sum(y**2) - x @ y


def _outer(x: Array, y: Array, round: PyTree) -> Array:
    outcome = (round["people"] + round["genuine"] * y) @ round["theta"] + round["noise"]
    return 0.5 * jnp.mean(((round["people"] + y) @ x - outcome) ** 2)


def _inner_argmin(x: Array, round: PyTree) -> Array:
    return x / round["cost"]


@checked
def strategic_rule(theta: np.ndarray, cost: Positive, genuine: float) -> np.ndarray:
    """Return the best rule without noise, for G = 0 or G = 1."""
    if genuine not in (0, 1):
        raise ValueError(f"genuine must be 0 or 1 for a closed form, but got {genuine!r}.")
    size = float(np.linalg.norm(theta))
    if genuine == 1 or size == 0:
        return np.asarray(theta)
    roots = np.roots([2 / cost**2, 0, 1, -size])
    (length,) = roots[np.abs(roots.imag) < 1e-9].real
    return np.asarray(theta) * length / size
