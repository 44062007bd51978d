"""Streams of samples from linear models that drift or differ.

They are hyper-cleaning, robust and strategic regression, and features that tasks share.
"""

from typing import Annotated

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._support.checks import Count, NonNegative, Positive, Seed, checked, within
from .._support.trees import PyTree
from ..domain import Ball, Box, Simplex
from ..problem import Problem
from .instance import Instance, in_rounds, linear_samples, random_walk, squared_error

Share = Annotated[float, within("between 0 and 1", lambda value: 0 <= value <= 1)]


@checked
def hyper_cleaning(
    horizon: Count,
    sources: Count = 10,
    bad: int = 4,
    features: Count = 5,
    *,
    samples: Count = 4,
    clean: Count = 10,
    noise: NonNegative = 0.3,
    ridge: Positive = 0.01,
    drift: NonNegative = 0.01,
    seed: Seed = 0,
) -> Instance:
    """Return a stream from several sources, some of which report targets of the wrong sign.

    Every round has samples from several sources, some of which are wrong, and a few clean samples
    for validation. The leader weights the sources, the follower learns from the weighted samples:

        g_t(x, y) = (1 / 2n) sum_i s(x_{k_i}) (a_i . y - b_i)^2 + (ridge / 2) |y|^2,  s the sigmoid
        f_t(y)    = (1 / 2m) sum_j (a_j . y - b_j)^2    on the clean samples.

    Franceschi et al. (2017) and Shaban et al. (2019) do this offline, with a weight for each
    sample.

    **Arguments:**

    - `horizon`, `sources`, `features`: T, the length of x, and that of y.
    - `bad`: how many sources, the last ones, report -b in place of b.
    - `samples`, `clean`: of each source in a round, and of clean ones.
    - `noise`, `ridge`: standard deviation of the targets, and the follower's penalty.
    - `drift`: how far the true model moves in a round, within a ball of radius 2.

    >>> stream = hyper_cleaning(3, sources=3, bad=1)
    >>> print(jax.tree.map(lambda leaf: leaf.shape, stream.rounds["training"]))
    ((3, 12, 5), (3, 12), (3, 12))
    """
    if not 0 <= bad <= sources:
        raise ValueError(f"bad must be between 0 and sources = {sources}, but got {bad!r}.")
    rng = np.random.default_rng(seed)
    model = random_walk(rng, horizon, features, drift, 2.0)
    source = np.repeat(np.arange(sources), samples)
    a, b = linear_samples(rng, model, len(source), noise)
    b = np.where(source >= sources - bad, -b, b)
    validation = linear_samples(rng, model, clean, noise)
    values = {"training": (a, b), "validation": validation, "ridge": ridge}
    rounds = in_rounds(horizon, values)
    rounds["training"] += (jnp.asarray(np.tile(source, (horizon, 1))),)
    problem = Problem(_clean_error, _weighted_error, Box(-6.0, 6.0), _weighted_fit)
    return Instance(problem, rounds, jnp.zeros(sources), jnp.zeros(features))


def _weighted_error(x: Array, y: Array, round: PyTree) -> Array:
    a, b, source = round["training"]
    fit = 0.5 * jnp.mean(jax.nn.sigmoid(x)[source] * (a @ y - b) ** 2)
    return fit + 0.5 * round["ridge"] * jnp.sum(y**2)


def _clean_error(x: Array, y: Array, round: PyTree) -> Array:
    return squared_error(y, round["validation"])


def _weighted_fit(x: Array, round: PyTree) -> Array:
    a, b, source = round["training"]
    weighted = a * (jax.nn.sigmoid(x)[source] / len(b))[:, None]
    gram = weighted.T @ a + round["ridge"] * jnp.eye(a.shape[1], dtype=a.dtype)
    return jnp.linalg.solve(gram, weighted.T @ b)


