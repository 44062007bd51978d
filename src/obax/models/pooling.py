"""Max pooling over 2x2 windows whose derivative is a selection, of any order."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float


def extreme_of_windows(
    images: Float[Array, "batch height width channels"], smallest: Bool[Array, " channels"]
) -> Float[Array, "batch half_height half_width channels"]:
    """The largest entry of each 2x2 window, or the smallest in the channels that say so.

    Ties go to the first in the order of rows. An odd last row or column is left out. Linear in
    `images` once the positions are known, so a derivative is one selection and a second derivative
    nothing; XLA's own window reduction scatters on the way back, which is slow on CPU.
    """
    batch, height, width, channels = images.shape
    rows, columns = height // 2, width // 2
    even = images[:, : 2 * rows, : 2 * columns]
    windows = even.reshape(batch, rows, 2, columns, 2, channels)
    compared = jax.lax.stop_gradient(jnp.where(smallest, -windows, windows))
    best, position = compared[:, :, 0, :, 0], jnp.zeros((), jnp.int8)
    for index, (i, j) in enumerate(((0, 1), (1, 0), (1, 1)), start=1):
        other = compared[:, :, i, :, j]
        # A NaN wins, so that it is seen.
        better = (other > best) | jnp.isnan(other)
        best = jnp.where(better, other, best)
        position = jnp.where(better, jnp.asarray(index, jnp.int8), position)
    place = jnp.arange(4, dtype=jnp.int8).reshape(2, 1, 2, 1)
    chosen = place == position[:, :, None, :, None]
    return jnp.sum(jnp.where(chosen, windows, jnp.zeros_like(windows)), (2, 4))
