"""Online actor-critic on a drifting linear-quadratic problem: leader policy, follower critic.

A system s' = A_t s + B_t u is driven by the policy u = -x s and costs s . Q s + u . R u in a step,
discounted by gamma. The critic values a policy by V(s) = s . P s, where P answers the Bellman
equation

    P = Q + x' R x + gamma (A - B x)' P (A - B x),

and the actor wants a small value of the states it starts from, with covariance S:

    g_t(x, y) = |P(y) - Q - x' R x - gamma (A_t - B_t x)' P(y) (A_t - B_t x)|^2 / 2,
    f_t(x, y) = trace(P(y) S).

y has the entries of P on and above its diagonal. The hypergradient is the policy gradient with an
exact critic; the best policy x*_t comes from the discrete algebraic Riccati equation.
"""

from typing import Annotated

import jax.numpy as jnp
import numpy as np
import scipy.linalg
from jaxtyping import Array, Float

from .._support.checks import Count, NonNegative, Positive, Seed, checked, within
from .._support.trees import PyTree
from ..domain import Box
from ..problem import Problem
from .instance import Instance, in_rounds


@checked
def actor_critic(
    horizon: Count,
    states: Count = 2,
    controls: Count = 1,
    *,
    discount: Annotated[float, within("between 0 and 1", lambda value: 0 < value < 1)] = 0.9,
    growth: Positive = 1.0,
    drift: NonNegative = 0.3,
    period: Count = 500,
    seed: Seed = 0,
) -> Instance:
    """Return a drifting linear-quadratic control problem for an actor and a critic.

    **Arguments:**

    - `horizon`, `states`, `controls`: T, and the lengths of s and u.
    - `discount`: gamma.
    - `growth`: the spectral radius of A_t without drift.
    - `drift`: A_t turns around A by this part of its size, once in `period` rounds.
    - `seed`: of A, B and the direction of the drift.

    `rounds["policy"]` and `rounds["value"]` are x*_t and f_t(x*_t, y*), from the Riccati equation;
    the losses do not look at them. The leader's domain is a box of 2 around zero.
    """
    rng = np.random.default_rng(seed)
    system = rng.standard_normal((states, states))
    system *= growth / np.abs(np.linalg.eigvals(system)).max()
    turn = rng.standard_normal((states, states))
    turn *= drift * np.linalg.norm(system) / np.linalg.norm(turn)
    angle = 2 * np.pi * np.arange(horizon) / period
    A = system + np.sin(angle)[:, None, None] * turn
    B = np.broadcast_to(rng.standard_normal((states, controls)), (horizon, states, controls))
    best = [best_policy(a, b, discount) for a, b in zip(A, B, strict=True)]
    values = {"A": A, "B": B, "discount": discount}
    values["policy"] = np.stack([policy for policy, _ in best])
    values["value"] = np.stack([np.trace(value) for _, value in best])
    problem = Problem(_outer, _inner, Box(-2.0, 2.0), _inner_argmin, _outer_argmin)
    critic = jnp.zeros(states * (states + 1) // 2)
    return Instance(problem, in_rounds(horizon, values), jnp.zeros((controls, states)), critic)


def best_policy(A: np.ndarray, B: np.ndarray, discount: float) -> tuple[np.ndarray, np.ndarray]:
    """Return x* and P*, from the Riccati equation of sqrt(gamma) A and sqrt(gamma) B, Q = R = I."""
    a, b = np.sqrt(discount) * A, np.sqrt(discount) * B
    value = scipy.linalg.solve_discrete_are(a, b, np.eye(len(A)), np.eye(B.shape[1]))
    return np.linalg.solve(np.eye(B.shape[1]) + b.T @ value @ b, b.T @ value @ a), value


@checked
def critic_matrix(y: Array, states: int) -> Float[Array, "n n"]:
    """Return P, from its entries on and above the diagonal."""
    upper = jnp.zeros((states, states), y.dtype).at[jnp.triu_indices(states)].set(y)
    return upper + upper.T - jnp.diag(jnp.diagonal(upper))


def _update(x: Array, value: Array, round: PyTree) -> Array:
    """Return the right-hand side of the Bellman equation for P."""
    closed_loop = round["A"] - round["B"] @ x
    cost = jnp.eye(closed_loop.shape[0], dtype=x.dtype) + x.T @ x
    return cost + round["discount"] * closed_loop.T @ value @ closed_loop


def _inner(x: Array, y: Array, round: PyTree) -> Array:
    value = critic_matrix(y, x.shape[1])
    return 0.5 * jnp.sum((value - _update(x, value, round)) ** 2)


def _outer(x: Array, y: Array, round: PyTree) -> Array:
    return jnp.trace(critic_matrix(y, x.shape[1]))


def _inner_argmin(x: Array, round: PyTree) -> Array:
    states = x.shape[1]
    closed_loop = round["A"] - round["B"] @ x
    next_value = round["discount"] * jnp.kron(closed_loop.T, closed_loop.T)
    cost = jnp.eye(states, dtype=x.dtype) + x.T @ x
    system = jnp.eye(states**2, dtype=x.dtype) - next_value
    value = jnp.linalg.solve(system, cost.reshape(-1)).reshape(states, states)
    return value[jnp.triu_indices(states)]


def _outer_argmin(round: PyTree) -> Array:
    return round["policy"]
