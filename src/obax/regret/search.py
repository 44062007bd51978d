"""The searches behind the comparators: compiled, all rounds at once, a chunk at a time."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import Array

from .._support.trees import PyTree
from ..reduced import Flat, Pair, answer, check_round, solve_round, solve_stage, solve_static


@eqx.filter_jit
def search_answers(problem, rounds, outer_start, inner_start, outer_vars, stacked, solver):  # type: ignore[no-untyped-def]
    flat = Flat(problem, outer_start, inner_start, solver)
    if stacked:
        x = jax.vmap(lambda tree: ravel_pytree(tree)[0])(outer_vars)
        found = flat.map_rounds(lambda r, x: answer(flat, x, r), rounds, x)
    else:
        x = ravel_pytree(outer_vars)[0]
        found = flat.map_rounds(lambda r: answer(flat, x, r), rounds)
    return jax.vmap(flat.tree_y)(found.y), found.residual


@eqx.filter_jit
def search_rounds(problem, rounds, outer_start, inner_start, solver):  # type: ignore[no-untyped-def]
    flat = Flat(problem, outer_start, inner_start, solver)

    def best(round: PyTree) -> Pair:
        if problem.outer_argmin is None:
            return solve_round(flat, round)
        return check_round(flat, ravel_pytree(problem.outer_argmin(round))[0], round)

    return _trees(flat, flat.map_rounds(best, rounds))


@eqx.filter_jit
def search_static(problem, rounds, outer_start, inner_start, solver):  # type: ignore[no-untyped-def]
    flat = Flat(problem, outer_start, inner_start, solver)
    x, residual = solve_static(flat, rounds)
    found = flat.map_rounds(lambda r: answer(flat, x, r), rounds)
    return flat.unravel_x(x), jax.vmap(flat.tree_y)(found.y), residual, found.residual


@eqx.filter_jit
def search_stages(problem, rounds, outer_start, inner_start, starts, lengths, longest, solver):  # type: ignore[no-untyped-def]
    flat = Flat(problem, outer_start, inner_start, solver)
    places = jnp.arange(longest, dtype=starts.dtype)

    def best(stage: tuple[Array, Array]) -> Pair:
        start, length = stage
        # One shape for all stages: a shorter one repeats its last round with weight zero.
        index = start + jnp.minimum(places, length - 1)
        weights = (places < length).astype(flat.dtype) / length.astype(flat.dtype)
        return solve_stage(flat, jax.tree.map(lambda leaf: leaf[index], rounds), weights)

    return _trees(flat, jax.lax.map(best, (starts, lengths)))


def _trees(flat: Flat, pairs: Pair) -> tuple[PyTree, PyTree, Array, Array]:
    return (
        jax.vmap(flat.unravel_x)(pairs.x),
        jax.vmap(flat.tree_y)(pairs.y),
        pairs.residual,
        pairs.inner_residual,
    )
