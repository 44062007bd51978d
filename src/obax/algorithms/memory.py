"""What is kept of past rounds: hypergradients as they were computed, or rounds to look at again.

Both are kept in a `RingBuffer`, into which the base class pushes only what an accepted round left.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int

from .._support.trees import PyTree
from ..past import RingBuffer
from ..window import Window


def no_past(window: Window, outer_var: PyTree) -> RingBuffer | None:
    """Room for the w - 1 hypergradients before the current one; `None` if there are none."""
    return None if window.size == 1 else RingBuffer.like(outer_var, window.size - 1)


def averaged(
    window: Window, past: RingBuffer | None, newest: PyTree, t: Int[Array, ""]
) -> tuple[PyTree, int | Array]:
    """(1/W) sum_i u_i h_{t-i}, from the stored terms and the newest one; and how many there are."""
    if past is None:
        return newest, 1
    terms = window.terms(past, newest, t)
    return terms.mean(terms.rounds), terms.number


def random_order(
    seed: int, t: Int[Array, ""], there: Bool[Array, " slots"], *, current_first: bool = False
) -> Int[Array, " capacity"]:
    """The slots of `Tasks` in a random order that is new in every round, those of rounds that are
    not there last."""
    capacity = len(there) + 1
    key = jax.random.fold_in(jax.random.key(seed), t)
    draw = jax.random.uniform(key, (capacity,), jnp.float32)
    current = -1.0 if current_first else draw[-1]
    last = jnp.where(jnp.append(there, True), draw, jnp.inf).at[-1].set(current)
    return jnp.argsort(last).astype(jnp.int32)
