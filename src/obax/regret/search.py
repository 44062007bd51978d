"""The searches behind the comparators: compiled, all rounds at once, a chunk at a time."""

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import Array

from .._support.trees import PyTree
from ..reduced import (
    Flat,
    Pair,
    answer,
    check_round,
    compiled,
    solve_round,
    solve_stage,
    solve_static,
)
from .inputs import Setup


@compiled
def search_answers(given: Setup, outer_vars: PyTree, stacked: bool) -> tuple[PyTree, Array]:
    """y*_t of the decisions, one for each round or one for all, and the residuals."""
    flat = given.flat()
    if stacked:
        found = flat.map_rounds(
            lambda r, x: answer(flat, x, r), given.rounds, as_vectors(outer_vars)
        )
    else:
        x = ravel_pytree(outer_vars)[0]
        found = flat.map_rounds(lambda r: answer(flat, x, r), given.rounds)
    return jax.vmap(flat.tree_y)(found.y), found.residual


@compiled
def search_rounds(given: Setup, starts: PyTree) -> Pair:
    """The pairs of all rounds as trees. `starts` has one more place to look at for each round."""
    flat = given.flat()

    def best(round: PyTree, start: Array) -> Pair:
        if given.problem.outer_argmin is None:
            return solve_round(flat, round, jnp.stack([flat.start, start]))
        return check_round(flat, ravel_pytree(given.problem.outer_argmin(round))[0], round)

    pairs = flat.map_rounds(best, given.rounds, as_vectors(starts))
    return _trees(flat, pairs)


@compiled
def search_static(given: Setup, starts: PyTree) -> Pair:
    """The one x, with the answers and inner residuals of all rounds."""
    flat = given.flat()
    best = solve_static(flat, given.rounds, as_vectors(starts))
    found = flat.map_rounds(lambda r: answer(flat, best.x, r), given.rounds)
    return best._replace(
        x=flat.unravel_x(best.x), y=jax.vmap(flat.tree_y)(found.y), inner_residual=found.residual
    )


@compiled
def search_stages(
    given: Setup, starts: PyTree, firsts: Array, lengths: Array, longest: int
) -> Pair:
    """The pairs of all stages as trees: `lengths` rounds each, from `firsts` on."""
    flat = given.flat()
    places = jnp.arange(longest, dtype=firsts.dtype)
    points = as_vectors(starts)

    def best(stage: tuple[Array, Array]) -> Pair:
        first, length = stage
        # One shape for all stages: a shorter one repeats its last round with weight zero.
        index = first + jnp.minimum(places, length - 1)
        weights = (places < length).astype(flat.dtype) / length.astype(flat.dtype)
        return solve_stage(
            flat, jax.tree.map(lambda leaf: leaf[index], given.rounds), weights, points
        )

    return _trees(flat, jax.lax.map(best, (firsts, lengths)))


def as_vectors(stacked: PyTree) -> Array:
    """A tree stacked on axis 0, as a matrix."""
    return jax.vmap(lambda tree: ravel_pytree(tree)[0])(stacked)


def _trees(flat: Flat, pairs: Pair) -> Pair:
    return pairs._replace(x=jax.vmap(flat.unravel_x)(pairs.x), y=jax.vmap(flat.tree_y)(pairs.y))