@checked
def robust_regression(
    horizon: Count,
    groups: Count = 4,
    features: Count = 3,
    *,
    samples: Count = 20,
    spread: NonNegative = 1.0,
    noise: NonNegative = 0.1,
    rho: Positive = 0.5,
    ridge: Positive = 0.01,
    drift: NonNegative = 0.01,
    seed: Seed = 0,
) -> Instance:
    """Return a stream of samples from groups whose linear models differ.

    Group-DRO (Sagawa et al., 2020), online. With l_k the mean squared error on group k of the
    round, the leader fits x and the follower weights the groups to make its loss large, on the
    simplex:

        f_t(x, y) = sum_k y_k l_k(x) - (rho / 2) |y - 1/K|^2 + (ridge / 2) |x|^2,    g_t = -f_t,
        y*(x) = projection on the simplex of  1/K + l(x) / rho.

    With a large rho all groups count alike, with a small one only the worst does. Groups with a
    small loss have y_k = 0: the follower is on a face of the simplex and moves along it only.

    **Arguments:**

    - `horizon`, `groups`, `features`: T, K, and the length of x.
    - `samples`: of each group in a round.
    - `spread`: how far a group's own model is from the common one; the common one drifts by `drift`
      in a round.
    - `noise`: standard deviation of the targets.
    - `rho`, `ridge`: how strongly the groups' weights are drawn to 1/K, and x to 0.

    >>> stream = robust_regression(2)
    >>> round = {"a": jnp.ones((4, 1, 3)), "b": jnp.array([[0.0], [0.0], [0.0], [2.0]])}
    >>> round |= {"rho": jnp.asarray(2.0), "ridge": jnp.asarray(0.0)}
    >>> print(stream.problem.inner_argmin(jnp.zeros(3), round))
    [0. 0. 0. 1.]
    """
    rng = np.random.default_rng(seed)
    own = spread * rng.standard_normal((groups, features))
    models = random_walk(rng, horizon, features, drift, 1.0)[:, None] + own
    a, b = linear_samples(rng, models, samples, noise)
    rounds = in_rounds(horizon, {"a": a, "b": b, "rho": rho, "ridge": ridge})
    problem = Problem(_minmax, _maxmin, inner_argmin=_worst_groups, inner_domain=Simplex())
    return Instance(problem, rounds, jnp.zeros(features), jnp.full(groups, 1 / groups, float))


def group_losses(x: Array, round: PyTree) -> Float[Array, " groups"]:
    """Return l_k(x), half the mean squared error on each group."""
    return 0.5 * jnp.mean((round["a"] @ x - round["b"]) ** 2, axis=1)


def _minmax(x: Array, y: Array, round: PyTree) -> Array:
    pull = 0.5 * round["rho"] * jnp.sum((y - 1 / y.size) ** 2)
    return y @ group_losses(x, round) - pull + 0.5 * round["ridge"] * jnp.sum(x**2)


def _maxmin(x: Array, y: Array, round: PyTree) -> Array:
    return -_minmax(x, y, round)


def _worst_groups(x: Array, round: PyTree) -> Array:
    losses = group_losses(x, round)
    return Simplex().project(1 / losses.size + losses / round["rho"])


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

    Harris, Heidari, Wu: *Stateful Strategic Regression*, NeurIPS 2021; Harris et al.: *Strategic
    Instrumental Variable Regression*, ICML 2022. A rule x is published; people with features a
    spend an effort y where it raises their score most for what it costs them, and show a + y:

        g_t(x, y) = c |y|^2 / 2 - x . y,                                      y*(x) = x / c
        f_t(x, y) = (1 / 2n) sum_i (x . (a_i + y) - b_i)^2,   b_i = theta_t . (a_i + G y) + noise_i

    A part G of effort is genuine: it changes the outcome b and not the score alone. Where all of it
    is, x = theta_t is without error; where none is, a good rule is weaker than theta_t.

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
    problem = Problem(_score_error, _effort, inner_argmin=_best_effort)
    return Instance(problem, rounds, jnp.zeros(features), jnp.zeros(features))


def _effort(x: Array, y: Array, round: PyTree) -> Array:
    return 0.5 * round["cost"] * jnp.sum(y**2) - x @ y


