"""What is done again, otherwise, where it did not come out finite; free where it did."""

from collections.abc import Callable
from typing import TypeVar, cast

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.custom_batching import custom_vmap

from .trees import PyTree, all_finite, select

T = TypeVar("T")


def unless_finite(found: T, again: Callable[[], T]) -> T:
    """`found`, or `again()` where that is not finite.

    A branch. Under `vmap` JAX would make a selection of it and evaluate both sides in every round;
    here the branch is taken if one entry of the batch needs it.
    """
    numbers, rest = eqx.partition(eqx.filter_closure_convert(again), eqx.is_array)
    evaluate = lambda numbers: eqx.combine(numbers, rest)()  # noqa: E731

    @custom_vmap
    def mended(found: T, numbers: PyTree) -> T:
        return jax.lax.cond(all_finite(found), lambda: found, lambda: evaluate(numbers))

    @mended.def_vmap
    def _(size: int, batched: list, found: T, numbers: PyTree) -> tuple[T, PyTree]:
        def whole(leaf: jax.Array, has_batch: bool) -> jax.Array:
            return leaf if has_batch else jnp.broadcast_to(leaf, (size, *leaf.shape))

        entries = jax.tree.map(whole, found, batched[0])
        axes = jax.tree.map(lambda has_batch: 0 if has_batch else None, batched[1])

        def again() -> T:
            new = jax.vmap(evaluate, in_axes=(axes,), axis_size=size)(numbers)
            return jax.vmap(select)(jax.vmap(all_finite)(entries), entries, new)

        # Of a batch of batches, the same.
        out = unless_finite(entries, again)
        return out, jax.tree.map(lambda _: True, out)

    return cast(T, mended(found, numbers))
