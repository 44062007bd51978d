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

import jax.numpy as jnp
import numpy as np
import scipy.linalg
from jaxtyping import Array, Float

from .._support import validation
from .._support.trees import PyTree
from .._support.typed import typed
from ..domain import Box
from ..problem import Problem
from .instance import Instance


@typed
def actor_critic(
    horizon: int,
    states: int = 2,
    controls: int = 1,
    *,
    discount: float = 0.9,
    growth: float = 1.0,
    drift: float = 0.3,
    period: int = 500,
    seed: int = 0,
) -> Instance:
    """A drifting linear-quadratic control problem, solved by an actor and a critic.

    **Arguments:**

    - `horizon`, `states`, `controls`: T, and the lengths of s and u.
    - `discount`: gamma.
    - `growth`: the spectral radius of A_t without drift.
    - `drift`: A_t turns around A by this part of its size, once in `period` rounds.
    - `seed`: of A, B and the direction of the drift.

    `rounds["policy"]` and `rounds["value"]` are x*_t and f_t(x*_t, y*), from the Riccati equation;
    the losses do not look at them. The leader's domain is a box of 2 around zero.
    """
    for value, name in ((horizon, "horizon"), (states, "states"), (controls, "controls")):
        validation.count(value, name)
    if not 0 < discount < 1:
        raise ValueError(f"discount must be between 0 and 1, but got {discount!r}.")
    rng = np.random.default_rng(seed)
    system = rng.standard_normal((states, states))
    system *= growth / np.abs(np.linalg.eigvals(system)).max()
    turn = rng.standard_normal((states, states))
    turn *= drift * np.linalg.norm(system) / np.linalg.norm(turn)
    angle = 2 * np.pi * np.arange(horizon) / validation.count(period, "period")
    A = system + np.sin(angle)[:, None, None] * turn
    B = np.broadcast_to(rng.standard_normal((states, controls)), (horizon, states, controls))
    best = [best_policy(a, b, discount) for a, b in zip(A, B, strict=True)]
    rounds = {
        "A": jnp.asarray(A, float),
        "B": jnp.asarray(B, float),
        "discount": jnp.full(horizon, discount, float),
        "policy": jnp.asarray(np.stack([policy for policy, _ in best]), float),
        "value": jnp.asarray(np.stack([np.trace(value) for _, value in best]), float),
    }
    problem = Problem(_outer, _inner, Box(-2.0, 2.0), _inner_argmin, _outer_argmin)
    critic = jnp.zeros(states * (states + 1) // 2)
    return Instance(problem, rounds, jnp.zeros((controls, states)), critic)


def best_policy(A: np.ndarray, B: np.ndarray, discount: float) -> tuple[np.ndarray, np.ndarray]:
    """x* and P*, by the Riccati equation of sqrt(gamma) A and sqrt(gamma) B, with Q = R = I."""
    a, b = np.sqrt(discount) * A, np.sqrt(discount) * B
    value = scipy.linalg.solve_discrete_are(a, b, np.eye(len(A)), np.eye(B.shape[1]))
    return np.linalg.solve(np.eye(B.shape[1]) + b.T @ value @ b, b.T @ value @ a), value


@typed
def critic_matrix(y: Array, states: int) -> Float[Array, "n n"]:
    """P of the entries on and above its diagonal."""
    upper = jnp.zeros((states, states), y.dtype).at[jnp.triu_indices(states)].set(y)
    return upper + upper.T - jnp.diag(jnp.diagonal(upper))


def _update(x: Array, value: Array, round: PyTree) -> Array:
    """What the Bellman equation makes of P."""
    closed = round["A"] - round["B"] @ x
    own = jnp.eye(closed.shape[0], dtype=x.dtype) + x.T @ x
    return own + round["discount"] * closed.T @ value @ closed


def _inner(x: Array, y: Array, round: PyTree) -> Array:
    value = critic_matrix(y, x.shape[1])
    return 0.5 * jnp.sum((value - _update(x, value, round)) ** 2)


def _outer(x: Array, y: Array, round: PyTree) -> Array:
    return jnp.trace(critic_matrix(y, x.shape[1]))


def _inner_argmin(x: Array, round: PyTree) -> Array:
    states = x.shape[1]
    closed = round["A"] - round["B"] @ x
    moved = round["discount"] * jnp.kron(closed.T, closed.T)
    own = jnp.eye(states, dtype=x.dtype) + x.T @ x
    system = jnp.eye(states**2, dtype=x.dtype) - moved
    value = jnp.linalg.solve(system, own.reshape(-1)).reshape(states, states)
    return value[jnp.triu_indices(states)]


def _outer_argmin(round: PyTree) -> Array:
    return round["policy"]
