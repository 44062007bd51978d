"""Lengths along a run: what the claims of the proofs are made of, in every round."""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array

from ... import reduced
from ..._support.trees import PyTree
from ...window import Window
from .evidence import SOLVER, Vector
from .play import Batch, Played


class Along(NamedTuple):
    """Lengths and differences in every round of a run; F_t is f_t for w = 1. Arrays of JAX while
    they are measured, of NumPy when they are judged."""

    before: Array
    after: Array
    error: Array
    slope: Array
    astray: Array
    length: Array
    fall: Array
    gap: Array
    towards: Array
    distance: Array
    next_distance: Array
    path: Array
    inner_path: Array


@eqx.filter_jit
def measure_along(batch: Batch, played: Played, best: Array, alpha: Array, window: Window) -> Along:
    """What `claims.checks` needs, of every problem. `best` are the comparators x*_t, `alpha` the
    steps that were *prescribed*, whatever was played."""

    def one(of: tuple[Batch, Played, Array, Array]) -> Along:
        batch, played, best, alpha = of
        flat = reduced.Flat(batch.problem, batch.outer_var, batch.inner_var, SOLVER)
        # The rounds of the window of round t, newest first; f_t = 0 before the first.
        index = jnp.arange(len(alpha))[:, None] - jnp.arange(window.size)
        weights = jnp.where(index >= 0, jnp.asarray(window.weights) / jnp.sum(window.weights), 0.0)
        past = jax.tree.map(lambda leaf: leaf[jnp.maximum(index, 0)], batch.rounds)
        found, answers = flat.map_rounds(
            lambda *of_round: _in_round(flat, *of_round),
            *(batch.rounds, past, weights, played, best, alpha),
        )
        return Along(**found, path=_steps(best), inner_path=_steps(answers))

    return jax.lax.map(one, (batch, played, best, alpha))


def _in_round(
    flat: reduced.Flat,
    round: PyTree,
    past: PyTree,
    weights: Array,
    played: Played,
    best: Vector,
    alpha: Array,
) -> tuple[dict[str, Array], Vector]:
    """All of `Along` but the path lengths, and y*_t(best) for these."""
    x, x_next, y, y_next = played

    def average(x: Vector, y: Vector) -> Array:
        return jnp.vdot(weights, jax.vmap(lambda round: flat.outer(x, y, round))(past))

    def gradient(y: Vector) -> Vector:
        slopes = jax.grad(average, (0, 1))(x, y)
        return reduced.pulled_back(flat, reduced.one_round(round), x, y, *slopes)

    answer, answer_next, answer_best = (
        reduced.answer(flat, point, round).y for point in (x, x_next, best)
    )
    true, taken = gradient(answer), gradient(y_next)
    value, norm = average(x, answer), jnp.linalg.norm
    return {
        "before": norm(y - answer),
        "after": norm(y_next - answer),
        "error": norm(taken - true),
        "slope": norm(true),
        "astray": norm(x_next - flat.project(x - alpha * taken)),
        "length": norm(alpha * taken) + norm(x),
        "fall": value - average(x_next, answer_next),
        "gap": value - average(best, answer_best),
        "towards": jnp.vdot(true, x - best),
        "distance": norm(x - best),
        "next_distance": norm(x_next - best),
    }, answer_best


def _steps(points: Array) -> Array:
    moved = jnp.linalg.norm(points[1:] - points[:-1], axis=1)
    return jnp.concatenate([jnp.zeros(1, moved.dtype), moved])