def _score_error(x: Array, y: Array, round: PyTree) -> Array:
    outcome = (round["people"] + round["genuine"] * y) @ round["theta"] + round["noise"]
    return 0.5 * jnp.mean(((round["people"] + y) @ x - outcome) ** 2)


def _best_effort(x: Array, round: PyTree) -> Array:
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


@checked
def hyper_representation(
    horizon: Count,
    inputs: Count = 10,
    features: Count = 2,
    *,
    support: Count = 6,
    query: Count = 20,
    noise: NonNegative = 0.1,
    ridge: Positive = 0.1,
    seed: Seed = 0,
) -> Instance:
    """Return a stream of small tasks, each with fewer samples than inputs, that share features.

    Every round is a task of its own, b = h_t . (T' a) + noise with a teacher T that all tasks share
    and a head h_t that is new. With features x' a, linear, and a ridge head,

        g_t(x, y) = (1 / 2n) sum_i (y . x' a_i - b_i)^2 + (ridge / 2) |y|^2    on the support,
        f_t(x, y) = (1 / 2m) sum_j (y . x' a_j - b_j)^2                        on the query.

    What can be learned is the space that T spans: `subspace_error` is the distance of x from it.

    **Arguments:**

    - `horizon`, `inputs`, `features`: T, and the shape of x; y has `features` entries.
    - `support`, `query`: samples of a task, for training and for validation.
    - `noise`, `ridge`: standard deviation of the targets, and the follower's penalty.
    - `seed`: of the teacher, the tasks and x_1. The leader stays in a ball of radius 10, because
      the loss does not change if x grows and y shrinks by the same factor.

    `rounds["teacher"]` is an orthonormal basis of the shared space; the losses do not use it.

    >>> stream = hyper_representation(3)
    >>> teacher = stream.rounds["teacher"][0]
    >>> round(float(subspace_error(teacher @ jnp.array([[2.0, 1.0], [0.0, 1.0]]), teacher)), 6)
    0.0
    """
    if features > inputs:
        raise ValueError(f"features must be at most inputs = {inputs}, but got {features!r}.")
    rng = np.random.default_rng(seed)
    teacher = np.linalg.qr(rng.standard_normal((inputs, features)))[0]
    heads = rng.standard_normal((horizon, features))

    def draw(count: int) -> tuple[np.ndarray, np.ndarray]:
        a = rng.standard_normal((horizon, count, inputs))
        b = np.einsum("tni,ih,th->tn", a, teacher, heads)
        return a, b + noise * rng.standard_normal(b.shape)

    values = {"support": draw(support), "query": draw(query), "ridge": ridge}
    values["teacher"] = np.broadcast_to(teacher, (horizon, *teacher.shape))
    start = jnp.asarray(np.linalg.qr(rng.standard_normal((inputs, features)))[0], float)
    problem = Problem(_on_query, _on_support, Ball(10.0), _best_head)
    return Instance(problem, in_rounds(horizon, values), start, jnp.zeros(features))


def _on_support(x: Array, y: Array, round: PyTree) -> Array:
    a, b = round["support"]
    return squared_error(y, (a @ x, b)) + 0.5 * round["ridge"] * jnp.sum(y**2)


def _on_query(x: Array, y: Array, round: PyTree) -> Array:
    a, b = round["query"]
    return squared_error(y, (a @ x, b))


def _best_head(x: Array, round: PyTree) -> Array:
    a, b = round["support"]
    features = a @ x
    gram = features.T @ features / len(b) + round["ridge"] * jnp.eye(x.shape[1], dtype=x.dtype)
    return jnp.linalg.solve(gram, features.T @ b / len(b))


@checked
def subspace_error(x: Array, teacher: Array) -> Array:
    """Return the sine of the largest angle between the spaces that two matrices span.

    It is 0 if they are equal, 1 if a direction of one is orthogonal to the other.
    """
    basis, true_basis = jnp.linalg.qr(x)[0], jnp.linalg.qr(teacher)[0]
    return jnp.linalg.norm(true_basis - basis @ (basis.T @ true_basis), ord=2)
