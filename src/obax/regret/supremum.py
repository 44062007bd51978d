r"""Suprema over X of a change from one round to the next, exact where that can be proved.

$|y^*_{t-1}(x) - y^*_t(x)|$ is convex in x when both answers are affine. Then it is the same for
all x if their slopes agree, infinite on an unbounded X if they do not, and otherwise largest at a
vertex of X. An answer is affine if the program of its derivative does not use x; samples prove
nothing. In all other cases X is searched at random: a lower estimate.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.interpreters.partial_eval import dce_jaxpr
from jaxtyping import Array, Float

from .._support.trees import PyTree
from ..domain import Box, NonNegative, Simplex, Unconstrained
from ..implicit import FlatProblem, Scalar, Vector, answer, at_answer, compiled
from .results import Comparator
from .setup import Setup, as_vectors, entry, some

# 2^12: a box with more corners is searched instead.
MOST_VERTICES = 4096
SEED, SAMPLES, LOCAL_SAMPLES = 0, 64, 16

Objective = Callable[[Vector, PyTree, PyTree], Scalar]


def inner_variation(
    setup: Setup, comparators: Comparator, samples: int
) -> tuple[Float[Array, " T-1"], bool]:
    """Return sup_x |y*_{t-1}(x) - y*_t(x)| for t = 2..T, and whether it is exact."""
    flat = setup.flat()
    if not flat.has_follower or setup.horizon == 1:
        return jnp.zeros(setup.horizon - 1, flat.dtype), True
    if flat.dense and affine_answers(flat, entry(setup.rounds, 0)):
        change, parallel = _affine(setup)
        if can_be_exact(flat) or bool(parallel):
            return change, True
    return _searched(setup, points_of(comparators), samples), False


def points_of(comparators: Comparator) -> Float[Array, "n d1"]:
    """Return some of the comparators, spread over the rounds, as vectors."""
    return as_vectors(some(comparators.outer_var, 16))


@compiled
def _affine(setup: Setup) -> tuple[Array, Array]:
    return affine_supremum(setup.flat(), setup.rounds)


@compiled
def _searched(setup: Setup, around: Array, samples: int) -> Array:
    flat = setup.flat()

    def change(x: Vector, before: PyTree, now: PyTree) -> Scalar:
        return jnp.linalg.norm(answer(flat, x, before).y - answer(flat, x, now).y)

    return searched_supremum(flat, change, setup.rounds, around, samples)


def affine_answers(flat: FlatProblem, example: PyTree) -> bool:
    """Return whether every y*_t is proved to be affine in x: a sufficient test on the program."""
    if flat.closed:
        return not _uses_first(jax.jacfwd(flat.closed_answer), 1, flat.start, example)

    def second_derivatives(x: Vector, y: Vector, round: PyTree) -> Any:
        slope = jax.grad(flat.inner, 1)
        return jax.jacfwd(slope, 0)(x, y, round), jax.jacfwd(slope, 1)(x, y, round)

    return not _uses_first(second_derivatives, 2, flat.start, flat.inner_start, example)


def can_be_exact(flat: FlatProblem) -> bool:
    """Return whether the supremum of a convex function over the domain is computed exactly."""
    domain = flat.problem.domain
    if isinstance(domain, Box):
        return 2**flat.outer_dim <= MOST_VERTICES
    return isinstance(domain, Simplex | Unconstrained | NonNegative)


def affine_supremum(flat: FlatProblem, rounds: PyTree) -> tuple[Float[Array, " T-1"], Array]:
    """Return sup_x |y*_{t-1}(x) - y*_t(x)| for t = 2..T for affine answers, and whether all slopes
    agree, in which case it is exact on any domain."""
    x = flat.project(flat.start)

    def line(round: PyTree) -> tuple[Vector, Array]:
        point = at_answer(flat, x, round)
        if flat.closed:
            return point.y, jax.jacfwd(flat.closed_answer)(x, round)
        return point.y, point.answer_slope()

    answers, slopes = flat.map_rounds(line, rounds)
    gap, turn = answers[1:] - answers[:-1], slopes[1:] - slopes[:-1]
    size = jnp.max(jnp.abs(slopes[1:]) + jnp.abs(slopes[:-1]), axis=(1, 2))
    rounding = 64 * jnp.finfo(flat.dtype).eps
    parallel = jnp.max(jnp.abs(turn), axis=(1, 2)) <= rounding * size
    same = jnp.linalg.norm(gap, axis=1)
    domain = flat.problem.domain
    if isinstance(domain, Unconstrained | NonNegative):
        return jnp.where(parallel, same, jnp.inf), jnp.all(parallel)
    if not can_be_exact(flat):
        return same, jnp.all(parallel)
    corners = _vertices(flat) - x
    # |gap + turn z|^2 is linear in (1, z, z z^T): one product of matrices for all corners.
    first, second = np.triu_indices(flat.outer_dim)
    twice = jnp.asarray(np.where(first == second, 1.0, 2.0), flat.dtype)
    features = jnp.concatenate([corners, twice * corners[:, first] * corners[:, second]], axis=1)

    def furthest(_: PyTree, gap: Vector, turn: Array) -> Scalar:
        square = (turn.T @ turn)[first, second]
        values = features @ jnp.concatenate([2 * gap @ turn, square])
        return jnp.sqrt(jnp.maximum(jnp.max(values) + gap @ gap, 0))

    tails = jax.tree.map(lambda leaf: leaf[1:], rounds)
    copies = max(1, len(corners) // max(1, flat.inner_dim))
    highest = flat.map_rounds(furthest, tails, gap, turn, copies=copies)
    return jnp.where(parallel, same, highest), jnp.all(parallel)


def searched_supremum(
    flat: FlatProblem, objective: Objective, rounds: PyTree, around: PyTree, samples: int
) -> Float[Array, " T-1"]:
    """Return a lower estimate of sup_x objective(x, round t - 1, round t) for t = 2..T.

    `samples` points of X are tried, the same for all rounds, half of them drawn far outside and
    projected onto its boundary; then random moves of decreasing length from the best one. The
    points `around` (the comparators) are tried too; on an unbounded X they set the scale.
    """
    around = jax.vmap(flat.project)(around)
    centre = jnp.mean(around, axis=0)
    diameter = jnp.asarray(flat.problem.domain.diameter(flat.unravel_x(flat.start)), flat.dtype)
    spread = 2 * jnp.max(jnp.linalg.norm(around - centre, axis=1))
    radius = jnp.where(jnp.isfinite(diameter), diameter / 2, jnp.maximum(1, spread))
    key_far, key_near = jax.random.split(jax.random.key(SEED))
    throws = jax.random.normal(key_far, (samples, flat.outer_dim), flat.dtype)
    reach = jnp.where(jnp.arange(samples) % 2 == 0, 1.0, 4.0).astype(flat.dtype)
    bounded = jnp.isfinite(diameter)
    throws = throws * radius * jnp.where(bounded, reach, 1)[:, None] / flat.outer_dim**0.5
    points = jnp.concatenate([jax.vmap(flat.project)(centre + throws), around])
    steps = jax.random.normal(key_near, (3, LOCAL_SAMPLES, flat.outer_dim), flat.dtype)

    def best(now: PyTree, before: PyTree) -> Scalar:
        def top(points: Array) -> tuple[Scalar, Vector]:
            values = jax.vmap(lambda x: objective(x, before, now))(points)
            values = jnp.where(jnp.isnan(values), -jnp.inf, values)
            return jnp.max(values), points[jnp.argmax(values)]

        def refine(state: tuple[Scalar, Vector], moves: tuple[Array, Scalar]) -> Any:
            value, x = state
            noise, length = moves
            new_value, new_x = top(jax.vmap(flat.project)(x + length * radius * noise))
            better = new_value > value
            return (jnp.where(better, new_value, value), jnp.where(better, new_x, x)), None

        lengths = jnp.asarray([0.3, 0.1, 0.03], flat.dtype)
        return jax.lax.scan(refine, top(points), (steps, lengths))[0][0]

    before = jax.tree.map(lambda leaf: leaf[:-1], rounds)
    now = jax.tree.map(lambda leaf: leaf[1:], rounds)
    return flat.map_rounds(best, now, before, copies=2 * len(points))


def _vertices(flat: FlatProblem) -> Float[Array, "n d1"]:
    domain = flat.problem.domain
    if isinstance(domain, Simplex):
        return domain.scale.astype(flat.dtype) * jnp.eye(flat.outer_dim, dtype=flat.dtype)
    low, high = (flat.project(jnp.full_like(flat.start, end)) for end in (-jnp.inf, jnp.inf))
    bits = (np.arange(2**flat.outer_dim)[:, None] >> np.arange(flat.outer_dim)) & 1
    return jnp.where(jnp.asarray(bits == 1), high, low)


def _uses_first(function: Callable[..., Any], count: int, *arguments: PyTree) -> bool:
    """Return whether a result of `function` is computed from its first `count` arguments."""
    program = jax.make_jaxpr(function)(*arguments).jaxpr
    _, used = dce_jaxpr(program, [True] * len(program.outvars))
    return any(used[: len(jax.tree.leaves(arguments[:count]))])
